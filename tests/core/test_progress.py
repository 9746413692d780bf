from __future__ import annotations

import io
import subprocess

import pytest

from soma.events.base import UserEvent
from soma.events.board import Board
from soma.events.progress import Progress
from soma.events.runs import (
    BranchTaken,
    LoopCompleted,
    NodeCacheHit,
    NodeCompleted,
    NodeFailed,
    NodeProgress,
    NodeRecomputed,
    NodeStarted,
    RunCompleted,
    RunFailed,
    RunStarted,
)
from soma.events.streams import Quiet
from soma.events.training import EpochCompleted
from support.distributions import run_python
from support.terminals import on_terminal
from support.threads import run_in_threads


def run_started(run_id="r"):
    return RunStarted(run_id=run_id, phase="fit", plan_summary={})


def started(node, what="output", *, passes=(), run_id="r"):
    return NodeStarted(run_id=run_id, node_id=node, what=what, kind="Stateless", passes=passes)


def completed(node, what="output", *, ms=1.0, size=0, passes=(), run_id="r", outcome="computed"):
    return NodeCompleted(
        run_id=run_id,
        node_id=node,
        what=what,
        duration=ms,
        output_summary="",
        outcome=outcome,
        bytes=size,
        passes=passes,
    )


def hit(node, what="output", *, size=0):
    return NodeCacheHit(
        run_id="r", node_id=node, what=what, key="k", tier="Local", load_time=0.1, bytes=size
    )


def failed(node, error):
    return NodeFailed(run_id="r", node_id=node, what="output", error=error)


def shown(*events, phase="fit"):
    stream = io.StringIO()
    with Progress(total_nodes=3, phase=phase, stream=stream) as progress:
        for event in events:
            progress(event)
    return stream.getvalue().splitlines()


# Lines


def test_a_line_for_each_finished_action_and_one_for_the_run():
    events = [
        run_started(),
        started("scaler", "state"),
        NodeProgress(run_id="r", node_id="scaler", progress=0.5),
        completed("scaler", "state", ms=1.2, size=4200),
        hit("scaler", size=10),
        started("step", passes=(1, 3)),
        completed("step", ms=0.008, passes=(1, 3)),
        LoopCompleted(run_id="r", node_id="step", iterations=3, stopped=True),
        BranchTaken(run_id="r", node_id="which", arm="large"),
        NodeRecomputed(run_id="r", node_id="a\nb", message="it was gone"),
        completed("a\nb", ms=2000, outcome="recomputed"),
        EpochCompleted(run_id="r", epoch=2, metrics={"loss": 0.123456, "seen": 7}),
        RunCompleted(run_id="r", duration=1300.0),
    ]
    assert shown(*events) == [
        "soma: fit scaler: computed in 1.2 ms, 4.1 KiB",
        "soma: forward scaler: hit",
        "soma: forward step (pass 1.3): computed in 8 µs",
        r"soma: forward 'a\nb': recomputed in 2.0 s",
        "soma: fit epoch 2, loss 0.1235, seen 7",
        "soma: fit done in 1.3 s: 1 hit, 2 computed, 1 recomputed",
    ]


def test_a_run_that_failed():
    error = "ValueError: too\nlong " + "x" * 300
    lines = shown(failed("step", error), RunFailed(run_id="r", error=error), phase="forward")
    short = ("ValueError: too long " + "x" * 300)[:199] + "…"
    assert lines == [f"soma: forward step: failed: {short}", f"soma: forward failed: {short}"]


def test_a_run_that_did_nothing():
    assert shown(RunCompleted(run_id="r", duration=0.5)) == [
        "soma: fit done in 500 µs: nothing to do"
    ]


def test_only_the_run_that_came_first_counts():
    lines = shown(
        run_started(),
        run_started("inner"),
        completed("a", run_id="inner"),
        RunCompleted(run_id="inner", duration=1.0),
        completed("a"),
        RunCompleted(run_id="r", duration=2.0),
    )
    assert lines == [
        "soma: forward a: computed in 1.0 ms",
        "soma: fit done in 2.0 ms: 1 computed",
    ]


def test_events_of_other_kinds_are_nothing():
    assert shown(UserEvent("mine", {"run_id": 3}), completed("a")) == [
        "soma: forward a: computed in 1.0 ms"
    ]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ValueError])
