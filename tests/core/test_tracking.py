from __future__ import annotations

import _posixsubprocess
import atexit
import copy
import errno
import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soma import Filter, Graph, InvalidInput
from soma.events import Bus, UserEvent
from soma.events.plain import MAX_DEPTH
from soma.tracking import recorder as recorder_module
from soma.tracking import status as status_module
from soma.tracking.files import LineFile, json_text, replace_json
from soma.tracking.git import git_head
from soma.tracking.jsonl import JsonlSink
from support.threads import run_in_threads


class Add(Filter):
    def __init__(self, number=1):
        self.number = number

    def forward(self, x, state):
        return x + self.number


class Mean(Filter):
    def fit(self, x, y=None):
        return sum(x) / len(x)

    def forward(self, x, state):
        return [value - state for value in x]


def graph_of(*filters):
    graph = Graph(cache="off")
    last = None
    for one in filters or (Add(),):
        made = graph.node(one)
        if last is not None:
            graph.edge(last, made)
        last = made
    return graph


def read(run, name):
    return json.loads((run.path / name).read_text(encoding="ascii"))


def lines(run, name="events.jsonl"):
    text = (run.path / name).read_text(encoding="ascii")
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def kinds(run):
    return [one["event_type"] for one in lines(run)]


def folders(root):
    return sorted(path.name for path in (Path(root) / "runs").iterdir())


def names_in(folder):
    return sorted(path.name for path in Path(folder).iterdir())


@contextmanager
def ctrl_c_in(place, name):
    """Let a function raise what Ctrl-C raises; it has to come through."""

    def interrupted(*_args, **_how):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, interrupted)
        try:
            yield
        except KeyboardInterrupt:
            return
    raise AssertionError("no KeyboardInterrupt")


def wait_for(condition):
    end = monotonic() + 60
    while not condition():
        assert monotonic() < end
        sleep(0.005)


