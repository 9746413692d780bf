"""A real child: one call of one node, and whole programs that are open there."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from soma import Filter, Graph
from soma.engine import Action, MemoryStore
from soma.engine.keys import rng_for
from soma.engine.parcels import pack
from soma.errors import (
    InvalidOutput,
    NotFittedError,
    NotSendable,
    RemoteError,
    SessionCancelled,
    SessionError,
    SessionLost,
)
from soma.identity import NodeIdentity
from soma.sessions import LocalRunner, send_message
from soma.sessions.changed import ChangedCode
from soma.sessions.child.identities import check_code, pack_identity
from soma.sessions.sending import SentProgram
from support import child_filters as filters

X = np.arange(12.0).reshape(4, 3)
LIMIT_S = 60
HEX = "12" * 32


@pytest.fixture(scope="module")
def runner():
    with LocalRunner(count=2) as made:
        yield made


@pytest.fixture
def child(runner):
    with runner.members[0].use() as made:
        yield made


def act(child, filter_, x=X, *, what="forward", owner="o", node="a", **more):
    given = {name: pack(one) for name, one in x.items()} if isinstance(x, dict) else pack(x)
    for name in ("y", "state"):
        if name in more:
            more[name] = pack(more[name])
    return child.run(owner, Action(node=node, filter=filter_, what=what, x=given, **more))


def wait_for(path):
    for _ in range(LIMIT_S * 100):
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.01)
    raise TimeoutError(path)


# One node


def test_fit_and_forward(child):
    fitted = act(child, filters.Mean(), what="fit")
    state = fitted.parcel.open()
    assert state["mean"].tolist() == [4.5, 5.5, 6.5]
    assert fitted.parcel.digest == pack(state, hashed=True).digest
    assert (fitted.empty, fitted.summary) == (False, "dict of 1")
    assert 0 <= fitted.took_ms < LIMIT_S * 1e3
    done = act(child, filters.Mean(), state=state)
    assert done.parcel.open().tolist() == (X - X.mean(axis=0)).tolist()
    assert done.summary == "ndarray float64 (4, 3)"


def test_only_who_asks_gets_a_hash(child):
    assert act(child, filters.double, 3, is_function=True, hashed=False).parcel.digest == ""
    assert act(child, filters.double, 3, is_function=True).parcel.open() == 6


def test_what_a_method_names(child):
    done = act(
        child,
        filters.Named(),
        what="fit",
        y=[1, 2, 3, 4],
        state={"before": 1},
        takes=frozenset({"rng", "state", "epochs", "batch_size", "shuffle"}),
        options={"epochs": 3, "batch_size": 2, "shuffle": True},
        rng=HEX,
    )
    assert done.parcel.open() == {
        "y": [1, 2, 3, 4],
        "drawn": float(rng_for(HEX).normal()),
        "from": {"before": 1},
        "options": [3, 2, True],
    }
    given = act(child, filters.Named(), 5, state=None, takes=frozenset({"rng"}), rng=HEX)
    assert given.parcel.open() == {
        "x": 5,
        "state": None,
        "drawn": float(rng_for(HEX).normal()),
    }


def test_functions(child):
    assert act(child, filters.double, is_function=True).parcel.open().tolist() == (X * 2).tolist()
    done = act(child, filters.drawn, is_function=True, takes=frozenset({"rng"}), rng=HEX)
    assert done.parcel.open() == float(rng_for(HEX).normal())
    assert act(child, lambda x: x + 1, 1, is_function=True).parcel.open() == 2


def test_several_inputs_come_in_order(child):
    done = act(child, filters.gathered, {"b": 1, "a": "text"}, is_function=True)
    assert done.parcel.open() == [["b", "a"], ["int", "str"]]


def test_a_large_result_lies_in_a_file(child):
    x = np.zeros(300_000)
    done = act(child, filters.double, x, is_function=True)
    assert done.parcel.blob.fd >= 0
    assert done.parcel.open().shape == (300_000,)


def test_nothing_and_empty(child):
    assert act(child, filters.Inside(), what="fit").parcel is None
    done = act(child, filters.Notes(), what="fit")
    assert (done.parcel.open(), done.empty) == ({}, True)
    assert act(child, lambda _: None, is_function=True).parcel.open() is None


def test_a_filter_travels_once(child):
    filter_ = filters.Mean()
    act(child, filter_, what="fit", owner="once")
    token = child.known["once", "a"]
    act(child, filter_, what="fit", owner="once")
    assert child.known["once", "a"] == token


def test_what_a_call_writes_on_the_filter_comes_home(child):
    notes = filters.Notes()
    same, array = notes.same, notes.array
    act(child, notes, what="fit")
    assert notes.log == ["made", "fit of 4"]
    assert notes.array.tolist() == [7.0, 0.0, 0.0]
    assert notes.new_ == {"n": 4}
    assert not hasattr(notes, "gone")
    assert notes.same is same
    assert notes.array is not array
    assert notes.name == "notes"
    assert act(child, notes).parcel.open() == ["made", "fit of 4"]


def test_slots_come_home(child):
    slots = filters.Slots()
    for _ in range(2):
        act(child, slots, what="fit")
    assert (slots.count, slots.hidden) == (2, 20)
    assert not hasattr(slots, "unset")


def test_what_is_left_out_stays(child):
    filter_ = filters.LeavesOut()
    lock = filter_._lock
    act(child, filter_)
    act(child, filter_)
    assert filter_.seen == 2
    assert filter_._lock is lock


def test_a_filter_that_holds_its_own_methods_keeps_them(child):
    filter_ = filters.HoldsMethod()
    act(child, filter_)
    assert filter_.log == ["worked"]
    assert filter_.hook.__self__ is filter_
    assert filter_.inner["hook"].__self__ is filter_


def test_classes_by_value_come_home_as_what_they_are(child):
    class Local:
        def __init__(self):
            self.seen = []

        def forward(self, x, state):
            self.seen.append(Local)
            return x

    local = Local()
    act(child, local, 1)
    assert local.seen == [Local]


@pytest.mark.parametrize("what", ["generator", "coroutine"])
def test_what_can_be_read_only_once_is_refused(child, what):
    with pytest.raises(InvalidOutput, match=rf"Node 'a' \(Odd\): forward returned a {what}"):
        act(child, filters.Odd(what))


@pytest.mark.parametrize("what", ["opaque", "lock"])
def test_what_cannot_leave_is_refused(child, what):
    with pytest.raises(NotSendable, match=r"What forward of node 'a' \(Odd\) has returned cannot"):
        act(child, filters.Odd(what))


def test_what_no_codec_covers_comes_as_a_pickle(child):
    class Point:
        def __init__(self, n):
            self.n = n

    done = act(child, Point, 3, is_function=True)
    assert (done.parcel.form, done.parcel.digest) == ("pickle", "")
    assert type(done.parcel.open()) is Point
    assert done.parcel.open().n == 3


def test_after_an_error_the_filter_is_as_it_was(child):
    fails = filters.Fails()
    for _ in range(2):
        with pytest.raises(KeyError, match="try 1") as caught:
            act(child, fails)
        assert "child_filters.py" in caught.value.__notes__[-1]
        assert f"remote traceback (local-1, pid {child.pid})" in caught.value.__notes__[-1]
    assert fails.tries == 0
    assert act(child, filters.double, 2, is_function=True).parcel.open() == 4


def test_an_error_that_cannot_travel(child):
    def fail(x):
        error = ValueError("locked")
        error.lock = threading.Lock()
        raise error

    with pytest.raises(RemoteError, match="ValueError: locked"):
        act(child, fail, is_function=True)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_leaving_travels_as_what_it_is(child, error):
    def leave(x):
        raise error

    with pytest.raises(type(error)):
        act(child, leave, is_function=True)
    assert act(child, filters.double, 2, is_function=True).parcel.open() == 4


@pytest.mark.parametrize("how", ["sleeps", "spins"])
def test_cancel(child, how, tmp_path):
    mark = tmp_path / "runs"
    pid = child.pid

    def cancel():
        wait_for(mark)
        child.cancel()

    other = threading.Thread(target=cancel, daemon=True)
    other.start()
    with pytest.raises(SessionCancelled, match=f"pid {pid}"):
        act(child, filters.Waits(mark, how))
    other.join(LIMIT_S)
    assert child.alive
    assert act(child, filters.double, 2, is_function=True).parcel.open() == 4


def test_a_cancel_in_the_middle_of_an_import_ends_the_process(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    mark = tmp_path / "imports"
    (tmp_path / "imports_for_long.py").write_text(
        f"import os, time\nopen({str(mark)!r}, 'w').write('x')\ntime.sleep(600)\n"
    )

    def imports(x):
        import imports_for_long

        return imports_for_long

    with LocalRunner("local://importing") as runner:
        member = runner.members[0]
        with member.use() as child:
            first = child

            def cancel():
                wait_for(mark)
                first.cancel()

            other = threading.Thread(target=cancel, daemon=True)
            other.start()
            with pytest.raises(SessionCancelled):
                act(child, imports, is_function=True)
            other.join(LIMIT_S)
        for _ in range(LIMIT_S * 100):
            if not first.alive:
                break
            time.sleep(0.01)
        with member.use() as child:
            assert child.pid != first.pid
            assert act(child, filters.double, 2, is_function=True).parcel.open() == 4


def test_forget(child):
    act(child, filters.Mean(), what="fit", owner="gone")
    child.request("forget", {"owner": "gone"}, during="test")
    with pytest.raises(SessionError, match="please report"):
        act(child, filters.Mean(), what="fit", owner="gone")  # known here, and no longer there


def test_prints_come_before_the_answer(child, capsys):
    act(child, filters.Prints())
    assert capsys.readouterr().err == "[local-1] a line\n[local-1] no end\n"


def test_where_the_client_stands(child, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = act(child, lambda _: [os.getcwd(), sys.path[0]], is_function=True)  # noqa: PTH109  # text
    assert found.parcel.open() == [str(tmp_path), str(tmp_path)]


def test_a_module_that_was_written_just_now(child, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    act(child, filters.double, 1, is_function=True)  # the folder is on its path, and empty
    (tmp_path / "written_just_now.py").write_text("def triple(x):\n    return 3 * x\n")
    import written_just_now

    done = act(child, written_just_now.triple, 2, is_function=True)
    assert done.parcel.open() == 6


# Whole programs


def program(*nodes, cache="memory", edges=(), **more):
    g = Graph(cache=cache, **more)
    for id_, node in nodes:
        g.node(id_, node)
    for one in edges:
        g.edge(*one)
    return g.program()


def chain(cache="memory", **more):
    nodes = ("mean", filters.Mean()), ("double", filters.double)
    return program(*nodes, cache=cache, edges=[("mean", "double")], **more)


EXPECTED = ((X - X.mean(axis=0)) * 2).tolist()


@pytest.mark.parametrize("cache", ["memory", "off"])
def test_fit_forward_and_states(runner, cache):
    heard = []
    with runner.open(chain(cache), on_event=heard.append) as session:
        report = session.fit(X, seed=3, options={"epochs": 2})
        assert report.states["mean"]["mean"].tolist() == [4.5, 5.5, 6.5]
        assert report.rows == 4
        assert report.metrics["computed"] == 1.0
        assert session.forward(X, run_id="mine").tolist() == EXPECTED
        assert session.state()["mean"]["mean"].tolist() == [4.5, 5.5, 6.5]
    assert [one.event_type for one in heard if one.run_id == "mine"][-1] == "RunCompleted"
    assert heard[0].seed == 3


def test_what_was_computed_is_in_the_store_of_the_client(runner):
    sent = chain()
    with runner.open(sent) as session:
        session.fit(X, seed=None, options={})
        session.forward(X)
    assert sent.store.stats()["records"] == 3
    g = Graph(cache=sent.store)
    g.node("mean", filters.Mean())
    g.node("double", filters.double)
    g.edge("mean", "double")
    g.fit(X)
    assert g.forward(X).tolist() == EXPECTED
    assert g.last_run.hits == 2


def test_what_the_client_knows_is_not_computed(runner, tmp_path):
    file = tmp_path / "runs"
    sent = program(("counts", filters.Counts(file)))
    for _ in range(2):
        with runner.open(sent) as session:
            for _ in range(2):
                assert session.forward(X).tolist() == (X * 2).tolist()
    assert file.read_text() == "x"


def test_results_are_hashes_where_the_store_has_the_bytes(runner, monkeypatch):
    from soma.sessions.exchange import Exchange

    answers = []
    request = Exchange.request

    def watched(self, kind, during):
        answers.append(request(self, kind, during))
        return answers[-1]

    monkeypatch.setattr(Exchange, "request", watched)
    with runner.open(chain()) as session:
        session.fit(X, seed=None, options={})
        assert session.forward(X).tolist() == EXPECTED
    assert [len(one.blobs) for one in answers] == [0, 0]


@pytest.mark.parametrize("cache_max_bytes", [1, 700])
def test_a_store_that_keeps_nothing(runner, cache_max_bytes, capsys):
    sent = chain(cache_max_bytes=cache_max_bytes)
    with runner.open(sent) as session:
        for add in range(3):
            assert session.fit(X + add, seed=None, options={}).rows == 4
            assert session.forward(X + add).tolist() == EXPECTED
    assert "Traceback" not in capsys.readouterr().err


def test_outputs_that_are_gone_are_made_again(runner, monkeypatch):
    from soma.sessions.store_server import StoreServer

    monkeypatch.setattr(StoreServer, "blob", lambda self, digest: None)
    with runner.open(chain()) as session:
        session.fit(X, seed=None, options={})
        assert session.forward(X).tolist() == EXPECTED
        assert session.state()["mean"]["mean"].tolist() == [4.5, 5.5, 6.5]


def test_two_sessions_compute_the_same_once(runner, tmp_path):
    file = tmp_path / "runs"
    store = MemoryStore()
    barrier = threading.Barrier(2, timeout=LIMIT_S)
    found = []

    def use(number):
        sent = program(("counts", filters.Counts(file)), cache=store)
        with LocalRunner(f"local://other{number}") as other, other.open(sent) as session:
            session.call(os.getpid)
            barrier.wait()
            found.append(session.forward(X).tolist())

    threads = [threading.Thread(target=use, args=(n,), daemon=True) for n in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(LIMIT_S)
    assert found == [(X * 2).tolist()] * 2
    assert file.read_text() == "x"


def test_a_store_that_the_process_opens_itself(runner):
    sent = replace(chain(), store_source=("memory", {}))
    with runner.open(sent) as session:
        session.fit(X, seed=None, options={})
        assert session.forward(X).tolist() == EXPECTED
        assert session.state()["mean"]["mean"].tolist() == [4.5, 5.5, 6.5]
    assert sent.store.stats()["records"] == 0


def test_a_filter_that_changes_itself_is_not_kept(runner, capsys):
    with runner.open(program(("changes", filters.ChangesConfig()))) as session:
        assert [session.forward(0) for _ in range(3)] == [1, 2, 3]
    assert "changes itself during forward" in capsys.readouterr().err


def test_a_class_that_is_another_there_is_refused(runner, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "edited_later.py"
    text = "class Add:\n    def forward(self, x, state):\n        return x + {}\n"
    file.write_text(text.format(1))
    import edited_later

    file.write_text(text.format(2222))
    with (
        runner.open(program(("add", edited_later.Add()))) as session,
        pytest.raises(ChangedCode, match=r"Node 'add': edited_later.Add .*method forward") as no,
    ):
        session.forward(1)
    for word in ("reload the module", "at run time", "target='local'"):
        assert word in str(no.value)


def test_the_code_of_a_node_is_checked_for_whoever_asks(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    text = "class Checked:\n    def forward(self, x, state):\n        return x + {}\n"
    (tmp_path / "checked_later.py").write_text(text.format(1))
    import checked_later

    sent = pack_identity(NodeIdentity("n", checked_later.Checked()))
    check_code("n", checked_later.Checked(), sent)
    monkeypatch.setattr(checked_later.Checked, "forward", lambda self, x, state: x)
    with pytest.raises(ChangedCode, match=r"Node 'n': checked_later\.Checked") as caught:
        check_code("n", checked_later.Checked(), sent)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301  # our own
    assert (type(again), str(again)) == (ChangedCode, str(caught.value))
    check_code("n", checked_later.Checked(), {"error": "Nameless", "text": "none"})


def in_a_script(text):
    """Return the names that a script defines: its classes travel by value."""
    names = {"Filter": Filter, "__name__": "__main__"}
    exec(text, names)  # noqa: S102  # as a script is run
    return names


ADDS = "K = 1\nclass Adds(Filter):\n    def forward(self, x, state):\n        return x + K\n"


@pytest.mark.parametrize("cache", ["memory", "off"])
@pytest.mark.parametrize("by", ["session", "call"])
def test_a_class_that_is_sent_again_with_other_code(cache, by):
    script = in_a_script(ADDS)
    store = MemoryStore() if cache == "memory" else "off"

    def opened():
        return runner.open(program(("adds", script["Adds"]()), cache=store))

    with LocalRunner() as runner:
        old = opened()
        assert old.forward(1) == 2
        script["K"] = 50
        if by == "session":
            assert opened().forward(1) == 51
        else:
            filter_ = script["Adds"]()
            assert old.call(lambda: filter_.forward(1, None)) == 51
        for _ in range(2):
            with pytest.raises(SessionError, match=r"Node 'adds' .*Open the program again"):
                old.forward(3)
        assert opened().forward(3) == 53
        script["K"] = 1
        g = Graph(cache=store)
        g.node("adds", script["Adds"]())
        assert g.forward(3) == 4


def test_a_node_may_set_what_its_code_names():
    script = in_a_script(
        "N = 0\nclass Counts(Filter):\n    def forward(self, x, state):\n"
        "        global N\n        N += 1\n        return N\n"
    )
    with LocalRunner() as runner:
        session = runner.open(program(("counts", script["Counts"]())))
        assert [session.forward(0) for _ in range(3)] == [1, 2, 3]


def test_states_that_never_arrived_are_not_used(runner, monkeypatch):
    monkeypatch.setenv(filters.HOME, str(os.getpid()))
    with runner.open(program(("away", filters.Away()))) as session:
        with pytest.raises(OSError, match="not at home"):
            session.fit(X, seed=None, options={})
        assert dict(session.state()) == {}
        with pytest.raises(NotFittedError):
            session.forward(X)


def test_a_run_whose_process_is_lost_has_an_end(runner):
    heard = []
    with runner.open(program(("dies", filters.Dies())), on_event=heard.append) as session:
        with pytest.raises(SessionLost):
            session.forward(1)
        kinds = [one.event_type for one in heard]
        assert kinds == ["RunStarted", "NodeCacheMiss", "NodeStarted", "NodeFailed", "RunFailed"]
        assert heard[-2].node_id == "dies"
        assert "exited with status 4" in heard[-1].error
        assert len({one.run_id for one in heard}) == 1


def test_a_forward_that_is_made_twice_is_heard_once(runner, monkeypatch):
    from soma.sessions.store_server import StoreServer

    monkeypatch.setattr(StoreServer, "blob", lambda self, digest: None)
    heard = []
    with runner.open(program(("double", filters.double)), on_event=heard.append) as session:
        assert session.forward(4) == 8
    kinds = [one.event_type for one in heard]
    assert kinds[0] == "RunStarted"
    assert (kinds.count("RunStarted"), kinds.count("RunCompleted")) == (1, 1)


def test_closing_while_the_program_is_opened_leaves_nothing(runner, monkeypatch):
    session = runner.open(chain("off"))
    member, put = session._place.member, SentProgram.put

    def close_first(self, blobs):
        session.close()
        return put(self, blobs)

    monkeypatch.setattr(SentProgram, "put", close_first)
    with pytest.raises(SessionError, match=r"closed|cancelled"):
        session.forward(X)
    monkeypatch.undo()
    with member.use() as child:
        assert session.id not in child.known
    monkeypatch.setattr(session._place, "current", None)
    with member.use() as child, pytest.raises(SessionError, match="was closed"):
        session._place.open(child, session._sent)  # the close came a moment later
    with member.use() as child:
        assert session.id not in child.known
        assert session.id in child.known["sessions that are gone"]


def test_after_a_cancel_in_the_middle_of_an_import_another_process_is_asked(tmp_path, monkeypatch):
    """One that stopped there has half a module, and ends: nobody finds it still alive."""
    (tmp_path / "imported_slowly.py").write_text(
        "import time\n"
        "from soma.sessions import send_message\n"
        "send_message('importing')\n"
        "while True:\n"
        "    time.sleep(0.01)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with LocalRunner() as runner, runner.open(chain("off")) as session:
        for _ in range(5):
            before = session.call(os.getpid)
            with pytest.raises(SessionCancelled):
                session.call(
                    import_module, "imported_slowly", on_message=lambda _: session.cancel()
                )
            assert session.call(os.getpid) != before


class Deaf:
    """What is raised in a destructor goes nowhere."""

    def __del__(self):
        send_message("destroyed")
        time.sleep(60)


def is_deaf_once():
    Deaf()
    time.sleep(60)


def test_a_cancel_that_is_swallowed_comes_again(runner):
    with runner.open(chain("off")) as session:
        before = session.call(os.getpid)
        with pytest.raises(SessionCancelled, match="The call was cancelled"):
            session.call(is_deaf_once, on_message=lambda _: session.cancel())
        assert session.call(os.getpid) == before  # it was not killed


class CancelsWhenPacked:
    def __init__(self, session):
        self.session = session

    def __reduce__(self):
        self.session.cancel()
        return (int, ())


def test_a_cancel_while_arguments_are_packed(runner):
    with runner.open(chain("off")) as session:
        session.call(os.getpid)
        with pytest.raises(SessionCancelled):
            session.call(str, CancelsWhenPacked(session))
        assert session.call(str, 3) == "3"


def test_a_cancel_while_the_process_starts(monkeypatch):
    from soma.sessions.process import ChildProcess

    start = ChildProcess.start

    def cancelled_meanwhile(*args, **kwargs):
        session.cancel()
        return start(*args, **kwargs)

    with LocalRunner() as runner:
        session = runner.open(chain("off"))
        monkeypatch.setattr(ChildProcess, "start", cancelled_meanwhile)
        with pytest.raises(SessionCancelled):
            session.call(str, 3)
        monkeypatch.undo()
        assert session.call(str, 3) == "3"


def test_a_cancel_stops_no_call_of_another_session():
    with LocalRunner() as runner:
        one, other = runner.open(chain("off")), runner.open(chain("off"))
        begun, go_on = threading.Event(), threading.Event()
        found = []

        def hold(said):
            begun.set()
            go_on.wait(LIMIT_S)

        def call():
            found.append(other.call(filters.told, 5, on_message=hold))

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        assert begun.wait(LIMIT_S)
        for _ in range(100):
            one.cancel()
        waits = threading.Thread(target=lambda: found.append(raised(one)), daemon=True)
        waits.start()
        for _ in range(LIMIT_S * 100):
            one.cancel()  # as soon as it waits for its turn
            if not waits.is_alive():
                break
            time.sleep(0.01)
        go_on.set()
        thread.join(LIMIT_S)
        assert found == [SessionCancelled, 5]


def raised(session):
    try:
        session.call(str, 1)
    except SessionError as error:
        return type(error)


def test_what_a_fit_keeps_inside_is_lost_with_the_process(runner):
    with runner.open(program(("inside", filters.Inside()))) as session:
        session.fit(X, seed=None, options={})
        assert session.forward(1) == 67.0
        assert session.state() == {}
        with pytest.raises(SessionLost, match="exited with status 5"):
            session.call(os._exit, 5)
        with pytest.raises(NotFittedError, match="inside"):
            session.forward(1)
        session.fit(X, seed=None, options={})
        assert session.forward(1) == 67.0


def test_after_a_lost_process_all_is_sent_again(runner):
    with runner.open(chain("off")) as session:
        session.fit(X, seed=None, options={})
        ref = session.put(X)
        assert session.forward(ref).tolist() == EXPECTED
        pid = session.call(os.getpid)
        with pytest.raises(SessionLost, match="SIGKILL"):
            session.call(signal.raise_signal, signal.SIGKILL)
        assert session.forward(ref).tolist() == EXPECTED
        assert session.forward(ref.rows(1, 3)).tolist() == EXPECTED[1:3]
        assert session.call(os.getpid) != pid


def test_a_node_that_ends_the_process(runner):
    sent = program(("dies", filters.Dies()))
    with runner.open(sent) as session:
        for _ in range(2):
            with pytest.raises(SessionLost, match="exited with status 4"):
                session.forward(1)
    assert sent.store.try_claim("k", "me") is not None
    assert not sent.store._claims._held.keys() - {"k"}


def test_errors_in_a_program(runner):
    with (
        runner.open(program(("fails", filters.Fails()))) as session,
        pytest.raises(KeyError) as caught,
    ):
        session.forward(1)
    notes = caught.value.__notes__
    assert notes[0] == "in node 'fails' (Fails), during forward"
    assert "child_filters.py" in notes[1]


def test_messages_both_ways(runner):
    def talk(count):
        return [send_message(number) for number in range(count)]

    heard = []

    def answer(message):
        heard.append(message)
        return {"twice": message * 2, "large": np.zeros(200_000)}

    with runner.open(chain()) as session:
        found = session.call(talk, 3, on_message=answer)
        assert [one["twice"] for one in found] == [0, 2, 4]
        assert found[0]["large"].shape == (200_000,)
        assert heard == [0, 1, 2]
        with pytest.raises(SessionError, match="Nobody listens"):
            session.call(talk, 1)


def test_a_listener_that_fails_ends_the_call(runner):
    def fail(message):
        raise ZeroDivisionError(message)

    def talk():
        send_message("a")
        time.sleep(600)

    with runner.open(chain()) as session:
        with pytest.raises(ZeroDivisionError, match="a"):
            session.call(talk, on_message=fail)
        assert session.call(len, "abc") == 3


def test_cancel_of_a_program(runner, tmp_path):
    mark = tmp_path / "runs"
    sent = program(("waits", filters.Waits(mark)))
    with runner.open(sent) as session:

        def cancel():
            wait_for(mark)
            session.cancel()

        other = threading.Thread(target=cancel, daemon=True)
        other.start()
        with pytest.raises(SessionCancelled):
            session.forward(1)
        other.join(LIMIT_S)
        assert session.call(len, "abc") == 3
    assert not sent.store._claims._held


def test_a_cancel_without_a_call_does_nothing(runner):
    with runner.open(chain()) as session:
        session.cancel()
        assert session.call(len, "abc") == 3


def test_a_call_from_within_its_own_call_is_refused(runner):
    with runner.open(chain()) as session:

        def again(message):
            return session.call(len, message)

        with pytest.raises(SessionError, match="middle of a call"):
            session.call(lambda: send_message("x"), on_message=again)
        assert session.call(len, "abc") == 3


def test_closing_lets_go_in_the_process(runner):
    sent = chain("off")
    with runner.open(sent) as session:
        session.fit(X, seed=None, options={})
        member = session._place.member
        before = member.sessions
        held = session.put(np.zeros(1000))
        session.forward(np.zeros(3))
        assert held.session == session.id
    assert member.sessions == before - 1
    with member.use() as child:
        assert session.id not in child.known
        assert "sessions that are gone" not in child.known


def test_a_session_that_nobody_has_is_closed(runner):
    session = runner.open(chain("off"))
    session.call(len, "")
    member, id_ = session._place.member, session.id
    before = member.sessions
    del session
    gc.collect()
    assert member.sessions == before - 1
    with member.use() as child:
        assert id_ not in child.known


def test_what_cannot_travel_is_refused_at_once(runner):
    class Holds:
        def __init__(self):
            self.lock = threading.Lock()

        def forward(self, x, state):
            return x

    with pytest.raises(NotSendable, match=r"Node 'holds'.*self\.lock"):
        runner.open(program(("holds", Holds())))
    with runner.open(chain()) as session:
        with pytest.raises(NotSendable, match="x"):
            session.forward([threading.Lock()])
        with pytest.raises(NotSendable, match="argument 1"):
            session.call(len, threading.Lock())
        assert session.call(len, "abc") == 3


def test_many_calls_leave_nothing(runner):
    descriptors = Path(f"/proc/{os.getpid()}/fd")
    with runner.open(chain()) as session:
        session.fit(X, seed=None, options={})
        theirs = Path(f"/proc/{session.call(os.getpid)}/fd")
        large = np.zeros(200_000)

        def use(number):
            session.forward(X + number)
            session.call(np.sum, large)

        use(0)
        before = len(list(descriptors.iterdir())), len(list(theirs.iterdir()))
        for number in range(100):
            use(number)
        gc.collect()
        after = len(list(descriptors.iterdir())), len(list(theirs.iterdir()))
    assert after[0] <= before[0] + 2
    assert after[1] <= before[1] + 2
