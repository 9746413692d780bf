"""Events of processes that are interrupted or killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from time import sleep

import pytest

from support.signals import hear_ctrl_c

pytestmark = pytest.mark.e2e

PROGRAM = """
    import json, sys, threading, time
    from soma import Filter, Graph

    class Quick(Filter):
        def forward(self, x, state):
            time.sleep(0.01)
            return x + 1

    class Sleeps(Filter):
        def forward(self, x, state):
            print("started", flush=True)
            time.sleep(60)
            return x

    class Naps(Filter):
        def forward(self, x, state):
            print("started", flush=True)
            time.sleep(1.5)
            return x

    class Turns(Filter):
        def forward(self, x, state):
            if x == 50:
                print("started", flush=True)
            time.sleep(0.001)
            return x + 1

    log = open(sys.argv[1], "a")

    def write(event):
        log.write(json.dumps(event) + "\\n")
        log.flush()

    def listened(graph):
        graph.on_event(write)
        return graph
"""


def start(code, log):
    text = textwrap.dedent(PROGRAM) + textwrap.dedent(code)
    return subprocess.Popen(
        [sys.executable, "-c", text, str(log)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,  # noqa: PLW1509  # it takes no lock
    )


def ended_by(process, signal_):
    """Send a signal until the process ends, and return what it wrote to stderr.

    Once is enough but for once in some hundred times: a KeyboardInterrupt that comes up where cbor2
    asks ``isinstance`` of an abstract class is printed there as ignored, and is gone.
    """
    for _ in range(5):
        process.send_signal(signal_)
        try:
            return process.communicate(timeout=15)[1]
        except subprocess.TimeoutExpired as expired:
            if signal_ != signal.SIGINT or b"Exception ignored in" not in (expired.stderr or b""):
                raise
    raise AssertionError(f"{signal_} did not end it")


def stop(code, log, *, by):
    """Run until user code has started, stop it; return what was written, and the exit code."""
    process = start(code, log)
    try:
        assert process.stdout.readline() == "started\n"
        sleep(0.3)  # a signal between printing and sleeping is seen only after the sleep
        err = ended_by(process, by)
    finally:
        process.kill()
        process.wait(60)
    text = log.read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()], process.returncode, err


@pytest.mark.parametrize("cache", ["memory", "off"])
@pytest.mark.parametrize(
    "expression", ["Quick() >> Sleeps() >> Quick()", "Quick() >> (Sleeps() | Quick())"]
)
def test_ctrl_c_is_the_end_of_a_run(tmp_path, expression, cache):
    code = f'\nlistened(Graph.somatize({expression}, cache="{cache}")).forward(1)\n'
    events, code, err = stop(code, tmp_path / "log", by=signal.SIGINT)
    assert code in (130, -signal.SIGINT)
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert events[0]["event_type"] == "RunStarted"
    (run_id,) = {event["run_id"] for event in events}
    assert events[-1] == {"event_type": "RunFailed", "run_id": run_id, "error": "KeyboardInterrupt"}
    if "|" not in expression:
        assert events[-2]["event_type"] == "NodeFailed"
        assert events[-2]["node_id"] == "sleeps"
        assert events[-2]["error"] == "KeyboardInterrupt"
    started = [event["node_id"] for event in events if event["event_type"] == "NodeStarted"]
    assert sorted(started)[:2] == ["quick", "quick_2"] if "|" in expression else ["quick", "sleeps"]


def test_ctrl_c_in_a_loop(tmp_path):
    code = """
    graph = listened(Graph(cache="memory"))
    graph.loop("l", Turns(), False, 100_000)
    graph.forward(0)
    """
    events, code, _ = stop(code, tmp_path / "log", by=signal.SIGINT)
    assert code == -signal.SIGINT
    assert events[-1]["event_type"] == "RunFailed"
    assert events[-1]["error"] == "KeyboardInterrupt"
    passes = [event["passes"] for event in events if event["event_type"] == "NodeStarted"]
    assert len(passes) > 50
    assert passes == [[number] for number in range(1, len(passes) + 1)]


def test_a_program_that_goes_on_hears_nothing_of_the_run_it_left(tmp_path):
    code = """
    graph = listened(Graph.somatize(Quick() >> (Naps() | Quick()) >> Quick(), cache="memory"))
    try:
        graph.forward(1, run_id="left")
    except KeyboardInterrupt:
        time.sleep(2)
    for thread in threading.enumerate():
        if thread.name.startswith("soma-"):
            thread.join(30)
    again = listened(Graph.somatize(Quick(), cache="memory"))
    print(again.forward(1, run_id="next"), flush=True)
    """
    events, code, err = stop(code, tmp_path / "log", by=signal.SIGINT)
    assert (code, err) == (0, "")
    left = [event for event in events if event["run_id"] == "left"]
    assert left[-1]["event_type"] == "RunFailed"
    assert events[: len(left)] == left
    assert "naps" not in {
        event["node_id"] for event in left if event["event_type"] == "NodeCompleted"
    }
    assert [event["event_type"] for event in events[len(left) :]] == [
        "RunStarted",
        "NodeCacheMiss",
        "NodeStarted",
        "NodeCompleted",
        "RunCompleted",
    ]


@pytest.mark.parametrize("cache", ["memory", "off"])
def test_what_was_told_before_a_kill_is_whole(tmp_path, cache):
    code = f"""
    graph = listened(Graph(cache="{cache}"))
    graph.loop("l", Turns(), False, 100_000)
    graph.forward(0)
    """
    events, code, _ = stop(code, tmp_path / "log", by=signal.SIGKILL)
    assert code == -signal.SIGKILL
    kinds = [event["event_type"] for event in events]
    assert kinds[0] == "RunStarted"
    assert not {"RunCompleted", "RunFailed"}.intersection(kinds)
    turn = ["NodeStarted", "NodeCompleted"]
    if cache == "memory":
        turn = ["NodeCacheMiss", *turn]
    assert kinds[1:] == (turn * len(kinds))[: len(kinds) - 1]
    passes = [event["passes"][0] for event in events if event["event_type"] == "NodeCompleted"]
    assert len(passes) >= 50
    assert passes == list(range(1, len(passes) + 1))


def test_progress_of_a_run_that_is_interrupted(tmp_path):
    (tmp_path / "log").write_text("\n")
    code = """
    Graph.somatize(Quick() >> Sleeps(), cache="memory").forward(1, progress=True)
    """
    process = start(code, tmp_path / "log")
    try:
        assert process.stdout.readline() == "started\n"
        sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait(60)
    lines = [line for line in err.splitlines() if line.startswith("soma: ")]
    assert lines[0].startswith("soma: forward quick: computed in ")
    assert lines[1:] == [
        "soma: forward sleeps: failed: KeyboardInterrupt",
        "soma: forward failed: KeyboardInterrupt",
    ]
