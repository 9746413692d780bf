"""The records of processes that are killed, interrupted, forked, or run out of room."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from time import sleep

import pytest

from support.distributions import run_python, write_plugin
from support.signals import hear_ctrl_c

pytestmark = pytest.mark.e2e

PROGRAM = """
    import os, resource, signal, sys, threading, time
    from pathlib import Path
    from soma import Filter, Graph

    class Turns(Filter):
        def forward(self, x, state):
            return x + 1

    class Sleeps(Filter):
        def forward(self, x, state):
            print("started", flush=True)
            time.sleep(60)
            return x

    root = Path(sys.argv[1])

    def looping(turns, body=Turns):
        graph = Graph(cache="off")
        graph.loop("l", body(), False, turns)
        return graph
"""


def start(code, root, stdin=subprocess.DEVNULL):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM) + textwrap.dedent(code), str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=stdin,
        preexec_fn=hear_ctrl_c,  # noqa: PLW1509  # it takes no lock
    )


def end(process):
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait(60)
    return out, err, process.returncode


def run(code, root):
    return end(start(code, root))


def runs_in(root):
    return sorted((Path(root) / "runs").iterdir())


def only(root):
    (found,) = runs_in(root)
    return found


def status_of(folder):
    return json.loads((folder / "status.json").read_text(encoding="ascii"))


def lines_of(folder, name="events.jsonl"):
    """Return what the lines hold; the last may have been cut, and is then left out."""
    text = (folder / name).read_text(encoding="ascii")
    whole, _, cut = text.rpartition("\n")
    if cut:
        with pytest.raises(json.JSONDecodeError):
            json.loads(cut)
    return [json.loads(line) for line in whole.splitlines()]


def check_whole(folder):
    """Check what holds of every run, whatever became of its process; return its events."""
    assert not folder.name.startswith(".")
    manifest = json.loads((folder / "manifest.json").read_text(encoding="ascii"))
    assert manifest["run_id"] == folder.name
    assert json.loads((folder / "graph.json").read_text())["error"] is None
    events = lines_of(folder)
    assert [one["seq"] for one in events] == list(range(1, len(events) + 1))
    return events


class TestKilled:
    @pytest.mark.parametrize("number", range(3))
    def test_at_any_moment(self, tmp_path, number):
        code = """
            graph = looping(1_000_000)
            with graph.track_run("a", root) as run:
                print("started", flush=True)
                threading.Thread(
                    target=lambda: [run.log("m", n) for n in range(10**9)], daemon=True
                ).start()
                graph.forward(0)
        """
        process = start(code, tmp_path)
        try:
            assert process.stdout.readline() == "started\n"
            sleep(random.Random(number).uniform(0.1, 0.6))  # noqa: S311  # no secret
            process.send_signal(signal.SIGKILL)
            _, err, code = end(process)
        finally:
            process.kill()
            process.wait(60)
        assert (code, err) == (-signal.SIGKILL, "")
        folder = only(tmp_path)
        events = check_whole(folder)
        assert len(events) > 100
        status = status_of(folder)
        assert status["state"] == "running"
        assert status["finished_at"] is None
        assert status["process"]["pid"] == process.pid
        metrics = lines_of(folder, "metrics.jsonl")
        told = [one["metric"]["value"] for one in events if one["event_type"] == "MetricReported"]
        found = [one["value"] for one in metrics]
        assert found == told[: len(found)]
        assert len(told) - len(found) in (0, 1)

    def test_while_runs_are_made(self, tmp_path):
        code = """
            for number in range(10**9):
                with looping(2).track_run("a", root):
                    pass
                if number == 2:
                    print("started", flush=True)
        """
        for number in range(2):
            process = start(code, tmp_path)
            try:
                assert process.stdout.readline() == "started\n"
                sleep(0.2 + 0.07 * number)
                process.kill()
                _, err, _ = end(process)
            finally:
                process.kill()
                process.wait(60)
            assert err == ""
        states = []
        for folder in runs_in(tmp_path):
            if folder.name.startswith("."):
                continue
            check_whole(folder)
            states.append(status_of(folder)["state"])
        assert len(states) > 3
        assert states.count("running") <= 2
        assert set(states) <= {"running", "completed"}


class TestInterrupted:
    def test_ctrl_c(self, tmp_path):
        code = """
            graph = Graph.somatize(Turns() >> Sleeps(), cache="off")
            with graph.track_run("a", root):
                graph.forward(1)
        """
        process = start(code, tmp_path)
        try:
            assert process.stdout.readline() == "started\n"
            sleep(0.3)
            process.send_signal(signal.SIGINT)
            _, err, _ = end(process)
        finally:
            process.kill()
            process.wait(60)
        assert err.rstrip().endswith("KeyboardInterrupt")
        folder = only(tmp_path)
        kinds = [one["event_type"] for one in check_whole(folder)]
        assert kinds[-2:] == ["NodeFailed", "RunFailed"]
        status = status_of(folder)
        assert (status["state"], status["error"]) == ("interrupted", "KeyboardInterrupt")
        assert status["finished_at"] is not None

    @pytest.mark.parametrize(
        ("ending", "code", "state", "error"),
        [
            ("sys.exit(0)", 0, "completed", None),
            ("sys.exit(3)", 3, "failed", "SystemExit: 3"),
            ("raise KeyboardInterrupt", -signal.SIGINT, "interrupted", "KeyboardInterrupt"),
        ],
    )
    def test_what_ends_the_block(self, tmp_path, ending, code, state, error):
        program = f"""
            with looping(2).track_run("a", root) as run:
                {ending}
        """
        _, _, found = run(program, tmp_path)
        assert found == code
        status = status_of(only(tmp_path))
        assert (status["state"], status["error"]) == (state, error)

    @pytest.mark.parametrize(
        ("ending", "state", "error"),
        [
            ("", "interrupted", "the interpreter ended before the run was finished"),
            ("sys.exit(3)", "interrupted", "the interpreter ended before the run was finished"),
            ("raise ValueError('why')", "failed", "ValueError: why"),
        ],
    )
    def test_one_that_nobody_finished(self, tmp_path, ending, state, error):
        program = f"""
            graph = looping(2)
            kept = graph.track_run("a", root)
            other = graph.track_run("b", root)
            graph.forward(0)
            {ending}
        """
        run(program, tmp_path)
        for folder in runs_in(tmp_path):
            status = status_of(folder)
            assert (status["state"], status["error"]) == (state, error)
            assert len(check_whole(folder)) == 7

    def test_a_signal_handler_that_finishes_it(self, tmp_path):
        code = """
            graph = looping(1_000_000)
            run = graph.track_run("a", root)

            def leave(*_):
                run.log("last", 1)
                run.finish()
                os._exit(5)

            signal.signal(signal.SIGTERM, leave)
            print("started", flush=True)
            graph.forward(0)
        """
        for number in range(2):
            root = tmp_path / str(number)
            process = start(code, root)
            try:
                assert process.stdout.readline() == "started\n"
                sleep(0.2)
                process.terminate()
                _, err, found = end(process)
            finally:
                process.kill()
                process.wait(60)
            assert (found, err) == (5, "")
            assert status_of(only(root))["state"] == "completed"
            check_whole(only(root))


FULL = """
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
"""


class TestNoRoom:
    def test_the_disk_is_full_for_a_while(self, tmp_path):
        code = f"""
            {textwrap.indent(textwrap.dedent(FULL), " " * 12).strip()}
            graph = looping(200)
            with graph.track_run("a", root) as run:
                assert graph.forward(0) == 200
                size = (run.path / "events.jsonl").stat().st_size
                limit(size + 500)
                assert graph.forward(0) == 200
                run.log("lost", 1)
                limit(resource.RLIM_INFINITY)
                assert graph.forward(0) == 200
                run.log("kept", 1)
            print("done")
        """
        out, err, found = run(code, tmp_path)
        assert (out, found) == ("done\n", 0)
        folder = only(tmp_path)
        (said,) = err.splitlines()
        assert said == (
            f"soma: an event was not written to {folder}, and the run goes on: "
            "OSError: [Errno 27] File too large"
        )
        each = 403  # RunStarted, 200 of two nodes' events, LoopCompleted, RunCompleted
        text = (folder / "events.jsonl").read_text(encoding="ascii")
        assert text.endswith("\n")
        seqs, cut = [], 0
        for line in text.splitlines():
            try:
                seqs.append(json.loads(line)["seq"])
            except json.JSONDecodeError:
                cut += 1
        assert cut <= 1
        assert seqs == sorted(set(seqs))
        first, last = list(range(1, each + 1)), list(range(2 * each + 2, 3 * each + 3))
        kept = [seq for seq in seqs if each < seq < 2 * each + 2]
        assert seqs == [*first, *kept, *last]
        assert kept == list(range(each + 1, each + 1 + len(kept)))
        assert len(kept) < 5
        status = status_of(folder)
        assert status["state"] == "completed"
        assert status["lost_events"] == each + 1 - len(kept)
        assert [one["name"] for one in lines_of(folder, "metrics.jsonl")] == ["kept"]

    def test_it_is_full_from_the_start(self, tmp_path):
        code = f"""
            {textwrap.indent(textwrap.dedent(FULL), " " * 12).strip()}
            limit(10)
            graph = looping(3)
            with graph.track_run("a", root) as run:
                assert graph.forward(0) == 3
                run.log("a", 1)
                print(run.path)
        """
        out, err, found = run(code, tmp_path)
        assert (out, found) == ("None\n", 0)
        assert err.count("\n") == 1
        assert err.startswith("soma: the run 'a' is not recorded, and the run goes on: OSError")
        assert runs_in(tmp_path) == []

    def test_no_file_can_be_opened(self, tmp_path):
        code = """
            graph = looping(3)
            graph.forward(0)
            with graph.track_run("warm", root):
                pass
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            with graph.track_run("a", root) as run:
                assert graph.forward(0) == 3
                print(run.path)
            with graph.track_run("b", root):
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        """
        out, err, found = run(code, tmp_path)
        assert (out, found) == ("None\n", 0)
        said = err.splitlines()
        assert len(said) == 2
        assert all(
            "is not recorded, and the run goes on: OSError: [Errno 24]" in one for one in said
        )
        assert status_of(only(tmp_path))["state"] == "completed"

    @pytest.mark.parametrize("root", ["/proc/nope", "/sys/kernel/nope"])
    def test_nothing_can_be_written(self, root):
        code = """
            graph = looping(3)
            with graph.track_run("a", root) as run:
                assert graph.forward(0) == 3
        """
        out, err, found = run(code, root)
        assert (out, found) == ("", 0)
        (said,) = err.splitlines()
        assert said.startswith("soma: the run 'a' is not recorded, and the run goes on: ")

    def test_the_working_folder_is_gone(self, tmp_path):
        code = """
            os.chdir(root)
            os.rmdir(root)
            graph = looping(3)
            with graph.track_run("a") as run:
                assert graph.forward(0) == 3
            assert run.path is None
            with graph.track_run("b", root.parent / "there") as run:
                assert graph.forward(0) == 3
            print(run.path)
        """
        (tmp_path / "gone").mkdir()
        out, err, found = run(code, tmp_path / "gone")
        assert found == 0
        assert err.count("\n") == 1
        folder = only(tmp_path / "there")
        assert out == f"{folder}\n"
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["cwd"] is None
        assert manifest["git"] is None

    def test_nobody_reads_what_is_said(self, tmp_path):
        code = """
            os.close(2)
            sys.stderr.close()
            graph = looping(3)
            with graph.track_run("a", "/proc/nope") as run:
                print(graph.forward(0))
        """
        out, _, found = run(code, tmp_path)
        assert (out, found) == ("3\n", 0)


def test_many_at_once_in_one_root(tmp_path):
    code = """
        def work(number):
            for turn in range(4):
                graph = looping(5)
                with graph.track_run(f"{os.getpid()} {number} {turn}", root) as run:
                    graph.forward(number, run_id=run.id)
                    run.log("number", number)

        print("ready", flush=True)
        sys.stdin.readline()
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    """
    root = tmp_path / "new" / "root"
    processes = [start(code, root, stdin=subprocess.PIPE) for _ in range(2)]
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [end(process)[1:] for process in processes] == [("", 0)] * 2
    finally:
        for process in processes:
            process.kill()
            process.wait(60)
    assert (root / ".gitignore").read_text() == "*\n"
    names = []
    for folder in runs_in(root):
        assert {path.name for path in folder.iterdir()} == {
            *("manifest.json", "status.json", "graph.json", "events.jsonl", "metrics.jsonl")
        }
        events = check_whole(folder)
        assert {one["run_id"] for one in events} == {folder.name}
        assert len(events) == 14
        assert status_of(folder)["state"] == "completed"
        names.append(json.loads((folder / "manifest.json").read_text())["name"])
    assert sorted(names) == sorted(
        f"{process.pid} {number} {turn}"
        for process in processes
        for number in range(8)
        for turn in range(4)
    )


class TestFork:
    def test_the_child_writes_nothing_and_ends_nothing(self, tmp_path):
        code = """
            import warnings
            warnings.simplefilter("ignore")  # newer Pythons warn of threads at a fork
            graph = looping(3)
            with graph.track_run("a", root) as run:
                graph.forward(0)
                child = os.fork()
                if not child:
                    graph.forward(0)
                    run.log("child", 1)
                    run.finish(ValueError("of the child"))
                    sys.exit(7)  # leaves the block, and runs what is to be done at exit
                _, status = os.waitpid(child, 0)
                assert os.waitstatus_to_exitcode(status) == 7
                run.log("parent", 1)
        """
        out, err, found = run(code, tmp_path)
        assert (out, err, found) == ("", "", 0)
        folder = only(tmp_path)
        events = check_whole(folder)
        assert len(events) == 10
        assert events[-1]["metric"]["name"] == "parent"
        assert [one["name"] for one in lines_of(folder, "metrics.jsonl")] == ["parent"]
        status = status_of(folder)
        assert (status["state"], status["error"]) == ("completed", None)

    def test_while_others_write(self, tmp_path):
        code = """
            import warnings
            warnings.simplefilter("ignore")
            graph = looping(3)
            stop = threading.Event()
            with graph.track_run("a", root) as run:
                def work():
                    while not stop.is_set():
                        run.log("m", 1)
                threads = [threading.Thread(target=work) for _ in range(3)]
                for thread in threads:
                    thread.start()
                for _ in range(10):
                    child = os.fork()
                    if not child:
                        try:
                            graph.forward(0)
                            run.log("child", 1)
                            run.finish()
                            with graph.track_run("of the child", root) as mine:
                                graph.forward(0)
                        finally:
                            os._exit(0)
                    for _ in range(6000):
                        if os.waitpid(child, os.WNOHANG)[0]:
                            break
                        time.sleep(0.01)
                    else:
                        os.kill(child, signal.SIGKILL)
                        print("a child hangs")
                stop.set()
                for thread in threads:
                    thread.join(60)
        """
        out, err, found = run(code, tmp_path)
        assert (out, err, found) == ("", "", 0)
        by_name = {}
        for folder in runs_in(tmp_path):
            name = json.loads((folder / "manifest.json").read_text())["name"]
            by_name.setdefault(name, []).append(folder)
            assert status_of(folder)["state"] == "completed"
        assert {name: len(found) for name, found in by_name.items()} == {"a": 1, "of the child": 10}
        events = check_whole(by_name["a"][0])
        assert {one["metric"]["name"] for one in events} == {"m"}
        for folder in by_name["of the child"]:
            assert len(check_whole(folder)) == 9


def test_nothing_is_left_running(tmp_path):
    """A heartbeat is no reason for a process to stay."""
    code = """
        graph = looping(3)
        run = graph.track_run("a", root)
        graph.forward(0)
        print(sorted(one.name for one in threading.enumerate()), flush=True)
    """
    out, err, found = run(code, tmp_path)
    assert (out, err, found) == ("['MainThread', 'soma-heartbeat']\n", "", 0)


SINK = """
import soma

