from __future__ import annotations

import functools
import re
import threading

import pytest

from soma import InvalidInput
from soma.events import Bus, NodeProgress, TrialStarted, UserEvent
from soma.events.bus import MAX_GENERATIONS
from support.distributions import run_python, write_plugin
from support.threads import run_in_threads


def say(name, **fields):
    return UserEvent(name, fields)


def listen(bus, found, tag=None):
    return bus.subscribe(
        lambda event: found.append(event.event_type if tag is None else (tag, event.event_type)),
        plain=False,
    )


class TestSubscribing:
    def test_plain_data_or_the_event(self):
        bus, dicts, events = Bus(), [], []
        bus.subscribe(dicts.append, plain=True)
        bus.subscribe(events.append, plain=False)
        event = NodeProgress(run_id="r", node_id="a", progress=0.5)
        bus.emit(event)
        assert dicts == [
            {"event_type": "NodeProgress", "run_id": "r", "node_id": "a", "progress": 0.5}
        ]
        assert events[0] is event

    def test_what_one_changes_nobody_else_sees(self):
        bus, found = Bus(), []

        def spoil(data):
            found.append(repr(data))
            data["params"]["a"].append(9)
            data.clear()

        for _ in range(2):
            bus.subscribe(spoil, plain=True)
        event = TrialStarted(study_id="s", trial_id="t", params={"a": [1]})
        bus.emit(event)
        bus.emit(event)
        assert found == [repr(event.to_dict())] * 4
        assert event.params == {"a": [1]}

    def test_listening_says_whether_anybody_is_there(self):
        bus = Bus()
        assert bus.listening is False
        bus.emit(say("unheard"))
        one, other = listen(bus, []), listen(bus, [])
        assert bus.listening is True
        one()
        assert bus.listening is True
        other.cancel()
        assert bus.listening is False

    def test_three_ways_to_hear_no_more(self):
        bus, found = Bus(), []
        called, cancelled = listen(bus, found, 1), listen(bus, found, 2)
        with listen(bus, found, 3) as within:
            assert within.active
            bus.emit(say("a"))
        called()
        cancelled.cancel()
        for one in (called, cancelled, within):
            one()  # a second time does nothing
            assert not one.active
        bus.emit(say("b"))
        assert found == [(1, "a"), (2, "a"), (3, "a")]

    def test_one_callback_subscribed_twice_is_two_subscriptions(self):
        bus, found = Bus(), []
        one = bus.subscribe(found.append, plain=False)
        bus.subscribe(found.append, plain=False)
        bus.emit(say("a"))
        one()
        bus.emit(say("b"))
        assert [event.event_type for event in found] == ["a", "a", "b"]

    def test_a_subscription_says_what_it_is(self):
        bus = Bus()
        mine = bus.subscribe(functools.partial(run_in_threads, count=1), plain=True)
        assert repr(mine) == "<Subscription: support.threads.run_in_threads hears dicts>"
        mine()
        assert repr(mine).endswith("run_in_threads hears nothing any more>")
        assert repr(bus.subscribe(print, plain=False, name="the printer")) == (
            "<Subscription: the printer hears events>"
        )

    @pytest.mark.parametrize("callback", [None, 3, "print"])
    def test_what_cannot_be_called_is_refused(self, callback):
        bus = Bus()
        with pytest.raises(InvalidInput, match=f"not {callback!r}"):
            bus.subscribe(callback, plain=True)
        assert not bus.listening

    def test_what_a_call_would_not_run_is_refused(self):
        async def later(event):
            pass

        def lazily(event):
            yield

        class Later:
            async def __call__(self, event):
                pass

        for callback in (later, lazily, Later(), functools.partial(later)):
            with pytest.raises(InvalidInput, match="would run nothing of it"):
                Bus().subscribe(callback, plain=True)


