"""``soma runs`` as a user meets it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from queue import Empty, Queue

import pytest

from soma.tracking.find import runs
from support.distributions import run_soma
from support.run_dirs import (
    ID,
    dead_process,
    event,
    events_of_a_fit,
    hit,
    live_process,
    write,
    write_lines,
    write_run,
)
from support.signals import hear_ctrl_c
from support.terminals import on_terminal

_TIMEOUT_S = 60


def soma_runs(*words, **environment):
    return run_soma(["runs", *map(str, words)], **{"PYTHONUTF8": "1", "TZ": "UTC", **environment})


@contextmanager
def following(*words):
    """Start ``soma runs tail -f``, and give the process and what it prints, line by line."""
    with subprocess.Popen(
        [sys.executable, "-m", "soma", "runs", "tail", "-f", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,  # noqa: PLW1509  # it takes no lock
    ) as process:
        lines = Queue()

        def read():
            for line in process.stdout:
                lines.put(line.rstrip("\n"))

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            yield process, lines
        finally:
            process.kill()
            process.wait(_TIMEOUT_S)
            reader.join(_TIMEOUT_S)


def ended(process, lines):
    """Wait for the end; return the status, and what was printed since."""
    status = process.wait(_TIMEOUT_S)
    found = []
    while True:
        try:
            found.append(lines.get(timeout=0.5))
        except Empty:
            return status, found


class TestList:
    def test_the_table(self, tmp_path):
        write_run(tmp_path, tags=["a", "b"])
        write_run(
            tmp_path,
            "run_20261201T041500Z_77aa",
            name="größer 🎉",
            state="failed",
            error="ValueError: no\nmore",
            created_at="2026-12-01T04:15:00+00:00",
        )
        write_run(tmp_path, "run_20261101T041500Z_88bb", schema_version=2)
        done = soma_runs("list", "--root", tmp_path)
        assert done.returncode == 0
        header, first, second, third = done.stdout.splitlines()
        assert header.split() == ["RUN", "NAME", "STATE", "BEGAN", "TOOK", "TAGS", "ERROR"]
        assert first.split("  ", 1)[0] == "run_20261201T041500Z_77aa"
        for part in ("größer 🎉", "failed", "2026-12-01 04:15", "ValueError: no more"):
            assert part in first
        assert second.split() == [
            ID,
            "digits",
            "completed",
            "2026-11-30",
            "04:15",
            "2.5",
            "s",
            "a,",
            "b",
        ]
        assert third.split()[:2] == ["run_20261101T041500Z_88bb", "unknown"]
        assert "newer Soma" in third or third.endswith("…")
        assert "\x1b" not in done.stdout
        assert soma_runs("--help").returncode == 0

    @pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
    def test_states_are_coloured_on_a_terminal(self, environment, coloured, tmp_path):
        write_run(tmp_path)
        code = f"from soma.cli.root import run; run(['runs', 'list', '--root', {str(tmp_path)!r}])"
        with on_terminal(code, **environment) as terminal:
            assert terminal.end() == 0
        assert ("\x1b[32mcompleted\x1b[0m" in terminal.raw) is coloured
        assert "completed" in terminal.raw

    def test_bare_runs_lists(self, tmp_path):
        write_run(tmp_path / ".soma")
        assert ID in run_soma(["runs"], cwd=tmp_path).stdout
        assert (
            soma_runs("--root", tmp_path / ".soma").stdout
            == run_soma(["runs"], cwd=tmp_path, TZ="UTC", PYTHONUTF8="1").stdout
        )
        (row,) = json.loads(soma_runs("--root", tmp_path / ".soma", "--json").stdout)
        assert row["id"] == ID

    def test_options_before_the_command(self, tmp_path):
        write_run(tmp_path)
        assert ID in soma_runs("--root", tmp_path, "list").stdout
        assert json.loads(soma_runs("--root", tmp_path, "--json", "show", "last").stdout)
        assert soma_runs("--root", "nowhere", "show", "last", "--root", tmp_path).returncode == 0

    def test_json(self, tmp_path):
        write_run(tmp_path, tags=["a"], params={"lr": 0.1})
        write_run(tmp_path, "run_bad", schema_version=2)
        first, bad = json.loads(soma_runs("list", "--root", tmp_path, "--json").stdout)
        if first["id"] != ID:
            first, bad = bad, first
        assert first == {
            "id": ID,
            "state": "completed",
            "note": "",
            "name": "digits",
            "kind": "run",
            "created_at": "2026-11-30T04:15:00.125000+00:00",
            "finished_at": "2026-11-30T04:15:02.625000+00:00",
            "duration_ms": 2500.0,
            "error": None,
            "tags": ["a"],
            "params": {"lr": 0.1},
            "path": str(tmp_path / "runs" / ID),
        }
        assert (bad["state"], bad["name"], bad["tags"]) == ("unknown", None, [])
        assert "newer Soma" in bad["note"]

    def test_choosing(self, tmp_path):
        for day, (tag, state) in enumerate(
            [("x", "failed"), ("y", "failed"), ("x", "completed"), ("x", "failed")], start=1
        ):
            write_run(
                tmp_path,
                f"run_{day}",
                tags=[tag],
                state=state,
                created_at=f"2026-12-0{day}T00:00:00+00:00",
            )

        def listed(*words):
            done = soma_runs("list", "--root", tmp_path, "--json", *words)
            return [one["id"] for one in json.loads(done.stdout)]

        assert listed() == ["run_4", "run_3", "run_2", "run_1"]
        assert listed("--state", "failed") == ["run_4", "run_2", "run_1"]
        assert listed("--tag", "x", "--limit", "2") == ["run_4", "run_3"]
        assert listed("--tag", "x", "--state", "failed") == ["run_4", "run_1"]
        assert listed("--tag", "z") == []

    def test_the_living_and_the_dead(self, tmp_path):
        write_run(tmp_path, "run_dead", state="running", process=dead_process())
        with live_process() as process:
            write_run(tmp_path, "run_live", state="running", process=process)
            found = json.loads(soma_runs("list", "--root", tmp_path, "--json").stdout)
        assert {one["id"]: one["state"] for one in found} == {
            "run_dead": "crashed",
            "run_live": "running",
        }

    def test_roots(self, tmp_path):
        done = soma_runs("list", "--root", tmp_path / "nothing")
        assert (done.returncode, done.stdout) == (
            0,
            f"No runs: there is no folder {tmp_path / 'nothing'}.\n",
        )
        done = soma_runs("list", "--root", tmp_path)
        assert (done.returncode, done.stdout) == (0, f"No runs in {tmp_path}.\n")
        assert soma_runs("list", "--root", tmp_path / "nothing", "--json").stdout == "[]\n"
        file = tmp_path / "file"
        file.write_text("x")
        for words in (["list"], ["show", "x"], ["tail", "x"], ["rm", "x"]):
            done = soma_runs(*words, "--root", file)
            assert done.returncode == 1
            assert done.stderr == (
                f"Error: {file} is no folder of runs that can be read: Not a directory\n"
            )

    def test_a_stream_that_cannot_write_everything(self, tmp_path):
        write_run(tmp_path, name="🎉", events=events_of_a_fit())
        for words in (["list"], ["show", "last"], ["tail", "last"]):
            done = soma_runs(*words, "--root", tmp_path, PYTHONUTF8="0", PYTHONIOENCODING="ascii")
            assert done.returncode == 0
            assert "Traceback" not in done.stderr


class TestShow:
    def test_show_prints_the_text_of_the_view(self, tmp_path):
        write_run(tmp_path, events=events_of_a_fit())
        (view,) = runs(tmp_path)
        for words, whole in ([], False), (["--all"], True):
            done = soma_runs("show", "last", "--root", tmp_path, *words)
            assert done.returncode == 0
            assert done.stdout == view.to_text(whole=whole) + "\n"

    def test_json(self, tmp_path):
        points = [{"name": "loss", "value": "NaN", "step": 1, "ts": 5.0}]
        write_run(tmp_path, events=events_of_a_fit(), metrics=points)
        found = json.loads(soma_runs("show", "3fa9", "--root", tmp_path, "--json").stdout)
        assert [one["phase"] for one in found["calls"]] == ["fit"]
        assert [one["node"] for one in found["nodes"]] == ["scaler", "pca", "step"]
        assert [one["passes"] for one in found["reused"]] == [[], [1], [2], [3]]
        assert found["metrics"] == {
            "loss": [{"step": 1, "value": "NaN", "ts": 5.0, "node_id": None, "trial_id": None}]
        }
        assert found["lost_events"] == 0

    def test_one_that_cannot_be_read(self, tmp_path):
        write_run(tmp_path, schema_version=2)
        done = soma_runs("show", "last", "--root", tmp_path)
        assert done.returncode == 1
        assert "written by a newer Soma (format 2; this one reads 1)" in done.stdout
        assert json.loads(soma_runs("show", "last", "--root", tmp_path, "--json").stdout)["note"]
        done = soma_runs("tail", "last", "--root", tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("Error: ")
        assert "newer Soma" in done.stderr

    @pytest.mark.parametrize("verb", ["show", "tail", "rm"])
    def test_what_is_no_run(self, verb, tmp_path):
        write_run(tmp_path)
        write_run(tmp_path, f"{ID}b", name="b")
        done = soma_runs(verb, "digitz", "--root", tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (f"There is no run 'digitz' in {tmp_path}. Did you mean 'digits'?\n")
        done = soma_runs(verb, "run_2026", "--root", tmp_path)
        assert done.returncode == 2
        assert done.stderr == f"'run_2026' may be any of '{ID}b', '{ID}'.\n"


class TestTail:
    def test_lines_as_progress_has_them(self, tmp_path):
        metric = {"name": "loss", "value": 0.25, "step": 3, "timestamp": None}
        write_run(
            tmp_path,
            events=[
                *events_of_a_fit(),
                event("MetricReported", metric=metric),
                {"event_type": "sample_drawn", "rows": 100, "source": "survey"},
                event("RunStarted", "c2", phase="forward"),
                event("NodeNotKept", "c2", node_id="n", message="why"),
                event("NodeFailed", "c2", node_id="n", what="output", error="E: no", passes=[2]),
                event("RunFailed", "c2", error="E: no"),
                {"event_type": "RunFailed"},
                b"{torn",
            ],
        )
        done = soma_runs("tail", "last", "--root", tmp_path)
        assert done.returncode == 0
        assert done.stdout.splitlines() == [
            "soma: fit scaler: computed in 3.0 ms, 40 B",
            "soma: fit pca: hit",
            "soma: forward step (pass 1): hit",
            "soma: forward step (pass 2): hit",
            "soma: forward step (pass 3): hit",
            "soma: refine: 3 passes, stopped",
            "soma: classify: took arm 'balanced'",
            "soma: fit done in 12.5 ms: 4 hits, 1 computed",
            "soma: metric loss: 0.25 (step 3)",
            "soma: sample_drawn: rows=100, source='survey'",
            "soma: n: why",
            "soma: forward n (pass 2): failed: E: no",
            "soma: forward failed: E: no",
            "an event that cannot be shown: 'RunFailed'",
        ]
        last = soma_runs("tail", "last", "-n", "2", "--root", tmp_path).stdout.splitlines()
        assert last == done.stdout.splitlines()[-2:]
        assert soma_runs("tail", "last", "-n", "0", "--root", tmp_path).stdout == ""

    def test_json_is_the_lines_of_the_file(self, tmp_path):
        folder = write_run(tmp_path, events=[*events_of_a_fit(), b'{"a": "\xc2\x9b"}\n', b"{torn"])
        lines = (folder / "events.jsonl").read_text().splitlines()
        done = soma_runs("tail", "last", "--json", "--root", tmp_path)
        assert done.stdout.splitlines() == [*lines[:-2], '{"a": "\\u009b"}']

    def test_no_terminal_is_told_to_do_anything(self, tmp_path):
        bad = "\x1b[2Jx\r\n\u202e\ud800"
        write_run(
            tmp_path,
            events=[
                event(bad, field=bad),
                event("RunStarted", bad, phase=bad),
                {**hit(bad, bad, bad), "outcome": bad},
                event("NodeFailed", bad, node_id=bad, what=bad, error=bad),
                event("RunFailed", bad, error=bad),
            ],
        )
        done = soma_runs("tail", "last", "--root", tmp_path)
        assert done.returncode == 0
        assert len(done.stdout.splitlines()) == 4
        assert all(line.isprintable() for line in done.stdout.split("\n"))

    def test_it_follows_until_the_run_ends(self, tmp_path):
        with live_process() as living:
            folder = write_run(tmp_path, events=events_of_a_fit(), state="running", process=living)
            with following("last", "-n", "1", "--root", tmp_path) as (process, lines):
                assert lines.get(timeout=_TIMEOUT_S) == (
                    "soma: fit done in 12.5 ms: 4 hits, 1 computed"
                )
                with (folder / "events.jsonl").open("a") as file:
                    file.write('{"event_type": "half')
                    file.flush()
                    file.write('_said"}\n')
                assert lines.get(timeout=_TIMEOUT_S) == "soma: half_said"
                write_lines(folder / "events.jsonl", [event("RunStarted", "c2", phase="forward")])
                write_lines(folder / "events.jsonl", [hit("last", run_id="c2")])
                write(folder / "status.json", {"state": "completed"})
                assert ended(process, lines) == (
                    0,
                    ["soma: forward last: hit", f"soma: {ID} is completed"],
                )

    def test_it_ends_with_a_run_that_is_killed(self, tmp_path):
        with live_process() as living:
            write_run(tmp_path, events=events_of_a_fit(), state="running", process=living)
            with following("last", "-n", "1", "--root", tmp_path) as (process, lines):
                lines.get(timeout=_TIMEOUT_S)
                os.kill(living["pid"], signal.SIGKILL)
                assert ended(process, lines) == (0, [f"soma: {ID} is crashed"])

    @pytest.mark.parametrize("how", ["removed", "replaced"])
    def test_it_ends_when_the_file_is_gone(self, how, tmp_path):
        with live_process() as living:
            folder = write_run(tmp_path, events=events_of_a_fit(), state="running", process=living)
            with following("last", "-n", "1", "--root", tmp_path) as (process, lines):
                lines.get(timeout=_TIMEOUT_S)
                if how == "removed":
                    shutil.rmtree(folder)
                else:
                    (tmp_path / "new").write_text("")
                    (tmp_path / "new").replace(folder / "events.jsonl")
                assert process.wait(_TIMEOUT_S) == 1
                error = process.stderr.read()
                assert "Traceback" not in error
                assert "events.jsonl" in error

    def test_ctrl_c_is_its_usual_end(self, tmp_path):
        with live_process() as living:
            write_run(tmp_path, events=events_of_a_fit(), state="running", process=living)
            with following("last", "-n", "1", "--root", tmp_path) as (process, lines):
                lines.get(timeout=_TIMEOUT_S)
                process.send_signal(signal.SIGINT)
                assert process.wait(_TIMEOUT_S) == 130
                assert process.stderr.read() == ""


class TestRemove:
    def test_several_at_once(self, tmp_path):
        for id_ in ("run_a", "run_b", "run_c"):
            write_run(tmp_path, id_)
        done = soma_runs("rm", "run_a", "run_b", "run_a", "--yes", "--root", tmp_path)
        assert (done.returncode, done.stdout) == (0, "removed run_a\nremoved run_b\n")
        assert [one.name for one in (tmp_path / "runs").iterdir()] == ["run_c"]

    @pytest.mark.parametrize(("typed", "there"), [("y\n", False), ("n\n", True), ("", True)])
    def test_it_asks(self, typed, there, tmp_path):
        folder = write_run(tmp_path)
        done = subprocess.run(
            [sys.executable, "-m", "soma", "runs", "rm", "last", "--root", tmp_path],
            input=typed,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        assert f"{ID}  digits  completed" in done.stdout
        assert "Remove 1 run for good?" in done.stdout
        assert folder.exists() is there
        assert done.returncode == (1 if there else 0)

    def test_an_unknown_one_removes_none(self, tmp_path):
        write_run(tmp_path)
        done = soma_runs("rm", ID, "nobody", "--yes", "--root", tmp_path)
        assert done.returncode == 2
        assert len(runs(tmp_path)) == 1

    def test_one_that_is_running_is_refused_and_the_others_go(self, tmp_path):
        with live_process() as process:
            write_run(tmp_path, "run_live", state="running", process=process)
            write_run(tmp_path, "run_done")
            words = ["rm", "run_live", "run_done", "--yes", "--root", tmp_path]
            done = soma_runs(*words)
            assert (done.returncode, done.stdout) == (1, "removed run_done\n")
            assert done.stderr == (
                "Error: run_live is running: end it first, or remove it with force (--force)\n"
            )
            done = soma_runs("rm", "run_live", "--yes", "--force", "--root", tmp_path)
            assert (done.returncode, done.stdout) == (0, "removed run_live\n")
        assert runs(tmp_path) == []

    def test_two_at_the_same_time(self, tmp_path):
        names = [f"run_{number:03}" for number in range(40)]
        for name in names:
            write_run(tmp_path, name)
        paths = [str(tmp_path / "runs" / name) for name in names]
        command = [sys.executable, "-m", "soma", "runs", "rm", "--yes", *paths]
        both = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        said = [one.communicate(timeout=_TIMEOUT_S) for one in both]
        removed = sorted(line for out, _ in said for line in out.splitlines())
        assert set(removed) <= {f"removed {name}" for name in names}
        assert len(removed) == len(set(removed))
        assert not any("Traceback" in error for _, error in said)
        if any(one.returncode == 0 for one in both):
            assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("words", [["list"], ["show", "last"], ["tail", "last"]])
def test_a_closed_pipe_is_not_a_traceback(words, tmp_path):
    write_run(tmp_path, events=events_of_a_fit())
    reader, writer = os.pipe()
    os.close(reader)  # nobody reads, from the start
    try:
        done = subprocess.run(
            [sys.executable, "-m", "soma", "runs", *words, "--root", str(tmp_path)],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    finally:
        os.close(writer)
    assert done.stderr == ""
