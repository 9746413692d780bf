"""Claims that other processes see, with a stand-in for the locks between them."""

from __future__ import annotations

import os
import sys
import threading
from types import SimpleNamespace

import pytest

from soma import _notices
from soma.engine import claims as room
from soma.engine import guarded, node_keys
from soma.engine.claims import Claims, claim_at_once, leave_claims
from soma.engine.guarded import GuardedStore
from soma.engine.run import Run
from soma.sessions.child import impatient
from support.threads import run_in_threads


class Locks:
    """Locks as another process sees them: what is ours, and what is somebody else's."""

    def __init__(self):
        self.ours, self.others, self.asked = set(), set(), []
        self.refused = threading.Event()

    def lock(self, key):
        self.asked.append(key)
        if key in self.others:
            self.refused.set()
            return False
        self.ours.add(key)
        return True

    def unlock(self, key):
        self.ours.discard(key)

    def holder(self, key):
        return "process 1234" if key in self.others else ""


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch):
    monkeypatch.setattr(_notices, "_told", set())


def in_thread(work):
    """Start a thread; return how to wait for its end."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def ends():
        thread.join(30)
        assert not thread.is_alive()

    return ends


def is_free(claims, key):
    claim = claims.attempt(key, "the test")
    if claim is not None:
        claim.__exit__(None, None, None)
    return claim is not None


def test_a_claim_is_a_lock_for_other_processes_as_long_as_it_is_held():
    locks = Locks()
    claims = Claims(locks)
    with claims.claim("k"):
        assert locks.ours == {"k"}
        with claims.claim("l"):
            assert locks.ours == {"k", "l"}
    assert locks.ours == set()


def test_what_another_process_holds_is_waited_for():
    locks, done = Locks(), []
    locks.others.add("k")
    claims = Claims(locks)

    def wait():
        with claims.claim("k"):
            done.append(set(locks.ours))

    ends = in_thread(wait)
    assert locks.refused.wait(30)
    with claims.claim("other"):  # who waits keeps nobody else in the process from anything
        assert done == []
    locks.others.clear()
    ends()
    assert done == [{"k"}]
    assert locks.ours == set()


def test_many_threads_wait_for_another_process_and_then_for_each_other():
    locks, inside, most = Locks(), [], []
    locks.others.add("k")
    claims = Claims(locks)

    def work(number):
        if number == 0:
            assert locks.refused.wait(30)
            locks.others.clear()
            return
        with claims.claim("k"):
            inside.append(number)
            most.append(len(inside))
            inside.remove(number)

    run_in_threads(work, 7)
    assert most == [1] * 6
    assert locks.ours == set()


def test_who_holds_a_claim_waits_for_no_process():
    locks = Locks()
    locks.others.add("b")
    claims = Claims(locks)
    with claims.claim("a"):
        with claims.claim("b"):
            assert locks.ours == {"a"}
        assert locks.ours == {"a"}
        assert locks.asked == ["a", "b"]


def test_a_key_that_a_thread_of_this_process_holds_is_not_asked_for():
    locks = Locks()
    claims = Claims(locks)
    with claims.claim("k"):
        assert claims.attempt("k", "another") is None
        with claims.claim("k"):
            pass
        assert locks.ours == {"k"}
    assert locks.asked == ["k"]


def test_an_attempt_takes_the_lock_or_nothing():
    locks = Locks()
    locks.others.add("b")
    claims = Claims(locks)
    assert claims.attempt("b", "who") is None
    locks.others.clear()
    claim = claims.attempt("b", "who")
    assert locks.ours == {"b"}
    assert not claims.held_here()  # it is no thread's
    claim.__exit__(None, None, None)
    assert locks.ours == set()
    with claims.claim("b"):
        assert claims.held_here()
    assert not claims.held_here()


def test_a_thread_lets_go_of_all_its_claims_for_other_processes_too():
    locks = Locks()
    claims = Claims(locks)
    other = claims.attempt("c", "another thread's")
    with claims.claim("a"), claims.claim("b"):
        leave_claims()
        assert locks.ours == {"c"}
        assert not claims.held_here()
    other.__exit__(None, None, None)
    assert locks.ours == set()


def test_a_claim_that_is_let_go_from_outside_unlocks_once():
    """Leaving it again must not unlock what somebody else has locked meanwhile."""
    locks = Locks()
    claims = Claims(locks)
    held, go_on = threading.Event(), threading.Event()
    claim = claims.claim("k")

    def abandoned():
        with claim:
            held.set()
            assert go_on.wait(30)

    ends = in_thread(abandoned)
    assert held.wait(30)
    claim.__exit__(None, None, None)
    assert locks.ours == set()
    with claims.claim("k"):
        go_on.set()
        ends()
        assert locks.ours == {"k"}
    assert locks.ours == set()


def test_an_interrupt_while_locking_leaves_nothing_locked():
    class Interrupted(Locks):
        def lock(self, key):
            super().lock(key)
            raise KeyboardInterrupt

    locks = Interrupted()
    claims = Claims(locks)
    with pytest.raises(KeyboardInterrupt), claims.claim("k"):
        raise AssertionError
    assert locks.ours == set()
    with pytest.raises(KeyboardInterrupt):
        claims.attempt("k", "who")
    assert locks.ours == set()
    locks.lock = lambda key: True
    assert is_free(claims, "k")


@pytest.mark.parametrize("after", [False, True])
def test_an_interrupt_while_unlocking_leaves_nothing_locked(after):
    class Interrupted(Locks):
        times = 1

        def unlock(self, key):
            if after:
                super().unlock(key)
            if self.times:
                self.times -= 1
                raise KeyboardInterrupt
            super().unlock(key)

    locks = Interrupted()
    claims = Claims(locks)
    with pytest.raises(KeyboardInterrupt), claims.claim("k"):
        pass
    assert locks.ours == set()
    assert is_free(claims, "k")


def test_an_interrupt_while_waiting_leaves_nothing_held(monkeypatch):
    locks = Locks()
    locks.others.add("k")
    claims = Claims(locks)

    def interrupted(timeout):
        raise KeyboardInterrupt

    monkeypatch.setattr(claims._changed, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt), claims.claim("k"):
        raise AssertionError
    locks.others.clear()
    assert is_free(claims, "k")
    assert locks.ours == set()


def test_an_error_that_is_no_failing_lock_is_raised_and_holds_nothing():
    class Picky(Locks):
        def lock(self, key):
            raise ValueError("no key of ours")

        unlock = lock

    claims = Claims(Picky())
    for _ in range(2):
        with pytest.raises(ValueError, match="no key of ours"), claims.claim("k"):
            raise AssertionError
    assert not claims.held_here()


def test_without_working_locks_threads_still_wait_for_each_other_and_it_is_said_once(capsys):
    class Broken:
        def lock(self, key):
            raise OSError(37, "No locks available")

        unlock = holder = lock

    claims, inside, most = Claims(Broken()), [], []

    def work(number):
        for _ in range(20):
            with claims.claim("k"):
                inside.append(number)
                most.append(len(inside))
                inside.remove(number)

    run_in_threads(work, 4)
    assert most == [1] * 80
    assert capsys.readouterr().err == (
        "soma: processes cannot see what others compute, and may compute the same: "
        "OSError: [Errno 37] No locks available\n"
    )


def test_a_lock_that_cannot_be_given_back_is_given_back_to_the_threads(capsys):
    class Broken(Locks):
        def unlock(self, key):
            raise OSError(5, "Input/output error")

    claims = Claims(Broken())
    for _ in range(2):
        with claims.claim("k"):
            pass
    assert is_free(claims, "k")
    assert capsys.readouterr().err.count("Input/output error") == 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_waiter_says_which_process_it_waits_for(monkeypatch, capsys, fails):
    locks, lines, told = Locks(), [], threading.Event()
    locks.others.add("k")
    names = iter(["", OSError(5, "holder") if fails else "", "process 77", "process 78"])

    def holder(key):
        found = next(names)
        if isinstance(found, OSError):
            raise found
        return found

    def tell(line):
        lines.append(line)
        told.set()

    locks.holder = holder
    monkeypatch.setattr(room, "TELL_AFTER_S", 0.0)
    monkeypatch.setattr(room, "tell", tell)
    claims = Claims(locks)

    def wait():
        with claims.claim("k"):
            pass

    ends = in_thread(wait)
    assert told.wait(30)
    locks.others.clear()
    ends()
    assert lines == ["waiting for process 77, which computes the same"]
    assert capsys.readouterr().err.count("holder") == (1 if fails else 0)


def test_threads_never_unlock_what_another_has_locked():
    class Strict(Locks):
        """Fails where a lock is taken twice, or given back by who has not taken it."""

        def __init__(self):
            super().__init__()
            self.by, self.wrong = {}, []

        def lock(self, key):
            if key in self.by:
                self.wrong.append(("taken twice", key))
            self.by[key] = threading.get_ident()
            return True

        def unlock(self, key):
            if self.by.pop(key, None) != threading.get_ident():
                self.wrong.append(("not taken", key))

    locks = Strict()
    claims = Claims(locks)
    interval = sys.getswitchinterval()

    def work(number):
        for turn in range(200):
            with claims.claim(f"k{(number + turn) % 2}"):
                pass

    sys.setswitchinterval(1e-6)
    try:
        run_in_threads(work, 6)
    finally:
        sys.setswitchinterval(interval)
    assert locks.wrong == []
    assert locks.by == {}


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_holds_nothing_and_can_claim():
    """Even one that is made while another thread is in the middle of claiming."""
    inside, go_on = threading.Event(), threading.Event()

    class Slow(Locks):
        def lock(self, key):
            if not inside.is_set():
                inside.set()
                assert go_on.wait(30)
            return super().lock(key)

    locks = Slow()
    claims = Claims(locks)

    def hold():
        with claims.claim("k"):
            pass

    ends = in_thread(hold)
    assert inside.wait(30)
    child = os.fork()
    if child == 0:
        free = False
        try:
            free = is_free(claims, "k") and not claims.held_here()
        finally:
            os._exit(0 if free else 1)
    go_on.set()
    ends()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# Ctrl-C at any point


class Interrupter:
    """Raises KeyboardInterrupt before the instruction with a number, in the code that is given."""

    def __init__(self, *traced):
        self.traced = traced
        self.left, self.raised = 0, False

    def after(self, count, work):
        """Do ``work``, and raise after so many instructions; say whether there were so many."""
        self.left, self.raised = count, False
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            work()
        except KeyboardInterrupt:
            assert self.raised
        finally:
            sys.settrace(before)
        return self.raised

    def _enter(self, frame, event, arg):
        code = frame.f_code
        if not any(one in (code, code.co_filename) for one in self.traced):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame, event, arg):
        if event == "opcode" and not self.raised:
            self.left -= 1
            if self.left < 0:
                self.raised = True
                raise KeyboardInterrupt
        return self._step


class Reluctant(Locks):
    """Gives a lock at the second time only, so that it is waited for."""

    def lock(self, key):
        if self.asked:
            return super().lock(key)
        self.asked.append(key)
        return False


def run_that_claims(claims):
    """Return what a claim of a node needs of a run."""
    return SimpleNamespace(
        cache=GuardedStore(claims, None),
        claims=set(),
        check_stopped=lambda: None,
        announcer=SimpleNamespace(leave=lambda: None),
        placement=None,
    )


HERE = tuple(one.__file__ for one in (room, node_keys, guarded))


@pytest.mark.parametrize("locks", [Locks, Reluctant])
def test_an_interrupt_anywhere_leaves_nothing_held_once_the_run_is_abandoned(locks):
    interrupter, count = Interrupter(*HERE), 0
    while True:
        across = locks()
        claims = Claims(across)
        run = run_that_claims(claims)

        def work(run=run):
            with node_keys.Claimed(run, node_keys.NodeKey("k", None, recorded=True)):
                pass

        raised = interrupter.after(count, work)
        Run.abandon(run)
        assert (claims._held, across.ours) == ({}, set()), count
        if not raised:
            break
        count += 1
    assert count > 100
    assert run.claims == set()


@pytest.mark.parametrize("locks", [Locks, Reluctant])
def test_an_interrupt_anywhere_in_a_claim_leaves_nothing_held_when_it_is_left_again(locks):
    interrupter, count, raised = Interrupter(room.__file__), 0, True
    while raised:
        across = locks()
        claims = Claims(across)
        claim = claims.claim("k")

        def work(claim=claim):
            with claim:
                pass

        raised = interrupter.after(count, work)
        claim.__exit__(None, None, None)
        assert (claims._held, across.ours) == ({}, set()), count
        count += 1
    assert count > 100


def test_an_interrupt_anywhere_leaves_a_claim_that_was_taken_at_once_in_the_list():
    """The code of the store itself sees to its own, as that of a claim does."""
    interrupter, count, raised = Interrupter(claim_at_once.__code__), 0, True
    while raised:
        across, held = Locks(), []
        claims = Claims(across)
        store = SimpleNamespace(try_claim=claims.attempt)
        raised = interrupter.after(count, lambda s=store, h=held: claim_at_once(s, "k", "me", h))
        assert list(claims._held.values()) == held, count
        count += 1
    assert count > 10
    assert across.ours == {"k"}


def test_an_interrupt_anywhere_in_an_impatient_claim_leaves_nothing_held():
    traced = (impatient.__file__, node_keys.__file__, guarded.__file__, claim_at_once.__code__)
    interrupter, count, raised = Interrupter(*traced), 0, True
    while raised:
        across = Locks()
        claims = Claims(across)
        store = SimpleNamespace(try_claim=claims.attempt)
        run = run_that_claims(impatient.Impatient(store, "me"))

        def work(run=run):
            with node_keys.Claimed(run, node_keys.NodeKey("k", None, recorded=True)):
                pass

        raised = interrupter.after(count, work)
        Run.abandon(run)
        assert (claims._held, across.ours) == ({}, set()), count
        count += 1
    assert count > 100


# Notices


class Unread:
    """A stderr that nobody reads: who writes there stands still until ``read`` is set."""

    def __init__(self):
        self.reached, self.read = threading.Event(), threading.Event()

    def write(self, text):
        self.reached.set()
        assert self.read.wait(30)

    def flush(self):
        pass


class BrokenTo:
    """Locks, one of whose methods fails."""

    def __init__(self, fails):
        self.fails = fails

    def _do(self, what):
        if what == self.fails:
            raise OSError(37, "No locks available")

    def lock(self, key):
        self._do("lock")
        return not (self.fails == "holder" and key == "k")

    def unlock(self, key):
        self._do("unlock")

    def holder(self, key):
        self._do("holder")


@pytest.mark.parametrize("fails", ["lock", "unlock", "holder", "attempt", "leave", "waits"])
def test_what_is_told_keeps_nobody_else_from_claiming(monkeypatch, fails):
    stderr = Unread()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(room, "TELL_AFTER_S", 0.0)
    broken = BrokenTo({"attempt": "lock", "leave": "unlock"}.get(fails, fails))
    claims = Claims(broken)
    over = threading.Event()
    holder = claims.attempt("k", "process 77") if fails == "waits" else None

    def tells():
        if fails == "attempt":
            claims.attempt("k", "who")
        elif fails == "leave":
            claims.claim("k").__enter__()
            leave_claims()
        else:
            with claims.claim("k"):
                pass
        over.set()

    threading.Thread(target=tells, daemon=True).start()
    assert stderr.reached.wait(30)
    assert not over.is_set()
    done = []

    def claim():
        with claims.claim("other"):
            done.append(claims.held_here())

    in_thread(claim)()  # fails where it is not through in time
    assert done == [True]
    broken.fails = ""
    if holder is not None:
        holder.__exit__(None, None, None)
    stderr.read.set()
    assert over.wait(30)