class TestFolder:
    def test_what_is_in_it(self, tmp_path):
        graph = graph_of(Mean())
        before = datetime.now(UTC)
        with graph.track_run(
            "base line", tmp_path / "a" / "b", tags=["x", "y"], params={"lr": 0.1, "n": (1, None)}
        ) as run:
            assert read(run, "status.json")["state"] == "running"
            graph.fit([1.0, 3.0], seed=7)
            run.log("loss", 0.25, step=3)
            run.log("loss", 2)
        after = datetime.now(UTC)
        assert run.path.parent == tmp_path / "a" / "b" / "runs"
        assert (tmp_path / "a" / "b" / ".gitignore").read_text() == "*\n"
        assert folders(tmp_path / "a" / "b") == [run.id]
        assert run.path.name == run.id
        assert {path.name for path in run.path.iterdir()} == {
            *("manifest.json", "status.json", "graph.json", "events.jsonl", "metrics.jsonl")
        }
        manifest = read(run, "manifest.json")
        created = datetime.fromisoformat(manifest["created_at"])
        assert before.replace(microsecond=before.microsecond // 1000 * 1000) <= created <= after
        assert created.utcoffset().total_seconds() == 0
        assert re.fullmatch(rf"run_{created:%Y%m%dT%H%M%SZ}_[0-9a-f]{{4}}", run.id)
        wanted = {
            "schema_version": 1,
            "run_id": run.id,
            "kind": "run",
            "name": "base line",
            "tags": ["x", "y"],
            "params": {"lr": 0.1, "n": [1, None]},
            "notes": None,
            "parent_run_id": None,
            "python_version": sys.version.partition(" ")[0],
            "hostname": os.uname().nodename,
            "cwd": str(Path.cwd()),
            "seeds": {"graph": None},
            "graph": {"n_nodes": 1, "node_ids": ["mean"], "graph_path": "graph.json"},
        }
        assert {name: manifest[name] for name in wanted} == wanted
        assert set(manifest) == {
            *wanted,
            *("created_at", "soma_version", "platform", "versions", "entrypoint", "argv", "git"),
        }
        assert manifest["versions"]["numpy"] == np.__version__
        assert not set(manifest["versions"]) & sys.stdlib_module_names
        status = read(run, "status.json")
        assert (status["state"], status["error"], status["lost_events"]) == ("completed", None, 0)
        assert status["process"]["pid"] == os.getpid()
        moments = [status[one] for one in ("updated_at", "heartbeat_at", "finished_at")]
        assert len(set(moments)) == 1
        assert created <= datetime.fromisoformat(moments[0])
        events = lines(run)
        assert [one["seq"] for one in events] == list(range(1, len(events) + 1))
        assert [one["ts"] for one in events] == sorted(one["ts"] for one in events)
        assert all(before.timestamp() - 1 < one["ts"] < after.timestamp() + 1 for one in events)
        assert [one["event_type"] for one in events] == [
            *("RunStarted", "NodeStarted", "NodeCompleted", "RunCompleted"),
            *("MetricReported", "MetricReported"),
        ]
        assert (events[0]["phase"], events[0]["seed"]) == ("fit", 7)
        assert lines(run, "metrics.jsonl") == [
            {
                "ts": event["ts"],
                "name": "loss",
                "value": value,
                "step": step,
                "trial_id": None,
                "node_id": None,
            }
            for event, value, step in zip(events[-2:], (0.25, 2.0), (3, None), strict=True)
        ]

    def test_the_graph(self, tmp_path):
        class Filters(Filter):
            def __init__(self, func, lr=0.5, table=None):
                self.func = func
                self.lr = lr
                self.table = table

            def forward(self, x, state):
                return x

        graph = Graph()
        graph.node("a", Filters("mean", table={"a": 1}))
        graph.node("m", Mean())
        graph.edge("a", "m")
        graph.branch("b", len, {"x": Add(3), "default": "".join})
        graph.edge("m", "b")
        graph.loop("l", Add(2), False, 2)
        graph.edge("b", "l")
        with graph.track_run("a", tmp_path) as run:
            pass
        found = read(run, "graph.json")
        assert found["schema_version"] == 1
        assert found["error"] is None
        assert found["plan"] == json.loads(graph.compile().to_json())
        assert found["edges"] == [["a", "m"], ["m", "b"], ["b", "l"]]
        name = f"{Filters.__module__}.{Filters.__qualname__}"
        by_id = {one["id"]: one for one in found["nodes"]}
        assert by_id["a"] == {
            "id": "a",
            "label": "Filters",
            "kind": {"type": "stateless", "filter_name": name},
            "params": {"func": "mean", "lr": 0.5, "table": "<dict of 1>"},
        }
        assert by_id["m"]["kind"] == {
            "type": "trainable",
            "filter_name": f"{Mean.__module__}.Mean",
        }
        assert by_id["len"]["kind"] == {"type": "stateless", "filter_name": "builtins.len"}
        assert by_id["b"] == {
            "id": "b",
            "label": "branch",
            "kind": {"type": "branch", "filter_name": None},
            "params": {},
        }
        assert by_id["l"]["kind"] == {"type": "loop", "filter_name": None}
        assert by_id["add_2"]["params"] == {"number": 2}

    def test_one_that_does_not_compile(self, tmp_path):
        graph = graph_of(Add(), Add())
        graph.edge("add_2", "add")
        with graph.track_run("a", tmp_path) as run:
            pass
        found = read(run, "graph.json")
        assert found["plan"] is None
        assert found["error"].startswith("CycleError: ")
        empty = Graph()
        with empty.track_run("a", tmp_path) as run:
            pass
        assert read(run, "graph.json")["error"].startswith("GraphError: ")
        assert read(run, "manifest.json")["graph"]["n_nodes"] == 0

    def test_it_grows_inside_of_the_block(self, tmp_path):
        graph = graph_of(Add())
        with graph.track_run("a", tmp_path) as run:
            graph.forward(1)
            first = (run.path / "graph.json").stat().st_ino
            graph.node("late", Add(5))
            graph.edge("add", "late")
            assert [one["id"] for one in read(run, "graph.json")["nodes"]] == ["add"]
            heard = []
            graph.on_event(
                lambda event: heard.append((event["event_type"], read(run, "graph.json")))
            )
            assert graph.forward(1) == 7
            assert heard[0][0] == "RunStarted"
            assert heard[0][1]["edges"] == [["add", "late"]]
            second = (run.path / "graph.json").stat().st_ino
            graph.forward(1)
            assert (run.path / "graph.json").stat().st_ino == second != first
        assert read(run, "manifest.json")["graph"]["node_ids"] == ["add"]

    def test_a_graph_that_could_not_be_written_is_written_the_next_time(
        self, tmp_path, monkeypatch, capsys
    ):
        graph = graph_of(Add())
        with graph.track_run("a", tmp_path) as run:
            graph.node("late", Add())

            def full(path, data, **_how):
                raise OSError(errno.ENOSPC, "No space left on device")

            with monkeypatch.context() as patch:
                patch.setattr(recorder_module, "replace_json", full)
                assert graph.forward(1) == {"add": 2, "late": 2}
                graph.forward(1)
            assert len(read(run, "graph.json")["nodes"]) == 1
            graph.forward(1)
            assert len(read(run, "graph.json")["nodes"]) == 2
        (said,) = capsys.readouterr().err.splitlines()
        assert said == (
            f"soma: the graph of a run was not written to {run.path}, and the run goes on: "
            "OSError: [Errno 28] No space left on device"
        )
        assert kinds(run).count("RunStarted") == 3
        assert read(run, "status.json")["lost_events"] == 0

    def test_a_name_that_is_taken(self, tmp_path, monkeypatch):
        taken = tmp_path / "runs" / "run_taken"
        taken.mkdir(parents=True)
        (taken / "manifest.json").write_text("mine")
        names = ["run_taken", "run_taken", "run_free"]
        monkeypatch.setattr(recorder_module, "new_name", lambda kind, moment: names.pop(0))
        with graph_of().track_run("a", tmp_path) as run:
            pass
        assert run.id == "run_free"
        assert (taken / "manifest.json").read_text() == "mine"
        assert folders(tmp_path) == ["run_free", "run_taken"]

    def test_all_names_are_taken(self, tmp_path, monkeypatch, capsys):
        (tmp_path / "runs" / "run_taken" / "x").mkdir(parents=True)
        monkeypatch.setattr(recorder_module, "new_name", lambda kind, moment: "run_taken")
        monkeypatch.setattr(recorder_module, "_ATTEMPTS", 3)
        with graph_of().track_run("a", tmp_path) as run:
            pass
        assert run.path is None
        assert "FileExistsError: " in capsys.readouterr().err
        assert folders(tmp_path) == ["run_taken"]

    def test_a_root_that_is_there_gets_no_gitignore(self, tmp_path):
        with graph_of().track_run("a", tmp_path):
            pass
        assert not (tmp_path / ".gitignore").exists()

    def test_relative_to_where_it_began(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "elsewhere").mkdir()
        graph = graph_of()
        with graph.track_run("a") as run:
            monkeypatch.chdir(tmp_path / "elsewhere")
            graph.forward(1)
            run.log("a", 1)
        assert run.path.parent == tmp_path / ".soma" / "runs"
        assert read(run, "status.json")["state"] == "completed"
        assert list((tmp_path / "elsewhere").iterdir()) == []

    def test_no_process_is_started(self, tmp_path, monkeypatch):
        def never(*_args, **_how):
            raise AssertionError("a process was started")

        for module, name in (
            (os, "fork"),
            (os, "posix_spawn"),
            (os, "system"),
            (subprocess, "Popen"),
            (_posixsubprocess, "fork_exec"),
        ):
            monkeypatch.setattr(module, name, never)
        graph = graph_of()
        with graph.track_run("a", tmp_path) as run:
            graph.forward(1)
            run.log("a", 1)
        assert read(run, "status.json")["state"] == "completed"

    def test_a_module_that_waits_to_be_used_is_not_loaded(self, tmp_path, monkeypatch):
        (tmp_path / "soma_lazy_probe.py").write_text("raise RuntimeError('loaded')\n")
        monkeypatch.syspath_prepend(tmp_path)
        spec = importlib.util.find_spec("soma_lazy_probe")
        spec.loader = importlib.util.LazyLoader(spec.loader)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "soma_lazy_probe", module)
        spec.loader.exec_module(module)
        with graph_of().track_run("a", tmp_path) as run:
            pass
        assert "soma_lazy_probe" not in read(run, "manifest.json")["versions"]

    def test_an_interpreter_without_a_command_line(self, tmp_path, monkeypatch):
        monkeypatch.delattr(sys, "argv")
        with graph_of().track_run("a", tmp_path) as run:
            pass
        assert read(run, "manifest.json")["argv"] == []