def test_what_interrupts_the_run_is_said_once(kind):
    def interrupted(stream, event):
        with Progress(total_nodes=1, phase="fit", stream=stream) as progress:
            progress(event)
            raise kind

    def interrupt(event):
        stream = io.StringIO()
        with pytest.raises(kind):
            interrupted(stream, event)
        return stream.getvalue()

    assert interrupt(run_started()) == f"soma: fit stopped: {kind.__name__}\n"
    assert interrupt(RunFailed(run_id="r", error="why")) == "soma: fit failed: why\n"


class Broken(io.StringIO):
    def __init__(self, error):
        super().__init__()
        self.error = error
        self.tries = 0

    def write(self, text):
        self.tries += 1
        raise self.error


def test_a_broken_stream_is_written_to_no_more():
    stream = Broken(BrokenPipeError())
    with Progress(total_nodes=1, phase="fit", stream=stream) as progress:
        progress(completed("a"))
        progress(completed("b"))
    assert stream.tries == 1


def test_closed_streams_and_none_at_all_break_nothing(monkeypatch):
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr("sys.stderr", None)
    for stream in (closed, None):
        with Progress(total_nodes=1, phase="fit", stream=stream) as progress:
            progress(completed("a"))


def test_ctrl_c_while_a_line_is_written_is_not_swallowed():
    with (
        pytest.raises(KeyboardInterrupt),
        Progress(total_nodes=1, phase="fit", stream=Broken(KeyboardInterrupt())) as progress,
    ):
        progress(completed("a"))


def test_a_stream_that_cannot_write_everything_gets_what_it_can():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    with Progress(total_nodes=1, phase="fit", stream=stream) as progress:
        progress(completed("é" * 50, ms=0.008))
    long = r"\xe9" * 19 + "..." + r"\xe9" * 20
    assert raw.getvalue().decode() == f"soma: forward {long}: computed in 8 us\n"


def test_standard_error_is_where_it_goes_as_it_is_then(monkeypatch):
    progress = Progress(total_nodes=1, phase="fit")
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with progress:
        progress(completed("a"))
    assert stream.getvalue() == "soma: forward a: computed in 1.0 ms\n"


def test_events_from_many_threads_are_whole_lines_and_add_up():
    stream = io.StringIO()
    with Progress(total_nodes=8, phase="fit", stream=stream) as progress:

        def work(number):
            for _ in range(200):
                progress(started(f"n{number}"))
                progress(completed(f"n{number}"))

        run_in_threads(work, 8)
        progress(RunCompleted(run_id="r", duration=1.0))
    *lines, last = stream.getvalue().splitlines()
    assert sorted(lines) == sorted(
        f"soma: forward n{number}: computed in 1.0 ms" for number in range(8) for _ in range(200)
    )
    assert last == "soma: fit done in 1.0 ms: 1600 computed"


# What is drawn


def test_where_room_is_short_what_failed_and_what_runs_is_shown_then_the_newest():
    board = Board(clock=lambda: 0.0)
    board.take(failed("bad", "why"))
    board.take(started("slow"))
    for number in range(20):
        board.take(started(f"n{number}"))
        board.take(completed(f"n{number}"))
    board.take(completed("n3"))
    assert [row.node for row in board.snapshot(5).rows] == ["bad", "slow", "n3", "n18", "n19"]
    assert [row.node for row in board.snapshot(1).rows] == ["bad"]
    assert board.snapshot(1).nodes == 22
    assert len(board.snapshot(100).rows) == 22


def test_a_snapshot_does_not_change():
    board = Board(clock=lambda: 0.0)
    board.take(started("a"))
    found = board.snapshot(9)
    board.take(completed("a", size=8))
    assert [(row.running, row.computed, row.sizes) for row in found.rows] == [
        ({("output", ()): 0.0}, 0, {})
    ]


def test_quiet_is_a_terminal_where_its_stream_is():
    assert not Quiet(io.StringIO()).isatty()
    assert not Quiet(None).isatty()


# On terminals