@soma.hookimpl
def soma_event_sinks():
    yield soma.EventSinkSpec(name="{name}", target="{module}.cli:{target}", default=True)
"""
SINKS = """
class Bell:
    def __init__(self, run_dir):
        self.name = None if run_dir is None else run_dir.name[:4]
        print("open", self.name, run_dir is not None and (run_dir / "manifest.json").exists())
    def __call__(self, event):
        print("heard", self.name, event.event_type)
    def close(self):
        print("close", self.name)

class Broken(Bell):
    def __call__(self, event):
        pass
    def close(self):
        raise SystemExit("no\\nway")

def only_tracked(run_dir):
    if run_dir is None:
        raise ValueError("only for tracked runs")
    return Bell(run_dir)
"""


class TestSinks:
    CODE = """
        import sys
        from soma import Graph
        graph = Graph(cache="off")
        graph.on_event(lambda event: None)
        graph.emit("before")
        with graph.track_run("a", sys.argv[1] if len(sys.argv) > 1 else ".soma") as run:
            graph.emit("inside")
            with graph.track_run("b") as other:
                graph.emit("deeper")
            graph.emit("again")
        graph.emit("after")
        run.finish()
        graph.emit("at last")
    """

    def write(self, folder, target):
        plugin = SINK.format(name=target.lower(), module=target.lower(), target=target)
        write_plugin(folder, target.lower(), plugin=plugin, cli=SINKS)

    def test_one_for_the_run_and_the_own_one_silent(self, tmp_path):
        self.write(tmp_path, "Bell")
        done = run_python(self.CODE, tmp_path, cwd=tmp_path)
        assert done.stderr == ""
        assert done.stdout.splitlines() == [
            "open None False",
            "heard None before",
            "open run_ True",
            "heard run_ inside",
            "open run_ True",
            "heard run_ deeper",
            "heard run_ deeper",
            "close run_",
            "heard run_ again",
            "close run_",
            "heard None after",
            "heard None at last",
        ]

    def test_one_that_is_for_tracked_runs_only(self, tmp_path):
        self.write(tmp_path, "only_tracked")
        done = run_python(self.CODE, tmp_path, cwd=tmp_path)
        assert done.stdout.splitlines()[0] == "open run_ True"
        assert done.stdout.splitlines()[-1] == "close run_"
        assert done.stderr.count("\n") == 1  # of the graph's own

    def test_one_that_does_not_close(self, tmp_path):
        self.write(tmp_path, "Broken")
        self.write(tmp_path, "Bell")
        done = run_python(self.CODE, tmp_path, cwd=tmp_path)
        assert done.returncode == 0
        assert done.stderr.splitlines() == [
            "soma: the event sink 'broken' did not close: SystemExit: no way"
        ]
        assert done.stdout.count("close run_") == 2
        assert {status_of(folder)["state"] for folder in runs_in(tmp_path / ".soma")} == {
            "completed"
        }

    def test_a_run_that_is_not_recorded_leaves_them_alone(self, tmp_path):
        self.write(tmp_path, "Bell")
        code = """
            from soma import Graph
            graph = Graph(cache="off")
            with graph.track_run("a", "/proc/nope") as run:
                graph.emit("inside")
        """
        done = run_python(code, tmp_path)
        assert done.stdout.splitlines() == ["open None False", "heard None inside"]