class TestArguments:
    @pytest.mark.parametrize("name", ["", " \n", None, 3, b"a"])
    def test_names(self, tmp_path, name):
        with pytest.raises(InvalidInput, match="track_run: a name is a text"):
            graph_of().track_run(name, tmp_path)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("tags", ["abc", [1], {"a"}, None, [""], ["a", None]])
    def test_tags(self, tmp_path, tags):
        with pytest.raises(InvalidInput, match="track_run: tags is a list of texts"):
            graph_of().track_run("a", tmp_path, tags=tags)

    @pytest.mark.parametrize(
        ("params", "match"),
        [
            ([1], "params is a dict"),
            ({1: 2}, "params must be a dict whose keys are texts"),
            ({"a": {"b": [object]}}, r"params\['a'\]\['b'\]\[0\] must be plain data"),
            ({"a": np.zeros(2)}, r"params\['a'\] must be plain data"),
        ],
    )
    def test_params(self, tmp_path, params, match):
        with pytest.raises(InvalidInput, match=match):
            graph_of().track_run("a", tmp_path, params=params)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("root", ["", 3, None, b"abc", "a\0b", "a\ud800"])
    def test_roots(self, root):
        with pytest.raises(InvalidInput, match="track_run: root is the path of a folder"):
            graph_of().track_run("a", root)

    def test_a_path_of_bytes(self):
        class Bytes:
            def __fspath__(self):
                return b"abc"

        with pytest.raises(InvalidInput, match="track_run: root is the path of a folder"):
            graph_of().track_run("a", Bytes())

    def test_what_json_has_no_writing_for(self, tmp_path):
        params = {
            "nan": math.nan,
            "inf": [math.inf, -math.inf],
            "huge": 10**5000,
            "np": np.float32(0.5),
            "half": "\ud800 ü",
        }
        with graph_of().track_run("ü\ud800", tmp_path, params=params) as run:
            pass
        manifest = read(run, "manifest.json")
        assert manifest["name"] == "ü\ud800"
        assert manifest["params"] == {
            "nan": "NaN",
            "inf": ["Infinity", "-Infinity"],
            "huge": "<int>",
            "np": 0.5,
            "half": "\ud800 ü",
        }

    def test_params_are_a_copy(self, tmp_path):
        params = {"a": [1]}
        with graph_of().track_run("a", tmp_path, params=params) as run:
            params["a"].append(2)
        assert read(run, "manifest.json")["params"] == {"a": [1]}


class TestMetrics:
    @pytest.mark.parametrize(
        ("value", "written"),
        [
            (1, 1.0),
            (0.5, 0.5),
            (math.nan, "NaN"),
            (math.inf, "Infinity"),
            (-math.inf, "-Infinity"),
            (np.float32(0.25), 0.25),
            (np.float64("nan"), "NaN"),
            (np.int8(-3), -3.0),
            (np.array(0.75), 0.75),
            (np.uint64(2**63), float(2**63)),
        ],
    )
    def test_numbers(self, tmp_path, value, written):
        heard = []
        graph = graph_of()
        graph.on_event(heard.append)
        with graph.track_run("a", tmp_path) as run:
            run.log("loss", value, step=np.int64(3))
        (metric,) = lines(run, "metrics.jsonl")
        assert metric["value"] == written
        assert type(metric["step"]) is int
        (event,) = lines(run)
        assert event["metric"] == {"name": "loss", "value": written, "step": 3, "timestamp": None}
        assert event["run_id"] == run.id
        (said,) = heard
        assert said["event_type"] == "MetricReported"
        assert said["run_id"] == run.id

    @pytest.mark.parametrize(
        "value",
        [True, np.True_, 1j, "1", None, [1], np.array([1.0]), np.array(["a"]), 10**400, object()],
    )
    def test_what_is_no_number(self, tmp_path, value):
        with graph_of().track_run("a", tmp_path) as run:
            with pytest.raises(InvalidInput, match="value must be a number"):
                run.log("loss", value)
            run.log("loss", 1)
        assert [one["value"] for one in lines(run, "metrics.jsonl")] == [1.0]
        assert read(run, "status.json")["lost_events"] == 0

    @pytest.mark.parametrize(
        ("name", "step"), [(3, None), (None, None), ("a", 1.5), ("a", True), ("a", "1")]
    )
    def test_names_and_steps(self, tmp_path, name, step):
        run = graph_of().track_run("a", tmp_path)
        with pytest.raises(InvalidInput, match="must be a"):
            run.log(name, 1, step=step)
        run.finish()
        assert (run.path / "events.jsonl").read_text() == ""

    def test_refused_also_where_nothing_is_recorded(self, capsys):
        run = graph_of().track_run("a", "/proc/nope")
        run.log("a", 1)
        with pytest.raises(InvalidInput):
            run.log("a", "b")
        run.finish()
        assert capsys.readouterr().err.count("\n") == 1

    def test_of_epochs_and_trials(self, tmp_path):
        graph = graph_of()
        with graph.track_run("a", tmp_path) as run:
            graph.emit("EpochCompleted", run_id="r", epoch=2, metrics={"f1": 0.5, "nan": math.nan})
            graph.emit(
                "TrialMetric",
                study_id="s",
                trial_id="t",
                metric={"name": "a", "value": 1, "timestamp": 12.5},
            )
            graph.emit("MetricReported", run_id="r", metric={"name": "b", "value": 2}, node_id="n")
        found = lines(run, "metrics.jsonl")
        assert [(one["name"], one["value"], one["step"]) for one in found] == [
            ("f1", 0.5, 2),
            ("nan", "NaN", 2),
            ("a", 1.0, None),
            ("b", 2.0, None),
        ]
        assert [one["trial_id"] for one in found] == [None, None, "t", None]
        assert [one["node_id"] for one in found] == [None, None, None, "n"]
        assert found[2]["ts"] == 12.5

    def test_from_worker_threads(self, tmp_path):
        graph = graph_of()
        with graph.track_run("a", tmp_path) as run:

            def work(number):
                for step in range(100):
                    run.log(f"m{number}", step, step=step)
                    graph.emit("mine", number=number)

            run_in_threads(work, 8)
        events = lines(run)
        assert [one["seq"] for one in events] == list(range(1, 1601))
        found = lines(run, "metrics.jsonl")
        for number in range(8):
            mine = [one["step"] for one in found if one["name"] == f"m{number}"]
            assert mine == list(range(100))