PREAMBLE = """
import os, sys, threading, time
from soma.events.progress import Progress
from soma.events.runs import *

R = dict(run_id="r")

def start(node, what="output"):
    return NodeStarted(**R, node_id=node, what=what, kind="Stateless")

def done(node, what="output", ms=1.2, size=4200):
    return NodeCompleted(
        **R, node_id=node, what=what, duration=ms, output_summary="", bytes=size
    )

def hit(node):
    return NodeCacheHit(**R, node_id=node, what="output", key="k", tier="Local", load_time=0.1)

END = RunCompleted(**R, duration=1300.0)

def left():
    names = [thread.name for thread in threading.enumerate()]
    print("left:", names, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__)
"""


def shown_on_terminal(code, **options):
    with on_terminal(PREAMBLE + code, **options) as terminal:
        assert terminal.end() == 0, terminal.raw
        assert terminal.shows_cursor
        return [line.rstrip() for line in terminal.lines if line.strip()]


def test_a_table_on_a_terminal():
    code = """
with Progress(total_nodes=3, phase="fit") as progress:
    progress(RunStarted(**R, phase="fit", plan_summary={}))
    progress(hit("load"))
    progress(start("scaler", "state"))
    print("from a filter [/x] :smile:")
    time.sleep(0.5)
    progress(done("scaler", "state"))
    progress(LoopCompleted(**R, node_id="loop", iterations=5, stopped=False))
    progress(LoopCompleted(**R, node_id="until", iterations=5, stopped=True))
    print("not ended", end="")
    progress(END)
left()
"""
    assert shown_on_terminal(code) == [
        "from a filter [/x] :smile:",
        "not ended",
        "node                time    bytes",
        "load    hit",
        "scaler  computed  1.2 ms  4.1 KiB",
        "loop                               5 passes",
        "until                              5 passes, stopped",
        "fit done in 1.3 s: 1 hit, 1 computed",
        "left: ['MainThread'] True True",
    ]


def test_while_it_runs_the_table_says_what_runs():
    code = """
with Progress(total_nodes=3, phase="fit") as progress:
    progress(start("scaler", "state"))
    progress(NodeProgress(**R, node_id="scaler", progress=0.45))
    sys.stdin.readline()
    progress(END)
"""
    with on_terminal(PREAMBLE + code) as terminal:
        terminal.read_until("fitting 45%", count=3)  # drawn again although nothing happens
        assert not terminal.shows_cursor
        terminal.read_until("fit: 1 of 3 nodes")
        terminal.press(b"\n")
        assert terminal.end() == 0
        assert terminal.shows_cursor


def test_a_node_that_failed_is_the_last_thing_said_of_it():
    code = """
with Progress(total_nodes=3, phase="forward") as progress:
    progress(done("a"))
    progress(NodeFailed(**R, node_id="b", what="output", error="ValueError: " + "x" * 300))
    progress(RunFailed(**R, error="ValueError: no"))
"""
    lines = shown_on_terminal(code, columns=60)
    assert lines[1:3] == [
        "a     computed  1.2 ms  4.1 KiB",
        "b     failed                     ValueError: xxxxxxxxxxxxxx…",
    ]
    assert lines[3].startswith("forward failed after ")
    assert lines[3].endswith(": ValueError: no")


@pytest.mark.parametrize("rows", [3, 10])
def test_the_table_is_no_higher_than_the_terminal(rows):
    code = """
with Progress(total_nodes=100, phase="fit") as progress:
    for number in range(100):
        progress(done(f"n{number}"))
    time.sleep(0.3)
    progress(END)
"""
    lines = shown_on_terminal(code, rows=rows)
    shown = max(rows - 4, 1)
    assert [line.split()[0] for line in lines[1:-2]] == [f"n{n}" for n in range(100 - shown, 100)]
    assert lines[-2:] == [f"and {100 - shown} more", "fit done in 1.3 s: 100 computed"]


def test_ctrl_c_leaves_the_terminal_clean():
    code = """
try:
    with Progress(total_nodes=1, phase="fit") as progress:
        progress(start("slow"))
        time.sleep(60)
except KeyboardInterrupt:
    left()
"""
    with on_terminal(PREAMBLE + code) as terminal:
        terminal.read_until("running")
        terminal.press(b"\x03")
        assert terminal.end() == 0
        assert terminal.shows_cursor
        *_, stopped, last, _ = terminal.lines
    assert stopped.startswith("fit stopped after ")
    assert stopped.endswith(": KeyboardInterrupt")
    assert last == "left: ['MainThread'] True True"