class TestOrder:
    def test_an_answer_follows_what_it_answers_for_everybody(self):
        bus, found = Bus(), []

        def answer(event):
            found.append(("first", event.event_type))
            if event.event_type == "a":
                bus.emit(say("b"))
                bus.emit(say("c"))
                found.append("emitted")
            if event.event_type == "b":
                bus.emit(say("d"))

        bus.subscribe(answer, plain=False)
        listen(bus, found, "second")
        bus.emit(say("a"))
        assert found == [
            ("first", "a"),
            "emitted",
            *[(who, name) for name in "abcd" for who in ("first", "second")][1:],
        ]

    def test_an_endless_chain_is_refused_where_it_is_emitted(self, capsys):
        bus, found = Bus(), []
        bus.subscribe(lambda event: bus.emit(say("again")), plain=False)
        listen(bus, found)
        bus.emit(say("start"))
        assert found == ["start"] + ["again"] * MAX_GENERATIONS
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "InvalidInput: The event 'again' was not emitted" in said
        bus.emit(say("start"))  # and a new chain starts from the beginning
        assert len(found) == 2 * (MAX_GENERATIONS + 1)

    def test_many_answers_to_one_event_are_no_chain(self):
        bus, found = Bus(), []

        def answer(event):
            for _ in range(3 * MAX_GENERATIONS if event.event_type == "a" else 0):
                bus.emit(say("b"))

        bus.subscribe(answer, plain=False)
        listen(bus, found)
        bus.emit(say("a"))
        assert len(found) == 1 + 3 * MAX_GENERATIONS

    def test_cancelling_inside_a_callback_holds_at_once(self):
        bus, found, later = Bus(), [], []

        def stop(event):
            found.append("stop")
            for one in (mine, *later):
                one()

        mine = bus.subscribe(stop, plain=False)
        later.append(listen(bus, found, "later"))
        listen(bus, found, "stays")
        bus.emit(say("a"))
        bus.emit(say("b"))
        assert found == ["stop", ("stays", "a"), ("stays", "b")]

    def test_subscribing_inside_a_callback_hears_the_next_event(self):
        bus, found = Bus(), []

        def grow(event):
            if event.event_type == "a":
                listen(bus, found)

        bus.subscribe(grow, plain=False)
        bus.emit(say("a"))
        assert found == []
        bus.emit(say("b"))
        assert found == ["b"]


class TestErrors:
    def test_the_others_hear_it_and_one_line_says_who_failed(self, capsys):
        bus, found, seen = Bus(), [], []

        def broken(event):
            seen.append(event["event_type"])
            raise ValueError("bad\nday \udce9")

        bus.subscribe(broken, plain=True)
        listen(bus, found)
        for name in "abc":
            bus.emit(say(name))
        assert seen == found == ["a", "b", "c"]
        line = broken.__code__.co_firstlineno + 2
        name = re.escape(f"{__name__}.{broken.__qualname__}")
        assert re.fullmatch(
            rf"soma: {name} failed at the event 'a': ValueError: bad day \\udce9 "
            rf"\({re.escape(__file__)}:{line}\)\. The run goes on; .*\n",
            capsys.readouterr().err,
        )

    def test_each_subscription_is_told_of_once(self, capsys):
        bus = Bus()

        class Broken:
            def __call__(self, event):
                raise KeyError("gone")

        bus.subscribe(Broken(), plain=True)
        bus.subscribe(Broken(), plain=True, name="the event sink 'bell'")
        for _ in range(3):
            bus.emit(say("a\nb"))
        first, second = capsys.readouterr().err.splitlines()
        assert "Broken failed at the event 'a\\nb': KeyError: 'gone'" in first
        assert second.startswith("soma: the event sink 'bell' failed at the event")

    def test_a_closed_stderr_is_no_trouble(self, monkeypatch):
        class Closed:
            def write(self, text):
                raise ValueError("closed")

        monkeypatch.setattr("sys.stderr", Closed())
        bus, found = Bus(), []
        bus.subscribe(lambda _event: 1 / 0, plain=True)
        listen(bus, found)
        bus.emit(say("a"))
        assert found == ["a"]

    @pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
    def test_an_interrupt_goes_through_and_what_is_left_comes_first_next_time(self, kind, capsys):
        bus, found, late = Bus(), [], []

        def interrupted(event):
            found.append(("first", event.event_type))
            if event.event_type == "a":
                bus.emit(say("answer"))
                raise kind

        bus.subscribe(interrupted, plain=False)
        listen(bus, found, "second")
        with pytest.raises(kind):
            bus.emit(say("a"))
        assert found == [("first", "a")]
        listen(bus, late)
        bus.emit(say("b"))
        assert found == [
            ("first", "a"),
            ("second", "a"),
            ("first", "answer"),
            ("second", "answer"),
            ("first", "b"),
            ("second", "b"),
        ]
        assert late == ["b"]
        assert capsys.readouterr().err == ""


class TestThreads:
    def test_all_hear_one_order_and_nothing_is_lost(self):
        bus, first, second, busy = Bus(), [], [], []

        def careful(event):
            busy.append(threading.get_ident())
            first.append(event.fields["number"])
            assert len(busy) == 1
            busy.pop()

        bus.subscribe(careful, plain=False)
        bus.subscribe(lambda event: second.append(event["number"]), plain=True)

        def work(seed):
            for number in range(200):
                bus.emit(say("n", number=(seed, number)))
                if seed == 0:
                    listen(bus, [])()

        run_in_threads(work, 6)
        assert [tuple(one) for one in second] == first
        for seed in range(6):
            assert [number for of, number in first if of == seed] == list(range(200))
        assert len(first) == 6 * 200

    def test_subscribing_and_cancelling_wait_for_no_callback(self):
        bus, found = Bus(), []

        def others(event):
            thread = threading.Thread(target=lambda: (listen(bus, found), later()))
            thread.start()
            thread.join(30)
            assert not thread.is_alive()
            found.append("changed")

        mine = bus.subscribe(others, plain=False)
        later = listen(bus, found, "later")
        bus.emit(say("a"))
        mine()
        bus.emit(say("b"))
        assert found == ["changed", "b"]