class TestEvents:
    def test_fields_of_ones_own_leave_the_record_its_own(self, tmp_path):
        graph = graph_of()
        with graph.track_run("a", tmp_path) as run:
            graph.emit("mine", seq=7, ts="never", name="x")
        (event,) = lines(run)
        assert event["seq"] == 1
        assert type(event["ts"]) is float
        assert (event["seq_"], event["ts_"], event["name"]) == (7, "never", "x")

    def test_what_is_nested_as_deep_as_may_be(self, tmp_path):
        graph = graph_of()
        value = math.nan
        for _ in range(MAX_DEPTH):
            value = [value]
        with graph.track_run("a", tmp_path, params={"a": value[0]}) as run:
            graph.emit("mine", value=value)
        found = lines(run)[0]["value"]
        for _ in range(MAX_DEPTH):
            (found,) = found
        assert found == "NaN"
        assert "<" not in (run.path / "manifest.json").read_text().partition('"notes"')[0]

    def test_they_are_the_events_of_this_graph(self, tmp_path):
        one, other = graph_of(), graph_of(Add(5))
        with one.track_run("one", tmp_path) as first, other.track_run("two", tmp_path) as second:
            one.forward(1, run_id="of one")
            other.forward(1, run_id="of two")
        assert {event["run_id"] for event in lines(first)} == {"of one"}
        assert {event["run_id"] for event in lines(second)} == {"of two"}

    def test_nested_runs_of_one_graph(self, tmp_path):
        graph = graph_of()
        with graph.track_run("outer", tmp_path) as outer:
            graph.forward(1, run_id="a")
            with graph.track_run("inner", tmp_path) as inner:
                graph.forward(1, run_id="b")
            graph.forward(1, run_id="c")
        assert list(dict.fromkeys(one["run_id"] for one in lines(outer))) == ["a", "b", "c"]
        assert {one["run_id"] for one in lines(inner)} == {"b"}
        assert {read(run, "status.json")["state"] for run in (outer, inner)} == {"completed"}

    def test_a_number_goes_to_the_run_that_it_was_given(self, tmp_path):
        graph = graph_of()
        with graph.track_run("outer", tmp_path) as outer:
            outer.log("loss", 1)
            with graph.track_run("inner", tmp_path) as inner:
                outer.log("loss", 2)
                inner.log("loss", 20)
                graph.emit("MetricReported", run_id="mine", metric={"name": "all", "value": 3})
            outer.log("loss", 4)
        found = {
            run.name: [(one["name"], one["value"]) for one in lines(run, "metrics.jsonl")]
            for run in (outer, inner)
        }
        assert found == {
            "outer": [("loss", 1.0), ("loss", 2.0), ("all", 3.0), ("loss", 4.0)],
            "inner": [("loss", 20.0), ("all", 3.0)],
        }
        for run in (outer, inner):
            assert [one["seq"] for one in lines(run)] == list(range(1, len(lines(run)) + 1))

    def test_in_any_order(self, tmp_path):
        graph = graph_of()
        first = graph.track_run("first", tmp_path)
        second = graph.track_run("second", tmp_path)
        graph.forward(1, run_id="both")
        first.finish()
        graph.forward(1, run_id="one")
        second.finish()
        assert {one["run_id"] for one in lines(first)} == {"both"}
        assert {one["run_id"] for one in lines(second)} == {"both", "one"}

    def test_a_copy_of_the_graph_is_not_tracked(self, tmp_path):
        graph = graph_of()
        with graph.track_run("a", tmp_path) as run:
            copy.deepcopy(graph).forward(1)
            copy.copy(graph).forward(1)
            graph.forward(1, run_id="mine")
        assert {one["run_id"] for one in lines(run)} == {"mine"}
        copied = copy.deepcopy(graph)
        with copied.track_run("b", tmp_path) as other:
            copied.forward(1)
        assert kinds(other)[-1] == "RunCompleted"

    def test_from_a_callback(self, tmp_path):
        graph, runs = graph_of(), []

        def track(event):
            if event["event_type"] == "RunStarted":
                runs.append(graph.track_run("a", tmp_path))
            if event["event_type"] == "RunCompleted":
                runs[-1].log("done", 1)
                runs[-1].finish()

        with graph.on_event(track):
            graph.forward(1)
        assert kinds(runs[0])[:2] == ["NodeStarted", "NodeCompleted"]
        assert read(runs[0], "status.json")["state"] == "completed"

    def test_what_is_logged_in_a_callback(self, tmp_path):
        graph = graph_of()
        with graph.track_run("a", tmp_path) as run:
            graph.on_event(
                lambda event: (
                    run.log("ms", event["duration"])
                    if event["event_type"] == "NodeCompleted"
                    else None
                )
            )
            graph.forward(1)
        assert kinds(run)[-2:] == ["MetricReported", "RunCompleted"]

    def test_a_failure_is_in_it(self, tmp_path):
        def broken(x):
            raise ValueError("no\ngood")

        graph = graph_of(broken)
        with pytest.raises(ValueError, match="no\ngood"), graph.track_run("a", tmp_path) as run:
            graph.forward(1)
        assert kinds(run) == ["RunStarted", "NodeStarted", "NodeFailed", "RunFailed"]
        status = read(run, "status.json")
        assert (status["state"], status["error"]) == ("failed", "ValueError: no\ngood")