def test_the_second_at_a_time_writes_lines_and_the_next_draws_again():
    code = """
with Progress(total_nodes=1, phase="fit") as outer:
    outer(start("outer"))
    with Progress(total_nodes=1, phase="forward") as inner:
        inner(done("inner"))
        inner(END)
    time.sleep(0.3)
    outer(done("outer"))
    outer(END)
with Progress(total_nodes=1, phase="fit") as third:
    third(done("third"))
    third(END)
left()
"""
    assert shown_on_terminal(code) == [
        "soma: forward inner: computed in 1.2 ms, 4.1 KiB",
        "soma: forward done in 1.3 s: 1 computed",
        "node               time    bytes",
        "outer  computed  1.2 ms  4.1 KiB",
        "fit done in 1.3 s: 1 computed",
        "node               time    bytes",
        "third  computed  1.2 ms  4.1 KiB",
        "fit done in 1.3 s: 1 computed",
        "left: ['MainThread'] True True",
    ]


def test_what_goes_elsewhere_is_not_drawn_into_the_terminal():
    code = """
with Progress(total_nodes=1, phase="fit") as progress:
    print("to the file")
    progress(done("a"))
    progress(END)
"""
    with on_terminal(PREAMBLE + code, stdout=subprocess.PIPE) as terminal:
        with terminal.process.stdout as stdout:
            assert terminal.end() == 0
            assert stdout.read() == b"to the file\n"
        assert "to the file" not in terminal.raw


def test_a_fork_does_not_draw_and_prints_as_if_there_were_no_table():
    code = """
with Progress(total_nodes=1, phase="fit") as progress:
    progress(start("a"))
    for _ in range(20):
        child = os.fork()
        if not child:
            print("from the fork", flush=True)
            progress(done("b"))
            progress.__exit__(None, None, None)
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    progress(done("a"))
    progress(END)
left()
"""
    with on_terminal(PREAMBLE + code, PYTHONWARNINGS="ignore") as terminal:
        assert terminal.end() == 0, terminal.raw
        assert terminal.raw.count("from the fork") == 20
        assert terminal.lines[-3:-1] == [
            "fit done in 1.3 s: 1 computed",
            "left: ['MainThread'] True True",
        ]


def test_a_terminal_that_goes_away_ends_the_drawing_and_not_the_run():
    code = """
with Progress(total_nodes=1, phase="fit") as progress:
    progress(start("a"))
    try:
        sys.stdin.readline()
    except OSError:
        pass
    time.sleep(0.5)
    progress(done("a"))
    progress(END)
os._exit(0 if threading.active_count() == 1 else 3)
"""
    with on_terminal(PREAMBLE + code) as terminal:
        terminal.read_until("running")
        terminal.hang_up()
        assert terminal.process.wait(60) == 0


@pytest.mark.parametrize("term", ["dumb", "unknown"])
def test_a_terminal_that_cannot_be_drawn_on_gets_lines(term):
    code = """
with Progress(total_nodes=1, phase="fit") as progress:
    progress(done("a"))
"""
    assert shown_on_terminal(code, TERM=term) == ["soma: forward a: computed in 1.2 ms, 4.1 KiB"]


def test_without_rich_there_are_lines_and_one_word_about_it():
    code = """
sys.modules["rich"] = None
for _ in range(2):
    with Progress(total_nodes=1, phase="fit") as progress:
        progress(done("a"))
"""
    said = "soma: forward a: computed in 1.2 ms, 4.1 KiB"
    assert shown_on_terminal(code, columns=100) == [
        "soma: progress is shown as lines; for a table that is kept up to date: pip install rich",
        said,
        said,
    ]


def test_rich_is_imported_for_a_table_only():
    done = run_python(
        """
        import sys
        from soma.events.progress import Progress
        with Progress(total_nodes=1, phase="fit"):
            pass
        print([name for name in sys.modules if name.partition(".")[0] == "rich"])
        """
    )
    assert done.stdout == "[]\n", done.stderr
