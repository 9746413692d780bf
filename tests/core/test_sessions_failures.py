"""Exceptions on their way home from another process: type, text, notes, cause, traceback."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from soma.engine.blobs import Blob
from soma.errors import NotFittedError, RemoteError, SessionCancelled
from soma.sessions import failures
from soma.sessions.child.guard import Cancelled
from soma.sessions.failures import pack_error, raise_error
from soma.sessions.incoming import read_fields, write_fields
from soma.sessions.wire import Message


class OddInit(Exception):
    """Its constructor takes something else than ``args`` has."""

    def __init__(self, code, what):
        super().__init__(f"{code}: {what}")
        self.code = code


class KeepsLock(ValueError):
    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()


class NoText(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Frozen(Exception):
    def __setattr__(self, name, value):
        raise AttributeError("frozen")

    def add_note(self, note):
        raise AttributeError("frozen")


class Liar(Exception):
    def __reduce__(self):
        return ValueError, ("another",)


class Empty(Exception):
    def __bool__(self):
        raise RuntimeError("neither")


def caught(raiser):
    try:
        raiser()
    except BaseException as error:  # noqa: BLE001  # whatever it is
        return error
    raise AssertionError("nothing was raised")


def sent(error):
    """Return what arrives at the other side."""
    fields, blobs = pack_error(error)
    again = read_fields(write_fields(["failed", fields, []]))[1]
    message = Message("failed", again, [Blob(*one.frame()) for one in blobs])
    return caught(lambda: raise_error(message, "local-1, pid 7"))


def raising(error, cause=None):
    def fail():
        raise error from cause

    return caught(fail)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a text"),
        KeyError("missing"),
        OSError(2, "No such file", "name"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        SystemExit(3),
        KeyboardInterrupt(),
        StopIteration(5),
        AssertionError(),
        ValueError(),
        MemoryError("much"),
        ImportError("no", name="x", path="y"),
        NotFittedError("forward before fit"),
        ValueError("half of a pair \ud800"),
        ValueError(10**400),
    ],
)
def test_type_args_and_attributes_arrive(error):
    found = sent(raising(error))
    assert type(found) is type(error)
    assert found.args == error.args
    named = ("errno", "filename", "code", "value", "name", "start")
    assert [getattr(found, one, None) for one in named] == [
        getattr(error, one, None) for one in named
    ]


def test_a_class_with_another_constructor_arrives_as_itself():
    found = sent(raising(OddInit(7, "broken")))
    assert type(found) is OddInit
    assert (str(found), found.code) == ("7: broken", 7)


def test_what_cannot_be_pickled_is_named():
    found = sent(raising(KeepsLock("it is locked")))
    assert type(found) is RemoteError
    assert str(found) == f"{KeepsLock.__module__}.KeepsLock: it is locked"


def test_a_class_that_pickles_as_another_arrives_as_itself():
    found = sent(raising(Liar("me")))
    assert (type(found), found.args) == (Liar, ("me",))


def test_without_a_text():
    found = sent(raising(NoText()))
    assert type(found) is NoText
    assert "remote traceback (local-1, pid 7)" in found.__notes__[0]


def test_one_that_refuses_notes_arrives_without():
    found = sent(raising(Frozen("cold")))
    assert (type(found), str(found)) == (Frozen, "cold")


def test_one_that_is_neither_true_nor_false():
    assert type(sent(raising(Empty("x"), ValueError("cause")))) is Empty


def test_a_local_class_arrives_as_itself():
    class Local(Exception):
        pass

    assert type(sent(raising(Local("here")))) is Local


def test_a_pickle_that_cannot_be_read_here_names_the_type():
    fields, blobs = pack_error(raising(ValueError("text")))
    message = Message("failed", fields, [Blob(b"rubbish", ()) for _ in blobs])
    found = caught(lambda: raise_error(message, "there"))
    assert (type(found), str(found)) == (RemoteError, "ValueError: text")


def test_notes_come_first_and_once():
    error = ValueError("text")
    error.add_note("in node 'a'")
    found = sent(raising(error))
    assert found.__notes__[0] == "in node 'a'"
    assert len(found.__notes__) == 2
    assert found.__notes__[1].startswith("remote traceback (local-1, pid 7):\nTraceback")
    assert "in node 'a'" not in found.__notes__[1]


def test_notes_of_what_cannot_travel():
    error = KeepsLock("text")
    error.add_note("in node 'a'")
    assert sent(raising(error)).__notes__[0] == "in node 'a'"


def test_the_traceback_shows_the_code_of_the_user():
    note = sent(raising(ValueError("text"))).__notes__[-1]
    assert "test_sessions_failures.py" in note
    assert "in fail" in note
    assert note.endswith("ValueError: text")


def test_the_traceback_leaves_out_frames_of_soma():
    from soma import Graph

    def wrong(x):
        raise ValueError("in the node")

    g = Graph(cache="off")
    g.node("wrong", wrong)
    note = sent(caught(lambda: g.forward(1))).__notes__[-1]
    assert "in wrong" in note
    assert "soma-core" not in note


def test_an_endless_traceback_is_cut():
    def deep(n):
        if n == 0:
            raise ValueError("x" * 300_000)
        deep(n - 1)

    note = sent(caught(lambda: deep(3))).__notes__[-1]
    assert len(note) < 101_000
    assert "[...]" in note


def test_causes_travel():
    error = raising(ValueError("third"), raising(OddInit(1, "second"), KeepsLock("first")))
    found = sent(error)
    assert type(found.__cause__) is OddInit
    assert str(found.__cause__.__cause__) == f"{KeepsLock.__module__}.KeepsLock: first"
    assert found.__cause__.__cause__.__cause__ is None
    assert "direct cause" in found.__notes__[-1]


def test_causes_that_go_round():
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    found = sent(one)
    assert str(found.__cause__) == "other"
    assert found.__cause__.__cause__ is None


def test_what_it_was_raised_in_is_told():
    def fail():
        try:
            {}["first"]
        except KeyError:
            raise ValueError("second")  # noqa: B904  # the context is what is tested

    found = sent(caught(fail))
    assert "KeyError: 'first'" in found.__notes__[-1]


def test_groups():
    group = ExceptionGroup("several", [ValueError("one"), TypeError("two")])
    found = sent(raising(group))
    assert type(found) is ExceptionGroup
    assert [repr(one) for one in found.exceptions] == ["ValueError('one')", "TypeError('two')"]


def test_cancelled():
    found = sent(raising(Cancelled("stop")))
    assert type(found) is SessionCancelled
    assert str(found) == "The call was cancelled (local-1, pid 7)"


def test_what_is_raised_while_it_is_cancelled():
    def fail():
        try:
            raise Cancelled("stop")
        finally:
            raise ValueError("in the finally")

    assert type(sent(caught(fail))) is SessionCancelled


class Exits(Exception):
    def __str__(self):
        raise SystemExit(4)

    __repr__ = __str__


class ReducesToExit(Exception):
    def __reduce__(self):
        raise SystemExit(9)


class RaisesContext(Exception):
    @property
    def __context__(self):
        raise RuntimeError("no context")

    @property
    def __cause__(self):
        raise RuntimeError("no cause")


class Nameless(type):
    def __getattribute__(cls, name):
        if name in {"__module__", "__qualname__", "__name__"}:
            raise RuntimeError("no name")
        return super().__getattribute__(name)


class OfNameless(Exception, metaclass=Nameless):
    pass


@dataclass(frozen=True)
class FrozenData(Exception):
    number: int


def test_texts_and_pickles_that_leave_the_process_do_not():
    found = sent(raising(Exits()))
    assert type(found) is Exits
    found = sent(raising(ReducesToExit("r")))
    assert (type(found), found.args) == (ReducesToExit, ("r",))


def test_properties_that_raise_hide_no_exception():
    found = sent(raising(RaisesContext("c")))
    assert (type(found), found.args) == (RaisesContext, ("c",))


def test_a_class_that_does_not_say_its_name_is_told_of():
    found = sent(raising(OfNameless("m")))
    assert type(found) is RemoteError
    assert "OfNameless" in str(found)


def test_whatever_fails_something_is_told(monkeypatch):
    def fail(error):
        raise SystemExit(5)

    monkeypatch.setattr(failures, "_packed", fail)
    found = sent(raising(ValueError("v")))
    assert type(found) is RemoteError
    assert str(found) == "ValueError"


def test_a_frozen_dataclass_comes_as_it_is():
    found = sent(raising(FrozenData(3), ZeroDivisionError("zero")))
    assert (type(found), found.number, found.args) == (FrozenData, 3, (3,))
    assert type(found.__cause__) is ZeroDivisionError
    assert [note.startswith("remote traceback (local-1, pid 7)") for note in found.__notes__] == [
        True
    ]


def test_a_long_note_is_cut_and_of_many_the_first_come():
    error = ValueError("v")
    error.add_note("n" * 1_000_000)
    for number in range(500):
        error.add_note(f"note {number}")
    notes = pack_error(raising(error))[0]["errors"][0]["notes"]
    assert len(notes[0]) < 110_000
    assert notes[0].startswith("n")
    assert "[...]" in notes[0]
    assert notes[1] == "note 0"
    assert notes[-1] == "[401 more notes]"
    assert len(notes) == 101


def test_notes_that_are_a_text_are_one_note():
    error = ValueError("v")
    error.__notes__ = "text"
    found = sent(raising(error))
    assert found.__notes__[0] == "text"
    assert len(found.__notes__) == 2


def test_a_group_keeps_those_that_can_travel():
    inner = ExceptionGroup("inner", [KeepsLock("l"), KeyError("k")])
    group = ExceptionGroup("outer", [ValueError("v"), OddInit(7, "odd"), inner, FrozenData(3)])
    group.add_note("of the group")
    found = sent(raising(group, KeyError("root")))
    assert type(found) is ExceptionGroup
    assert str(found) == "outer (4 sub-exceptions)"
    value, odd, again, frozen = found.exceptions
    assert (type(value), value.args) == (ValueError, ("v",))
    assert (type(odd), odd.code, str(odd)) == (OddInit, 7, "7: odd")
    assert (type(frozen), frozen.number) == (FrozenData, 3)
    assert type(again) is ExceptionGroup
    assert [type(one) for one in again.exceptions] == [RemoteError, KeyError]
    assert "KeepsLock: l" in str(again.exceptions[0])
    assert type(found.__cause__) is KeyError
    assert found.__notes__[0] == "of the group"