class TestEnding:
    @pytest.mark.parametrize(
        ("error", "state", "said"),
        [
            (ValueError("bad"), "failed", "ValueError: bad"),
            (KeyboardInterrupt(), "interrupted", "KeyboardInterrupt"),
            (SystemExit(), "completed", None),
            (SystemExit(0), "completed", None),
            (SystemExit(3), "failed", "SystemExit: 3"),
            (SystemExit("why"), "failed", "SystemExit: why"),
        ],
    )
    def test_by_an_error(self, tmp_path, error, state, said):
        with pytest.raises(type(error)), graph_of().track_run("a", tmp_path) as run:
            raise error
        status = read(run, "status.json")
        assert (status["state"], status["error"]) == (state, said)

    def test_by_one_that_cannot_be_shown(self, tmp_path):
        class Shy(Exception):
            def __str__(self):
                raise RuntimeError

        run = graph_of().track_run("a", tmp_path)
        run.finish(Shy())
        assert read(run, "status.json")["error"] == "Shy: (its message cannot be shown)"

    def test_twice(self, tmp_path):
        with graph_of().track_run("a", tmp_path) as run:
            run.finish()
            first = (run.path / "status.json").read_text()
            run.finish(ValueError("late"))
        assert (run.path / "status.json").read_text() == first
        assert repr(run).endswith("finished>")
        with pytest.raises(InvalidInput, match="The run 'a' is finished"):
            run.__enter__()

    def test_by_many_threads_at_once(self, tmp_path):
        run = graph_of().track_run("a", tmp_path)
        barrier = threading.Barrier(8)

        def finish(number):
            barrier.wait(60)
            run.finish()

        run_in_threads(finish, 8)
        assert read(run, "status.json")["state"] == "completed"

    def test_log_after_it(self, tmp_path):
        graph = graph_of()
        heard = []
        graph.on_event(heard.append)
        with graph.track_run("a", tmp_path) as run:
            run.log("a", 1)
        with pytest.raises(InvalidInput, match=r"log\('a'\): the run 'a' is finished"):
            run.log("a", 2)
        graph.forward(1)
        assert len(lines(run)) == 1
        assert len(heard) == 5

    def test_nothing_of_it_stays(self, tmp_path):
        def state():
            threads = {one.ident for one in threading.enumerate()}
            return threads, set(names_in("/proc/self/fd")), atexit._ncallbacks()

        graph = graph_of()
        with graph.track_run("a", tmp_path):
            pass
        wait_for(lambda: not [one for one in threading.enumerate() if "heart" in one.name])
        before = state()
        for _ in range(5):
            with graph.track_run("a", tmp_path) as run:
                run.log("a", 1)
        wait_for(lambda: not [one for one in threading.enumerate() if "heart" in one.name])
        assert state()[:2] == before[:2]
        assert not graph._events().listening

    def test_ctrl_c_while_it_ends(self, tmp_path):
        run = graph_of().track_run("a", tmp_path)
        with ctrl_c_in(JsonlSink, "close"):
            run.finish()
        assert read(run, "status.json")["state"] == "completed"

    def test_ctrl_c_while_its_end_is_written(self, tmp_path):
        run = graph_of().track_run("a", tmp_path)
        with ctrl_c_in(status_module, "replace_json"):
            run.finish(ValueError("bad"))
        assert read(run, "status.json")["state"] == "running"
        run._at_exit()  # what the end of the interpreter does
        status = read(run, "status.json")
        assert (status["state"], status["error"]) == ("failed", "ValueError: bad")

    def test_in_the_middle_of_a_write(self, tmp_path, monkeypatch):
        """As a signal handler may."""
        graph = graph_of()
        run = graph.track_run("a", tmp_path)
        write = LineFile.write

        def writes(self, line):
            monkeypatch.undo()
            run.finish()
            write(self, line)

        monkeypatch.setattr(LineFile, "write", writes)
        done = threading.Thread(target=lambda: graph.forward(1), daemon=True)
        done.start()
        done.join(60)
        assert not done.is_alive()
        assert read(run, "status.json")["state"] == "completed"


