"""What only a process of its own can show: Ctrl-C, exit codes, few descriptors."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from time import monotonic, sleep

import pytest

from support.signals import hear_ctrl_c

pytestmark = pytest.mark.e2e

FILTERS = """
    import sys, time
    import numpy as np
    from soma import Filter, Graph

    class Quick(Filter):
        def forward(self, x, state):
            time.sleep(0.01)
            return x

    class Sleeps(Filter):
        def forward(self, x, state):
            print("started", flush=True)
            time.sleep(10)
            return x

    class Loops(Filter):
        def forward(self, x, state):
            print("started", flush=True)
            end = time.monotonic() + 10
            while time.monotonic() < end:
                pass
            return x

    class Lapack(Filter):
        def forward(self, x, state):
            matrix = np.random.default_rng(0).normal(size=(4000, 4000))
            print("started", flush=True)
            np.linalg.svd(matrix)
            return x
"""
INTERRUPTED = """
    started = time.monotonic()
    try:
        graph.forward(1)
    except KeyboardInterrupt:
        print("raised", flush=True)
        raise
"""


def start(code):
    text = textwrap.dedent(FILTERS) + textwrap.dedent(code)
    return subprocess.Popen(
        [sys.executable, "-c", text],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,  # noqa: PLW1509  # it takes no lock
    )


def interrupt(code):
    """Run until user code has started, press Ctrl-C; return (s until it was raised, code, err)."""
    process = start(code + textwrap.dedent(INTERRUPTED))
    try:
        assert process.stdout.readline() == "started\n"
        sleep(0.5)  # a signal between printing and sleeping is seen only after the sleep
        pressed = monotonic()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "raised\n"
        raised_s = monotonic() - pressed
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait(60)
    return raised_s, process.returncode, err


@pytest.mark.parametrize(
    ("expression", "on_a_thread"),
    [
        ("Sleeps()", False),
        ("Loops()", False),
        ("Quick() >> (Sleeps() | Quick())", True),
        ("Quick() >> (Loops() | Quick())", True),
        ("Quick() >> (Lapack() | Quick())", True),
    ],
)
def test_ctrl_c_in_a_long_node(expression, on_a_thread):
    raised_s, code, err = interrupt(f'\ngraph = Graph.somatize({expression}, cache="memory")\n')
    assert raised_s < 0.5
    assert err.rstrip().endswith("KeyboardInterrupt")
    # A process that ends itself by the signal is 130 for a shell as well.
    assert code == (130 if on_a_thread else -signal.SIGINT)


def test_a_program_that_goes_on_after_ctrl_c_can_run_the_same_again():
    """The claim of the abandoned node is free at once: the second run does not wait for it."""
    code = """
    class Once(Filter):
        def __init__(self):
            self._calls = []

        def forward(self, x, state):
            self._calls.append(x)
            if len(self._calls) == 1:
                print("started", flush=True)
                time.sleep(30)
            return x + 1

    node = Once()
    graph = Graph.somatize(Quick() >> (node | Quick()), cache="memory")
    try:
        graph.forward(1)
    except KeyboardInterrupt:
        print("raised", flush=True)
    began = time.monotonic()
    print(graph.forward(1)["once"], time.monotonic() - began < 5, flush=True)
    """
    process = start(code)
    try:
        assert process.stdout.readline() == "started\n"
        sleep(0.5)  # as above
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "raised\n"
        assert process.stdout.readline() == "2 True\n"
        process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait(60)
    assert process.returncode == 130  # the abandoned node still slept


def test_a_program_that_was_not_interrupted_ends_as_it_should():
    code = """
    import atexit
    atexit.register(lambda: print("bye", flush=True))
    graph = Graph.somatize(Quick() >> (Quick() | Quick()), cache="memory")
    print(graph.forward(1))
    sys.exit(3)
    """
    process = start(code)
    out, err = process.communicate(timeout=60)
    assert (out, err, process.returncode) == ("{'quick_2': 1, 'quick_3': 1}\nbye\n", "", 3)


def test_three_thousand_large_results_under_few_descriptors():
    code = """
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))

    class Fill(Filter):
        def forward(self, x, state):
            return np.full(1 << 17, x)  # 1 MiB

    graph = Graph(cache="memory", cache_max_bytes=4 << 30)
    graph.node(Fill())
    cold = [graph.forward(float(number)) for number in range(3000)]
    warm = [graph.forward(float(number)) for number in range(700)]
    assert graph.last_run.hits == 1
    assert [one[0] for one in cold] == list(range(3000))
    for number in range(700):
        assert warm[number][-1] == number
        warm[number][0] = -1.0
    assert graph.forward(7.0)[0] == 7.0
    files = [open("/dev/null") for _ in range(300)]  # the program's own half
    print("ok")
    """
    process = start(code)
    out, err = process.communicate(timeout=240)
    assert (out, err) == ("ok\n", "")


def test_a_fork_of_the_process_goes_on_by_itself():
    code = """
    import os
    graph = Graph.somatize(Quick() >> (Quick() | Quick()), cache="memory")
    x = np.arange(300_000.0)
    first = graph.forward(x)
    child = os.fork()
    if not child:
        found = graph.forward(x)
        hit = graph.last_run.computed == ()
        graph.forward(x + 1)
        os._exit(0 if hit and np.array_equal(found["quick_2"], x) else 1)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status))
    """
    process = start(code)
    out, err = process.communicate(timeout=60)
    assert (out, err) == ("0\n", "")