SINKS = """
import soma

@soma.hookimpl
def soma_event_sinks():
    yield soma.EventSinkSpec(name="{name}", target="{module}.cli:{target}", default={default})
"""
BELL = """
class Bell:
    def __init__(self, run_dir):
        self.run_dir = run_dir
    def __call__(self, event):
        print("heard", event.event_type, type(event).__name__, self.run_dir)

class Cracked(Bell):
    def __call__(self, event):
        raise ValueError("no sound")

def refuse(run_dir):
    raise OSError("no\\nroom")

def leave(run_dir):
    raise SystemExit(3)

def nothing(run_dir):
    return None
"""
RING = """
from soma.events import Bus, DefaultSinks, RunCompleted, open_default_sinks

for _ in range(2):
    bus = Bus()
    DefaultSinks(bus)
    bus.emit(RunCompleted(run_id="r", duration=1.0))
    print([name for name, _ in open_default_sinks()], bus.listening)
"""


def write_sink(folder, dist, target, *, default=True, name=None):
    plugin = SINKS.format(
        name=name or dist, module=dist.replace("-", "_"), target=target, default=default
    )
    write_plugin(folder, dist, plugin=plugin, cli=BELL)


class TestSinks:
    def test_default_sinks_hear_events_and_others_do_not(self, tmp_path):
        write_sink(tmp_path, "bell", "Bell")
        write_sink(tmp_path, "asked-for", "Bell", default=False)
        done = run_python(RING, tmp_path)
        assert (
            done.stdout.splitlines()
            == [
                "heard RunCompleted RunCompleted None",
                "['bell'] True",
            ]
            * 2
        )
        assert done.stderr == ""

    def test_without_plugins_nobody_listens(self):
        done = run_python(RING, SOMA_LOAD_PLUGINS="")
        assert (done.stdout, done.stderr) == ("[] False\n" * 2, "")

    def test_what_is_wrong_with_one_is_a_line_and_the_others_go_on(self, tmp_path):
        write_sink(tmp_path, "bell", "Bell")
        write_sink(tmp_path, "no-room", "refuse")
        write_sink(tmp_path, "leaves", "leave")
        write_sink(tmp_path, "nothing", "nothing")
        write_sink(tmp_path, "absent", "absent")
        write_sink(tmp_path, "one", "Bell", name="twice")
        write_sink(tmp_path, "two", "Bell", name="twice")
        done = run_python(RING, tmp_path)
        assert (
            done.stdout.splitlines()
            == [
                "heard RunCompleted RunCompleted None",
                "['bell'] True",
            ]
            * 2
        )
        lines = sorted(done.stderr.splitlines())
        start = "soma: events do not go to the event sink "
        for line, name, why in zip(
            lines,
            ("absent", "leaves", "no-room", "nothing", "twice"),
            (
                "BrokenPackage: The event sink 'absent' comes from absent 1.0, which is",
                "SystemExit: 3",
                "OSError: no room",
                "PluginError: The event sink 'nothing' of nothing 1.0 gave None",
                "NameConflict: The event sink 'twice' is claimed by one 1.0 and two 1.0",
            ),
            strict=True,
        ):
            assert line.startswith(f"{start}{name!r}, and the run goes on: {why}")

    def test_a_sink_that_fails_is_named(self, tmp_path):
        write_sink(tmp_path, "bell", "Cracked")
        done = run_python(RING, tmp_path)
        lines = done.stderr.splitlines()
        assert len(lines) == 2  # one for each bus
        start = (
            "soma: the event sink 'bell' failed at the event 'RunCompleted': ValueError: no sound"
        )
        assert all(line.startswith(start) for line in lines)

    def test_a_sink_that_was_asked_for_raises(self, tmp_path):
        write_sink(tmp_path, "bell", "Bell", default=False)
        write_sink(tmp_path, "no-room", "refuse")
        write_sink(tmp_path, "nothing", "nothing")
        write_sink(tmp_path, "absent", "absent")
        done = run_python(
            """
            from soma.events import RunCompleted, open_sink

            open_sink("bell")(RunCompleted(run_id="r", duration=1.0))
            print(open_sink("bell") is open_sink("bell"))
            for name in ("no-room", "nothing", "absent", "bel"):
                try:
                    open_sink(name)
                except Exception as error:
                    print(type(error).__name__, getattr(error, "__notes__", []))
            """,
            tmp_path,
        )
        assert done.stdout.splitlines() == [
            "heard RunCompleted RunCompleted None",
            "False",
            "OSError [\"Raised while soma opened the event sink 'no-room' of no-room 1.0\"]",
            "PluginError []",
            "BrokenPackage []",
            "UnknownName []",
        ]
        assert done.stderr == ""