class TestTrouble:
    @pytest.mark.parametrize("root", ["/proc/nope", "/sys/nope/x", "in the way", "in the way/x/y"])
    def test_a_root_that_cannot_be_written(self, tmp_path, monkeypatch, capsys, root):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "in the way").write_text("mine")
        graph = graph_of()
        with graph.track_run("a", root) as run:
            assert graph.forward(1) == 2
            run.log("a", 1)
            assert run.path is None
        (said,) = capsys.readouterr().err.splitlines()
        assert said.startswith("soma: the run 'a' is not recorded, and the run goes on: ")
        assert said.endswith("Choose a folder that can be written: track_run('a', root=...)")
        assert (tmp_path / "in the way").read_text() == "mine"
        assert names_in(tmp_path) == ["in the way"]
        assert "not recorded" in repr(run)

    def test_a_name_with_lines_is_one_line(self, capsys):
        graph_of().track_run("a\nb", "/proc/no\npe").finish()
        assert capsys.readouterr().err.count("\n") == 1

    def test_a_stderr_that_is_closed(self, tmp_path, monkeypatch):
        class Closed:
            def write(self, text):
                raise ValueError("closed")

        monkeypatch.setattr("sys.stderr", Closed())
        with graph_of().track_run("a", "/proc/nope"):
            pass
        graph = graph_of()
        with graph.track_run("a", tmp_path) as run:
            shutil.rmtree(run.path)
            graph.node("late", Add())
            graph.forward(1)
            run.log("a", 1)

    def test_the_folder_is_removed_while_it_runs(self, tmp_path, capsys):
        graph = graph_of()
        with graph.track_run("a", tmp_path) as run:
            graph.forward(1)
            shutil.rmtree(run.path)
            graph.node("late", Add())
            for _ in range(3):
                assert graph.forward(1) == {"add": 2, "late": 2}
                run.log("a", 1)
        said = capsys.readouterr().err.splitlines()
        assert len(said) == 3
        assert all("and the run goes on: FileNotFoundError: " in line for line in said)
        assert not run.path.exists()

    def test_no_thread_can_be_started(self, tmp_path, monkeypatch, capsys):
        def never(self):
            raise RuntimeError("can't start new thread")

        graph = graph_of()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", never)
            run = graph.track_run("a", tmp_path)
        graph.forward(1)
        run.finish()
        assert read(run, "status.json")["state"] == "completed"
        assert len(lines(run)) == 4
        assert "RuntimeError: can't start new thread" in capsys.readouterr().err

    @pytest.mark.parametrize("kind", [OSError, KeyboardInterrupt])
    @pytest.mark.parametrize(
        "where",
        [
            *("recorder.make_manifest", "recorder.describe_graph", "recorder.replace_json"),
            *("recorder.JsonlSink", "status.Status.start_heart"),
        ],
    )
    def test_nothing_stays_of_one_that_did_not_begin(self, tmp_path, monkeypatch, where, kind):
        def fails(*_args, **_how):
            raise kind("no")

        graph = graph_of()
        with monkeypatch.context() as patch:
            patch.setattr(f"soma.tracking.{where}", fails)
            if kind is OSError:
                graph.track_run("a", tmp_path).finish()
            else:
                with pytest.raises(KeyboardInterrupt):
                    graph.track_run("a", tmp_path)
        assert folders(tmp_path) == []
        assert not graph._events().listening

    def test_a_filter_that_will_not_be_described(self, tmp_path, capsys):
        class Shy(Filter):
            def __init__(self):
                self.parts = []

            def __getattribute__(self, name):
                if name == "__dict__" and "shy" in sys.argv:
                    raise RuntimeError("not me")
                return super().__getattribute__(name)

            def forward(self, x, state):
                return x

        graph = graph_of(Shy())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["shy"])
            run = graph.track_run("a", tmp_path)
        assert graph.forward(1) == 1
        run.finish()
        assert run.path is None
        assert capsys.readouterr().err == (
            "soma: the run 'a' is not recorded, and the run goes on: RuntimeError: not me\n"
        )

    def test_a_full_disk(self, tmp_path, monkeypatch, capsys):
        graph = graph_of()
        real, full = os.write, []

        def write(file, data):
            if not full:
                return real(file, data)
            if len(full) == 1:
                full.append("cut")
                return real(file, bytes(data)[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "write", write)
        with graph.track_run("a", tmp_path) as run:
            graph.emit("one")
            full.append("full")
            graph.emit("two")
            graph.emit("three")
            run.log("four", 1)
            full.clear()
            graph.emit("five")
            run.log("six", 1)
        text = (run.path / "events.jsonl").read_text().split("\n")
        assert [json.loads(text[at])["seq"] for at in (0, 2, 3)] == [1, 5, 6]
        assert text[1].startswith('{"seq": 2')
        with pytest.raises(json.JSONDecodeError):
            json.loads(text[1])
        assert [one["name"] for one in lines(run, "metrics.jsonl")] == ["six"]
        assert read(run, "status.json")["lost_events"] == 3
        (said,) = capsys.readouterr().err.splitlines()
        assert said == (
            f"soma: an event was not written to {run.path}, and the run goes on: "
            "OSError: [Errno 28] No space left on device"
        )

    def test_what_goes_wrong_in_the_record_itself_is_counted(self, tmp_path, monkeypatch, capsys):
        def broken(event):
            raise RuntimeError("a fault")

        sink = JsonlSink(tmp_path, before=broken)
        for name in "ab":
            sink(UserEvent(name, {}))
        sink._before = None
        sink(UserEvent("c", {}))
        assert sink.lost == 2
        sink.close()
        sink(UserEvent("d", {}))
        (line,) = (tmp_path / "events.jsonl").read_text().splitlines()
        assert json.loads(line)["seq"] == 3
        assert capsys.readouterr().err.count("\n") == 1

    def test_a_sink_without_a_folder_is_refused(self):
        with pytest.raises(InvalidInput, match=r"with g\.track_run"):
            graph_of().on_event("jsonl")
        assert not graph_of()._events().listening

    def test_filters_whose_values_cannot_be_shown(self, tmp_path):
        class Shy:
            def __repr__(self):
                raise RuntimeError

            __str__ = __repr__

        class Odd(Filter):
            _secret = ("token",)

            def __init__(self, token, value):
                self.token = token
                self.value = value

            def forward(self, x, state):
                return x

        with graph_of(Odd(Shy(), Shy())).track_run("a", tmp_path) as run:
            pass
        assert read(run, "graph.json")["nodes"][0]["params"] == {"token": "***", "value": "<Shy>"}


class TestHeartbeat:
    def test_it_moves_on_and_stops(self, tmp_path, monkeypatch):
        monkeypatch.setattr("soma.tracking.status.HEARTBEAT_S", 0.01)
        with graph_of().track_run("a", tmp_path) as run:
            first = read(run, "status.json")
            wait_for(lambda: read(run, "status.json")["heartbeat_at"] > first["heartbeat_at"])
            second = read(run, "status.json")
            assert second["state"] == "running"
            assert second["finished_at"] is None
            assert second["updated_at"] == second["heartbeat_at"]
            wait_for(lambda: read(run, "status.json")["heartbeat_at"] > second["heartbeat_at"])
        wait_for(lambda: not [one for one in threading.enumerate() if "heart" in one.name])
        last = read(run, "status.json")
        assert last["state"] == "completed"
        assert {path.name for path in run.path.iterdir()} == {
            *("manifest.json", "status.json", "graph.json", "events.jsonl")
        }

    def test_one_that_ends_is_not_said_to_run_again(self, tmp_path, monkeypatch):
        monkeypatch.setattr("soma.tracking.status.HEARTBEAT_S", 0)
        for _ in range(20):
            with graph_of().track_run("a", tmp_path) as run:
                pass
            assert read(run, "status.json")["state"] == "completed"
        wait_for(lambda: not [one for one in threading.enumerate() if "heart" in one.name])
        states = [
            json.loads((path / "status.json").read_text())["state"]
            for path in (tmp_path / "runs").iterdir()
        ]
        assert states == ["completed"] * 20

    def test_a_status_that_cannot_be_written_is_one_line(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr("soma.tracking.status.HEARTBEAT_S", 0.001)
        tried = []

        def fails(*_args, **_how):
            tried.append(1)
            raise OSError("no")

        with graph_of().track_run("a", tmp_path) as run:
            monkeypatch.setattr("soma.tracking.status.replace_json", fails)
            wait_for(lambda: len(tried) > 3)
        (said,) = capsys.readouterr().err.splitlines()
        assert said == (
            f"soma: the status of a run was not written to {run.path}, and the run goes on: "
            "OSError: no"
        )


# ---------------------------------------------------------------- files

NUMBERS = st.integers() | st.floats() | st.integers(10**4290, 10**4310)
DATA = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(st.characters(codec=None)),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec=None)), inner, max_size=4)
    ),
    max_leaves=10,
)


