"""Workers of real scripts: Ctrl-C, kill -9 of either side, scripts without a main guard, forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from support.signals import hear_ctrl_c

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
LIMIT_S = 90
SCRIPT = """
import os, sys, time
import numpy as np
from soma import Filter, Graph, SessionLost

print("script", flush=True)

class Waits(Filter):
    def __init__(self, how, folder):
        self.how, self._folder = how, folder
    def forward(self, x, state):
        with open(os.path.join(self._folder, "pid.part"), "w") as file:
            file.write(str(os.getpid()))
        os.replace(os.path.join(self._folder, "pid.part"), os.path.join(self._folder, "pid"))
        if os.path.exists(os.path.join(self._folder, "quick")):
            return x * 2
        until = time.monotonic() + 60
        if self.how == "sleeps":
            time.sleep(60)
        elif self.how == "spins":
            while time.monotonic() < until:
                pass
        elif self.how == "holds":  # one call in C, which holds the interpreter
            import ctypes
            ctypes.PyDLL(None).sleep(60)
        return x * 2

g = Graph(cache="memory")
g.node("waits", Waits(sys.argv[1], sys.argv[2]))
g.add_worker("local://")
"""


def start(code, *arguments, folder):
    path = folder / "script.py"
    path.write_text(SCRIPT + textwrap.dedent(code))
    return subprocess.Popen(
        [sys.executable, str(path), *map(str, arguments), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,  # noqa: PLW1509  # it takes no lock
    )


def wait_for(condition):
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise TimeoutError


def child_of(folder):
    path = folder / "pid"
    return int(wait_for(lambda: path.exists() and path.read_text()))


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def ended(process):
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
        process.communicate()
    return process.returncode, out.splitlines(), err


@pytest.mark.parametrize("how", ["sleeps", "spins", "holds"])
def test_ctrl_c_interrupts_at_once_and_the_next_call_works(tmp_path, how):
    process = start(
        """
        try:
            g.forward(np.arange(3))
        except KeyboardInterrupt:
            print("raised", flush=True)
        open(os.path.join(sys.argv[2], "quick"), "w").close()
        print(g.forward(np.arange(3)).tolist(), flush=True)
        """,
        how,
        folder=tmp_path,
    )
    try:
        pid = child_of(tmp_path)
        time.sleep(0.5)  # a signal between the file and the sleep is seen only after the sleep
        pressed = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "script\n"
        assert process.stdout.readline() == "raised\n"
        raised_s = time.monotonic() - pressed
        code, out, err = ended(process)
    finally:
        process.kill()
        process.communicate()
    assert (code, out) == (0, ["[0, 2, 4]"]), err
    assert raised_s < 10
    wait_for(lambda: is_gone(pid))


@pytest.mark.parametrize("how", ["sleeps", "spins", "holds"])
def test_a_parent_that_is_killed_leaves_no_child(tmp_path, how):
    process = start("g.forward(1)", how, folder=tmp_path)
    try:
        pid = child_of(tmp_path)
        assert not is_gone(pid)
    finally:
        process.kill()
        process.communicate(timeout=LIMIT_S)
    wait_for(lambda: is_gone(pid))


def test_a_child_that_is_killed_costs_the_node_that_it_was_in(tmp_path):
    process = start(
        """
        class Counts(Filter):
            def fit(self, x, y=None):
                return {"n": len(x)}
            def forward(self, x, state):
                return x + state["n"]
        class Learns(Waits):
            def fit(self, x, y=None):
                return {"sum": int(self.forward(x, None).sum())}
        g = Graph(cache="memory")
        g.node("counts", Counts())
        g.node("learns", Learns(sys.argv[1], sys.argv[2]))
        g.edge("counts", "learns")
        g.add_worker("local://", count=2)
        try:
            g.fit(np.arange(3))
        except SessionLost as error:
            print("SIGKILL" in str(error), "fit of node 'learns'" in str(error), flush=True)
        open(os.path.join(sys.argv[2], "quick"), "w").close()
        g.fit(np.arange(3))
        print([f"{one.node} {one.what} {one.outcome}" for one in g.last_run.actions])
        print(g.state())
        """,
        "sleeps",
        folder=tmp_path,
    )
    pid = child_of(tmp_path)
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    assert process.stdout.readline() == "script\n"
    assert process.stdout.readline() == "True True\n"
    assert time.monotonic() - killed < LIMIT_S / 2
    code, out, err = ended(process)
    assert code == 0, err
    assert out == [
        "['counts state hit', 'counts output hit', 'learns state computed']",
        "{'counts': {'n': 3}, 'learns': {'sum': 24}}",
    ]


def test_a_script_needs_no_main_guard_and_runs_once(tmp_path):
    (tmp_path / "quick").touch()
    process = start("print(g.forward(np.arange(3)).tolist())", "sleeps", folder=tmp_path)
    assert ended(process)[:2] == (0, ["script", "[0, 2, 4]"])
    assert is_gone(child_of(tmp_path))


def test_a_fork_of_the_parent_starts_children_of_its_own(tmp_path):
    (tmp_path / "quick").touch()
    process = start(
        """
        first = g.forward(np.arange(3))
        pid = os.fork()
        if pid == 0:
            again = g.forward(np.arange(4))
            print("fork", again.tolist(), flush=True)
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        print("parent", g.forward(np.arange(5)).tolist(), status)
        """,
        "sleeps",
        folder=tmp_path,
    )
    code, out, err = ended(process)
    assert code == 0, err
    assert out == ["script", "fork [0, 2, 4, 6]", "parent [0, 2, 4, 6, 8] 0"]


def test_the_demo_gives_the_same_numbers_as_one_process(tmp_path):
    made = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "local_workers.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert "workers: local-1, local-2" in made.stdout
    assert "the same as in one process, bit by bit: True" in made.stdout
    assert "accuracy on 450 held-out images: 0.967" in made.stdout
    shown = subprocess.run(
        [sys.executable, "-m", "soma", "runs", "show", "local_workers"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    rows = {
        words[0]: words
        for words in map(str.split, shown.stdout.splitlines())
        if words and words[0] in ("pca", "strokes")
    }
    assert {rows["pca"][3], rows["strokes"][3]} == {"local-1", "local-2"}