def as_written(value):
    """Return what comes back, worked out from what the specification says."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124  # a NaN
    if type(value) is int and abs(value) >= 10 ** sys.get_int_max_str_digits():
        return "<int>"
    if isinstance(value, dict):
        return {name: as_written(one) for name, one in value.items()}
    return [as_written(one) for one in value] if isinstance(value, list) else value


class TestFiles:
    @given(DATA)
    @settings(max_examples=150, deadline=None)
    def test_any_data_is_one_line_of_ascii(self, data):
        text = json_text(data)
        assert text.isascii()
        assert text.isprintable()

        def refuse(constant):
            raise AssertionError(constant)

        found = json.loads(text, parse_constant=refuse)
        assert repr(found) == repr(as_written(data))  # 0.0 is not -0.0, and 1 is not True

    def test_what_is_no_data_at_all(self):
        rounds = []
        rounds.append(rounds)
        assert json.loads(json_text({"a": object(), "b": {1, 2}, 3: b"x", "c": (1,)})) == {
            "a": "<object>",
            "b": "<set>",
            "3": "<bytes>",
            "c": [1],
        }
        assert "<list>" in json_text(rounds)

    @given(st.lists(DATA, max_size=5))
    @settings(max_examples=50, deadline=None)
    def test_lines_come_back(self, tmp_path_factory, records):
        path = tmp_path_factory.mktemp("lines") / "a.jsonl"
        for part in (records[:2], records[2:]):  # opened again, it goes on
            file = LineFile(path)
            for record in part:
                file.write(json_text(record))
            file.close(sync=True)
            file.close()
        found = [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
        assert repr(found) == repr(as_written(records))

    @given(
        st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=9)),
        st.lists(st.none() | st.integers(0, 5), max_size=60),
    )
    @settings(max_examples=150, deadline=None)
    def test_whatever_is_cut_a_line_that_was_written_is_whole(
        self, tmp_path_factory, texts, limits
    ):
        """A limit says how many bytes a write takes; None, that it takes all; 0, that it fails."""
        path = tmp_path_factory.mktemp("cut") / "a.jsonl"
        file = LineFile(path)
        real, left, whole = os.write, list(limits), []

        def write(where, data):
            limit = left.pop() if left else None
            if limit is None:
                return real(where, data)
            if not limit:
                raise OSError(errno.ENOSPC, "full")
            return real(where, bytes(data)[:limit])

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "write", write)
            for place, text in enumerate(texts):
                line = f"<{place}:{text}>"
                try:
                    file.write(line)
                except OSError:
                    continue
                whole.append(line)
        file.close()
        found = path.read_text().split("\n")
        complete = {f"<{place}:{text}>" for place, text in enumerate(texts)}
        kept = [line for line in found if line in complete]
        # One of which only the newline was cut may be there as well: nothing of it is missing.
        assert [line for line in kept if line in whole] == whole
        assert len(set(kept)) == len(kept)

    @given(DATA, DATA)
    @settings(max_examples=50, deadline=None)
    def test_replaced_whole(self, tmp_path_factory, first, second):
        folder = tmp_path_factory.mktemp("replaced")
        for data in (first, second):
            replace_json(folder / "a.json", data, sync=True)
            text = (folder / "a.json").read_text(encoding="ascii")
            assert text.endswith("\n")
            assert repr(json.loads(text)) == repr(as_written(data))
        assert names_in(folder) == ["a.json"]

    def test_a_replacement_that_fails_changes_nothing(self, tmp_path):
        path = tmp_path / "a.json"
        replace_json(path, 1)
        for what in ("fsync", "replace"):
            with ctrl_c_in(os, what):
                replace_json(path, 2, sync=True)
            assert path.read_text() == "1\n"
            assert names_in(tmp_path) == ["a.json"]

    def test_readers_see_the_old_one_or_the_new_one(self, tmp_path):
        path, stop = tmp_path / "a.json", threading.Event()
        replace_json(path, ["x"] * 1000)

        def write():
            number = 0
            while not stop.is_set():
                number += 1
                replace_json(path, [str(number)] * 1000)

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        try:
            for _ in range(300):
                found = json.loads(path.read_text())
                assert len(found) == 1000
                assert len(set(found)) == 1
        finally:
            stop.set()
            thread.join(60)


# ---------------------------------------------------------------- git

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")


def git(folder, *words):
    done = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(folder), *words],  # noqa: S607  # of the system
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"},
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repo"
    (folder / "deep" / "er").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "one")
    return folder


@needs_git
class TestGit:
    def head(self, folder):
        return git(folder, "rev-parse", "HEAD")

    def test_a_branch(self, repository):
        wanted = {"sha": self.head(repository), "branch": "main", "dirty": None}
        assert git_head(repository) == wanted
        assert git_head(repository / "deep" / "er") == wanted

    @pytest.mark.parametrize("name", ["feature/a.b/c", "üñ"])
    def test_names(self, repository, name):
        git(repository, "checkout", "-q", "-b", name)
        git(repository, "commit", "-q", "--allow-empty", "-m", "two")
        assert git_head(repository) == {
            "sha": self.head(repository),
            "branch": name,
            "dirty": None,
        }

    def test_detached(self, repository):
        sha = self.head(repository)
        git(repository, "checkout", "-q", "--detach")
        assert git_head(repository) == {"sha": sha, "branch": None, "dirty": None}

    def test_packed(self, repository):
        git(repository, "tag", "-a", "-m", "x", "main-tag")
        git(repository, "branch", "main2")
        git(repository, "pack-refs", "--all")
        assert not (repository / ".git" / "refs" / "heads" / "main").exists()
        assert git_head(repository)["sha"] == self.head(repository)
        git(repository, "commit", "-q", "--allow-empty", "-m", "two")
        assert git_head(repository)["sha"] == self.head(repository)

    @pytest.mark.parametrize("packed", [False, True])
    def test_a_worktree(self, repository, tmp_path, packed):
        tree = tmp_path / "tree"
        git(repository, "worktree", "add", "-q", "-b", "side", str(tree))
        git(tree, "commit", "-q", "--allow-empty", "-m", "two")
        if packed:
            git(repository, "pack-refs", "--all")
        assert self.head(tree) != self.head(repository)
        assert git_head(tree) == {"sha": self.head(tree), "branch": "side", "dirty": None}
        git(tree, "checkout", "-q", "--detach")
        assert git_head(tree)["branch"] is None

    def test_a_submodule(self, repository, tmp_path):
        git(
            repository,
            *("-c", "protocol.file.allow=always", "submodule", "add", "-q"),
            *(str(repository), "sub"),
        )
        git(repository / "sub", "commit", "-q", "--allow-empty", "-m", "sub")
        assert git_head(repository / "sub")["sha"] == self.head(repository / "sub")
        assert git_head(repository / "sub")["sha"] != git_head(repository)["sha"]

    def test_sha256(self, tmp_path):
        git(tmp_path, "init", "-q", "-b", "main", "--object-format=sha256")
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", "one")
        assert git_head(tmp_path)["sha"] == self.head(tmp_path)
        assert len(self.head(tmp_path)) == 64

    def test_empty(self, tmp_path):
        git(tmp_path, "init", "-q", "-b", "main")
        assert git_head(tmp_path) == {"sha": None, "branch": "main", "dirty": None}

    def test_it_is_in_the_manifest(self, repository, monkeypatch):
        monkeypatch.chdir(repository / "deep")
        with graph_of().track_run("a", repository / "r") as run:
            pass
        assert read(run, "manifest.json")["git"]["sha"] == self.head(repository)


class TestNoGit:
    def test_there_is_none(self, tmp_path):
        assert git_head(tmp_path) is None

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"gitdir: nowhere",
            b"gitdir: a\0b",
            b"gitdir: " + b"x" * 5000,
            b"\xff\xfe\x00",
            b"gitdir: .git",
        ],
    )
    def test_a_file_that_leads_nowhere(self, tmp_path, content):
        (tmp_path / ".git").write_bytes(content)
        assert git_head(tmp_path) is None

    @pytest.mark.parametrize("head", [b"", b"abc", b"\xff", b"\0", b"f" * 39, b"g" * 40, None])
    def test_a_head_that_is_none(self, tmp_path, head):
        (tmp_path / ".git").mkdir()
        if head is not None:
            (tmp_path / ".git" / "HEAD").write_bytes(head)
        assert git_head(tmp_path) is None

    @pytest.mark.parametrize(
        "ref", [b"refs/heads/a\0b", b"../../secret", b"", b"refs/heads/" + b"x" * 5000]
    )
    def test_a_ref_that_is_none(self, tmp_path, ref):
        (tmp_path / ".git").mkdir()
        (tmp_path / ".git" / "HEAD").write_bytes(b"ref: " + ref)
        (tmp_path / "secret").write_text("hunter2!")
        found = git_head(tmp_path)
        assert found is None or found["sha"] is None

    def test_links_that_go_round(self, tmp_path):
        (tmp_path / ".git").symlink_to(tmp_path / ".git")
        assert git_head(tmp_path) is None
        (tmp_path / "a").mkdir()
        (tmp_path / "loop").symlink_to(tmp_path / "loop")
        (tmp_path / "a" / ".git").write_text("gitdir: ../loop")
        assert git_head(tmp_path / "a") is None

    def test_packed_refs_that_are_damaged(self, tmp_path):
        (tmp_path / ".git").mkdir()
        (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
        (tmp_path / ".git" / "packed-refs").write_text("\n \n# x\nshort refs/heads/main\n^abc\n")
        assert git_head(tmp_path) == {"sha": None, "branch": "main", "dirty": None}


class TestEndingBadly:
    """Whatever goes wrong at the end, the user's own exception comes through."""

    @pytest.mark.parametrize("name", ["cancel", "close"])
    def test_a_step_that_raises_keeps_no_other_from_being_taken(self, tmp_path, monkeypatch, name):
        graph = graph_of()
        run = graph.track_run("a", tmp_path)
        recorder = run._recorder
        thing = recorder._subscription if name == "cancel" else recorder._sink

        def fails(_self):
            raise RuntimeError("of ours")

        monkeypatch.setattr(type(thing), name, fails)
        with pytest.raises(KeyError, match="mine"), run:
            raise KeyError("mine")
        assert read(run, "status.json")["state"] == "failed"
        assert read(run, "status.json")["error"] == "KeyError: 'mine'"

    def test_where_secrets_cannot_be_read_nothing_is_told(self, tmp_path, monkeypatch):
        run = graph_of().track_run("a", tmp_path)

        def fails(_node):
            raise RuntimeError("of theirs")

        run._recorder._holders = [object()]
        monkeypatch.setattr(recorder_module, "secrets_of", fails)
        with pytest.raises(KeyError), run:
            raise KeyError("hunter2")
        assert read(run, "status.json")["error"] == "KeyError"

    @pytest.mark.parametrize(
        ("code", "state"),
        [(None, "completed"), (0, "completed"), (3, "failed"), ("why", "failed"), (0.0, "failed")],
    )
    def test_an_exit_is_judged_by_its_code(self, tmp_path, code, state):
        with pytest.raises(SystemExit), graph_of().track_run("a", tmp_path) as run:
            raise SystemExit(code)
        assert read(run, "status.json")["state"] == state

    def test_an_exit_with_an_array(self, tmp_path):
        with pytest.raises(SystemExit), graph_of().track_run("a", tmp_path) as run:
            raise SystemExit(np.zeros(2))
        assert read(run, "status.json")["state"] == "failed"

    def test_finish_takes_an_exception(self, tmp_path):
        run = graph_of().track_run("a", tmp_path)
        with pytest.raises(InvalidInput, match="takes the exception that ended a run, not 'why'"):
            run.finish("why")
        run.finish(ValueError("why"))
        assert read(run, "status.json")["error"] == "ValueError: why"

    def test_without_room_for_a_second_file_the_status_is_written_over(self, tmp_path, monkeypatch):
        run = graph_of().track_run("a", tmp_path)

        def full(path, data, *, sync=False):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(status_module, "replace_json", full)
        run.finish()
        assert read(run, "status.json")["state"] == "completed"


def test_methods_written_in_c_are_recorded_like_others(tmp_path):
    graph = Graph.somatize(str.upper, cache="off")
    with graph.track_run("a", tmp_path) as run:
        assert graph.forward("x") == "X"
    (node,) = read(run, "graph.json")["nodes"]
    assert node["kind"]["filter_name"] == "builtins.str.upper"


def test_the_sink_by_itself(tmp_path):
    bus = Bus()
    sink = JsonlSink(str(tmp_path))
    bus.subscribe(sink, plain=False)
    bus.emit(UserEvent("a", {"x": 1}))
    sink.close()
    sink.close()
    (line,) = (tmp_path / "events.jsonl").read_text().splitlines()
    assert {**json.loads(line), "ts": 0} == {"seq": 1, "ts": 0, "event_type": "a", "x": 1}
    assert not (tmp_path / "metrics.jsonl").exists()
