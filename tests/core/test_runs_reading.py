"""Tracked runs, read: whole ones, torn ones, those of the dead and those of the future."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from soma.errors import InvalidInput, PlanError, UnknownName
from soma.plan import Plan
from soma.tracking.alive import state_of, this_process
from soma.tracking.find import find_run, remove_run, runs
from soma.tracking.following import Follower
from soma.tracking.reading import Lines, number
from soma.tracking.view import RunView
from support.run_dirs import (
    ID,
    completed,
    dead_process,
    event,
    events_of_a_fit,
    hit,
    live_process,
    write,
    write_lines,
    write_run,
)

LONG_AGO = "2020-01-01T00:00:00+00:00"


def now_text(**ago):
    return (datetime.now(UTC) - timedelta(**ago)).isoformat()


class TestLines:
    @pytest.mark.parametrize(
        ("data", "records", "damaged", "cut"),
        [
            (b"", [], 0, 0),
            (b'{"a": 1}\n{"a": 2}\n', [{"a": 1}, {"a": 2}], 0, 0),
            (b'{"a": 1}\n{"a": 2}', [{"a": 1}, {"a": 2}], 0, 0),
            (b'{"a": 1}\n{"a": ', [{"a": 1}], 1, 1),
            (b'{"a": \n{"a": 2}\n', [{"a": 2}], 1, 0),
            (b'{"a": [1\n2]}\n', [], 2, 2),
            (b'{"a": 1} {"a": 2}\n{"a": 3}\n', [{"a": 3}], 1, 0),
            (b'7\n[1]\nnull\n"x"\n{"a": 1}\n', [{"a": 1}], 4, 0),
            (b'\n\n{"a": 1}\r\n  \n', [{"a": 1}], 0, 0),
            (b'{"a": "\xff"}\n{"a": "\xc3\xa9"}\n', [{"a": "é"}], 1, 0),
            (b"\0" * 40 + b'\n{"a": 1}\n', [{"a": 1}], 1, 0),
            (b'{"a": ' + b"[" * 100_000 + b'\n{"a": 1}\n', [{"a": 1}], 1, 0),
            (b'{"a": ' + b"1" * 10_000 + b'}\n{"a": 1}\n', [{"a": 1}], 1, 0),
        ],
    )
    def test_what_is_no_record_is_passed_over_and_counted(self, data, records, damaged, cut):
        lines = Lines(data)
        assert list(lines) == records
        assert (lines.damaged, lines.cut) == (damaged, cut)

    @pytest.mark.parametrize(
        ("value", "expected"),
        [(1, 1.0), (0.25, 0.25), ("Infinity", math.inf), ("-Infinity", -math.inf)]
        + [(one, None) for one in (None, True, "1", "nan", [], {}, 10**400)],
    )
    def test_numbers(self, value, expected):
        assert number(value) == expected
        assert math.isnan(number("NaN"))


class TestState:
    def status(self, process, heartbeat=LONG_AGO):
        return {"state": "running", "heartbeat_at": heartbeat, "process": process}

    @pytest.mark.parametrize("state", ["completed", "failed", "interrupted"])
    def test_what_a_run_says_of_its_end_holds(self, state):
        assert state_of({"state": state, "process": this_process()}) == state

    @pytest.mark.parametrize("state", [None, 7, "paused", ["running"]])
    def test_another_state_is_unknown(self, state):
        assert state_of({"state": state}) == "unknown"

    def test_a_process_that_lives(self):
        assert state_of(self.status(this_process())) == "running"
        with live_process() as process:
            assert state_of(self.status(process)) == "running"
        assert state_of(self.status(process)) == "crashed"

    def test_a_process_that_is_no_more(self):
        assert state_of(self.status(dead_process(), now_text())) == "crashed"

    def test_a_zombie_is_dead(self):
        child = subprocess.Popen([sys.executable, "-c", "pass"])
        try:
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
            process = {**this_process(), "pid": child.pid}
            process["started"] = int(
                Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
            )
            assert state_of(self.status(process)) == "crashed"
        finally:
            child.wait()

    def test_an_id_that_was_given_to_another(self):
        process = this_process()
        assert state_of(self.status({**process, "started": process["started"] - 1})) == "crashed"

    def test_a_command_may_be_called_anything(self, tmp_path):
        tool = tmp_path / "a) R (b"
        tool.symlink_to(shutil.which("sleep"))
        with subprocess.Popen([tool, "600"]) as child:
            try:
                text = Path(f"/proc/{child.pid}/stat").read_text()
                process = {**this_process(), "pid": child.pid}
                process["started"] = int(text.rpartition(")")[2].split()[19])
                assert state_of(self.status(process)) == "running"
            finally:
                child.kill()

    def test_without_its_start_the_id_alone_counts(self):
        with live_process() as process:
            assert state_of(self.status({**process, "started": None})) == "running"
        assert state_of(self.status({**process, "started": None}, now_text())) == "crashed"

    @pytest.mark.parametrize(
        "other",
        [
            {"boot_id": "another"},
            {"boot_id": None},
            {"pid_namespace": "pid:[1]"},
            {"pid_namespace": None},
            {"pid": 0},
            {"pid": -1},
            {"pid": True},
            {"pid": "1"},
            {"pid": 10**20},
        ],
    )
    def test_elsewhere_the_heartbeat_counts(self, other):
        process = {**this_process(), **other}
        assert state_of(self.status(process, now_text(seconds=30))) == "running"
        assert state_of(self.status(process, now_text(seconds=70))) == "crashed"
        assert state_of(self.status(process, now_text(hours=-5))) == "running"  # a clock set back

    @pytest.mark.parametrize("heartbeat", [None, "soon", 7, "0001-01-01T00:00:00+14:00"])
    def test_a_heartbeat_that_is_no_time(self, heartbeat):
        status = self.status(None, heartbeat)
        fresh = datetime.now(UTC).timestamp()
        assert state_of(status, written_at=fresh) == "running"
        assert state_of(status, written_at=fresh - 100) == "crashed"
        assert state_of(status) == "crashed"

    def test_a_time_without_a_zone_is_in_utc(self):
        naive = datetime.now(UTC).replace(tzinfo=None).isoformat()
        assert state_of(self.status(None, naive)) == "running"


class TestView:
    def test_what_was_started(self, tmp_path):
        view = RunView(write_run(tmp_path, tags=["a"], params={"lr": 0.1}))
        assert (view.id, view.name, view.kind, view.state) == (ID, "digits", "run", "completed")
        assert (view.tags, view.params, view.error, view.note) == (["a"], {"lr": 0.1}, None, "")
        assert view.created_at == datetime(2026, 11, 30, 4, 15, 0, 125_000, tzinfo=UTC)
        assert view.finished_at == view.created_at + timedelta(seconds=2.5)
        assert view.duration_ms == 2500.0
        assert view.path == tmp_path / "runs" / ID
        assert view.manifest()["run_id"] == ID
        assert view.status()["lost_events"] == 0
        assert view.graph()["edges"] == []
        assert view.plan() is None

    def test_a_plan(self, tmp_path):
        plan = {"format": 10**6}
        view = RunView(write_run(tmp_path, plan=plan))
        with pytest.raises(PlanError):
            view.plan()
        from soma import Graph

        text = Graph.somatize(len).compile().to_json()
        view = RunView(write_run(tmp_path, "run_b", plan=json.loads(text)))
        assert view.plan() == Plan.from_json(text)

    def test_what_it_did(self, tmp_path):
        view = RunView(write_run(tmp_path, events=events_of_a_fit()))
        (call,) = view.calls()
        assert (call.run_id, call.phase, call.outcome, call.seed) == ("c1", "fit", "completed", 7)
        assert (call.hits, call.computed, call.recomputed) == (4, 1, 0)
        assert (call.started, call.duration_ms, call.error) == (1001.0, 12.5, None)
        nodes = {one.node: one for one in view.nodes()}
        assert list(nodes) == ["scaler", "pca", "step"]
        assert (nodes["scaler"].computed, nodes["scaler"].duration_ms) == (1, 3.0)
        assert (nodes["step"].hits, nodes["step"].forwards, nodes["step"].bytes) == (3, 3, 100)
        assert [(one.node, one.what, one.passes) for one in view.reused()] == [
            ("pca", "state", ()),
            *(("step", "output", (number,)) for number in (1, 2, 3)),
        ]
        first = view.reused()[0]
        assert (first.key, first.tier, first.load_time) == ("cd" * 32, "Memory", 0.5)
        assert (first.bytes, first.call) == (50, "c1")
        assert [(one.node, one.outcome, one.arm) for one in view.decisions()] == [
            ("refine", "3 passes, stopped", None),
            ("classify", "took arm 'balanced'", "balanced"),
        ]
        assert (view.lost_events, view.damaged_lines, view.working()) == (0, 0, [])
        assert [one["seq"] for one in view.events()] == list(range(1, 12))
        assert [one["seq"] for one in view.events("BranchTaken", "RunStarted")] == [1, 10]

    def test_calls_that_failed_and_that_did_not_end(self, tmp_path):
        events = [
            event("RunStarted", "a", phase="fit", plan_summary={}),
            event("NodeStarted", "a", node_id="n", what="state", kind="Trainable", passes=[2]),
            event("NodeFailed", "a", node_id="n", what="state", error="E: no", passes=[2]),
            event("RunFailed", "a", error="E: no"),
            event("RunStarted", "b", phase="forward", plan_summary={}),
            event("NodeStarted", "b", node_id="m", what="output", kind="Stateless", passes=[]),
            event("NodeNotKept", "b", node_id="m", message="why"),
            completed("z", run_id="c", outcome="recomputed"),
        ]
        view = RunView(write_run(tmp_path, events=events))
        assert [(one.run_id, one.phase, one.outcome, one.duration_ms) for one in view.calls()] == [
            ("a", "fit", "failed", 3000.0),
            ("b", "forward", "unfinished", None),
            ("c", "", "unfinished", None),
        ]
        assert view.calls()[0].error == "E: no"
        assert view.calls()[2].recomputed == 1
        assert [tuple(one) for one in view.failures()] == [("n", "state", "E: no", (2,), "a")]
        assert [tuple(one) for one in view.working()] == [("m", "output", (), "b", 1006.0)]
        assert [tuple(one) for one in view.notices()] == [("NodeNotKept", "m", "why", "b")]
        assert [one.node for one in view.nodes("c")] == ["z"]

    @pytest.mark.parametrize(
        ("events", "told", "lost"),
        [
            ([{"seq": 1}, {"seq": 4}], 0, 2),
            ([{"seq": 1}, b'{"seq": 2, "ev\n', {"seq": 3}], 1, 1),
            ([{"seq": 1}, b'{"seq": 2, "ev'], 0, 1),
            ([{"seq": 1}], 3, 3),
            ([{"seq": 3}], 1, 2),
        ],
    )
    def test_events_that_are_lost(self, events, told, lost, tmp_path):
        records = [one if isinstance(one, bytes) else {**event("x"), **one} for one in events]
        view = RunView(write_run(tmp_path, events=records, lost_events=told))
        assert view.lost_events == lost

    @pytest.mark.parametrize(
        "odd",
        [
            {"event_type": ["RunStarted"]},
            {"node_id": 7},
            {"node_id": None},
            {"run_id": {}},
            {"duration": "long"},
            {"duration": True},
            {"bytes": -1},
            {"bytes": 1.5},
            {"passes": ["1"]},
            {"passes": 7},
            {"outcome": "guessed"},
            {"outcome": []},
            {"ts": None},
        ],
    )
    def test_an_event_that_is_not_what_it_should_be(self, odd, tmp_path):
        events = [{**completed("n", run_id="new"), **odd}, completed("m")]
        view = RunView(write_run(tmp_path, events=events))
        assert [one.node for one in view.nodes()] == ["m"]
        assert view.damaged_lines == 1
        assert "1 line damaged" in view.to_text()

    def test_metrics(self, tmp_path):
        lines = [
            {"name": "loss", "value": 0.5, "step": 1, "ts": 1.0, "node_id": "n"},
            {"name": "loss", "value": "NaN", "step": None, "ts": 2.0, "trial_id": "t"},
            {"name": "acc", "value": "Infinity", "ts": 3},
            {"name": "loss", "value": None, "ts": 3},
            {"name": "loss", "value": 1, "ts": 3, "step": "one"},
            b"{torn\n",
        ]
        view = RunView(write_run(tmp_path, metrics=lines))
        found = view.metrics()
        assert list(found) == ["loss", "acc"]
        assert tuple(found["loss"][0]) == (1, 0.5, 1.0, "n", None)
        assert math.isnan(found["loss"][1].value)
        assert found["loss"][1].trial_id == "t"
        assert found["acc"][0].value == math.inf
        assert view.damaged_lines == 3
        assert RunView(write_run(tmp_path, "run_b")).metrics() == {}

    def test_what_is_added_is_seen(self, tmp_path):
        folder = write_run(tmp_path, state="running", process=this_process())
        view = RunView(folder)
        assert (view.state, view.calls(), view.metrics()) == ("running", [], {})
        write_lines(folder / "events.jsonl", events_of_a_fit())
        write_lines(folder / "metrics.jsonl", [{"name": "a", "value": 1}])
        assert (len(view.calls()), list(view.metrics())) == (1, ["a"])
        write(folder / "status.json", {"state": "failed", "error": "E: no"})
        assert (view.state, view.error) == ("failed", "E: no")

    def test_what_is_given_out_is_the_callers(self, tmp_path):
        view = RunView(write_run(tmp_path, events=events_of_a_fit(), params={"a": 1}))
        for given in (view.manifest(), view.params, view.status(), view.graph()):
            given.clear()
        for given in (view.reused(), view.calls(), view.decisions(), view.tags):
            given.clear()
        assert view.params == {"a": 1}
        assert len(view.reused()) == 4

    def test_equal_by_folder(self, tmp_path, monkeypatch):
        folder = write_run(tmp_path)
        other = RunView(write_run(tmp_path, "run_b"))
        monkeypatch.chdir(tmp_path)
        assert RunView(folder) == RunView(f"runs/{ID}")
        assert len({RunView(folder), RunView(str(folder)), other}) == 2
        assert RunView(folder) != folder
        assert repr(other) == "<RunView 'run_b': completed>"

    @pytest.mark.parametrize("path", ["nothing", "", "a\0b", "\udc80", "x" * 5000])
    def test_what_is_no_run(self, path, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(InvalidInput, match=r"is no run: it has no manifest\.json"):
            RunView(path)

    def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(self, tmp_path):
        folder = write_run(tmp_path)
        (folder / "events.jsonl").unlink()
        os.mkfifo(folder / "events.jsonl")
        with pytest.raises(InvalidInput, match=r"events\.jsonl cannot be read: it is no file"):
            RunView(folder).calls()

    @pytest.mark.parametrize("name", ["events.jsonl", "graph.json", "status.json"])
    def test_a_file_that_is_not_there_is_named(self, name, tmp_path):
        view = RunView(write_run(tmp_path))
        (view.path / name).unlink()
        with pytest.raises(InvalidInput, match=f"{name} cannot be read: No such file"):
            (view.calls(), view.graph(), view.error)
        assert view.to_text()
        assert view._repr_html_()

    def test_a_folder_that_is_gone(self, tmp_path):
        view = RunView(write_run(tmp_path))
        shutil.rmtree(view.path)
        assert view.state == "unreadable"
        assert "manifest.json cannot be read: No such file" in view.note
        assert repr(view)
        assert view._repr_html_()

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("", "holds no JSON object"),
            ("[]", "holds no JSON object"),
            ('{"schema_version": 1', "holds no JSON object"),
            ('{"schema_version": 1} {}', "holds no JSON object"),
            ("{}", "has no schema_version"),
            ('{"schema_version": "1"}', "has no schema_version"),
            ('{"schema_version": 1}', "created_at is no time"),
        ],
    )
    def test_a_damaged_manifest(self, text, why, tmp_path):
        folder = write_run(tmp_path)
        write_run(tmp_path, "run_b")
        (folder / "manifest.json").write_text(text)
        bad = RunView(folder)
        assert bad.state == "unreadable"
        assert why in bad.note
        assert str(folder) in bad.note
        with pytest.raises(InvalidInput, match=why):
            bad.calls()
        assert {one.id: one.state for one in runs(tmp_path)} == {
            ID: "unreadable",
            "run_b": "completed",
        }

    def test_a_newer_format_is_listed_and_not_read(self, tmp_path):
        view = RunView(write_run(tmp_path, schema_version=2))
        assert (view.state, view.is_newer) == ("unknown", True)
        assert view.note.endswith(
            "was written by a newer Soma (format 2; this one reads 1): pip install -U soma-core"
        )
        for read in (
            view.manifest,
            view.status,
            view.graph,
            view.plan,
            view.events,
            view.metrics,
            view.calls,
            view.nodes,
            view.reused,
            lambda: view.name,
            lambda: view.created_at,
            lambda: view.lost_events,
        ):
            with pytest.raises(InvalidInput, match="written by a newer Soma"):
                read()
        assert runs(tmp_path) == [view]
        before = sorted(view.path.iterdir())
        for force in (False, True):
            with pytest.raises(InvalidInput, match="newer Soma"):
                remove_run(view, force=force)
        assert sorted(view.path.iterdir()) == before
        assert "pip install -U soma-core" in view.to_text()

    def test_html_escapes_everything(self, tmp_path):
        bad = "<script>alert('x')</script>&\x1b[31m"
        view = RunView(
            write_run(
                tmp_path,
                "run_<b>'\"🎉",
                name=bad,
                tags=[bad],
                params={bad: bad},
                events=[event("RunStarted", bad, phase=bad), event("RunFailed", bad, error=bad)],
            )
        )
        page = view._repr_html_()
        assert "<script" not in page
        assert "<b>" not in page
        assert "\x1b" not in page
        assert "&lt;script&gt;" in page
        assert "🎉" in page


class TestText:
    def test_everything_that_there_is_to_say(self, tmp_path):
        events = [
            *events_of_a_fit(),
            event("RunStarted", "c2", phase="forward", plan_summary={}),
            *(hit("step", run_id="c2", passes=(number,)) for number in (1, 2, 3)),
            event("NodeFailed", "c2", node_id="pca", what="output", error="E: a\nb", passes=[4]),
            event("RunFailed", "c2", error="E: a\nb"),
            event("NodeNotKept", "c2", node_id="pca", message="changes"),
        ]
        losses = [{"name": "loss", "value": one, "step": one} for one in (5, 1, 3)]
        view = RunView(
            write_run(
                tmp_path,
                events=events,
                metrics=losses,
                state="failed",
                error="E: a\nb",
                params={"lr": 0.1},
                tags=["x", "y z"],
                lost_events=2,
            )
        )
        lines = view.to_text().splitlines()
        assert lines[:3] == [f"run       {ID}", "state     failed", "name      digits"]
        for line in (
            "took      2.5 s",
            "tags      x, y z",
            "param     lr = 0.1",
            "git       0123abcd main",
            "error     E: a b",
            "  fit c1 completed in 12.5 ms, 4 hits, 1 computed",
            "  forward c2 failed after 5.0 s, 3 hits: E: a b",
            "2 calls, 5.0 s",
            "  pca state: 1 hit, Memory",
            "  step output: 6 hits (pass 1 to 3, in 2 calls), Memory",
            "  refine: 3 passes, stopped",
            "  classify: took arm 'balanced'",
            "  pca output (pass 4), in forward: E: a b",
            "  NodeNotKept pca: changes",
            "  metric  values  first  last  min         max",
            "  loss    3       5      3     1 (step 1)  5 (step 5)",
            "2 events lost: what is said above may lack something",
        ):
            assert line in lines
        assert not any("numpy" in line or "ab" * 32 in line for line in lines)
        whole = view.to_text(whole=True).splitlines()
        assert "version   numpy 2.1.0" in whole
        step = f"  step output (pass 2): {'ab' * 32}, Memory, looked up in 0.5 ms, 100 B, call c1"
        assert step.replace("0.5 ms", "500 µs") in whole

    def test_one_call_has_the_table_of_last_run(self, tmp_path):
        view = RunView(write_run(tmp_path, events=events_of_a_fit()))
        assert view.to_text().split("\n\n")[2].splitlines() == [
            "fit, 12.5 ms",
            "node    what was done       forwards    time  bytes",
            "scaler  computed                      3.0 ms   40 B",
            "pca     hit                                    50 B",
            "step    3 hits                     3          100 B",
            "───────────────────────────────────────────────────",
            "total   4 hits, 1 computed         3  3.0 ms  190 B",
        ]

    @pytest.mark.parametrize(
        ("passes", "text"),
        [
            ([()], "1 hit, Memory"),
            ([(3,)], "1 hit (pass 3), Memory"),
            ([(2,), (1,), (3,)], "3 hits (pass 1 to 3), Memory"),
            ([(1,), (3,)], "2 hits (pass 1, 3), Memory"),
            ([(1,), (3,), (5,), (7,)], "4 hits (pass 1, 3, 5 and 1 more), Memory"),
            ([(1, 1), (1, 2)], "2 hits (pass 1.1, 1.2), Memory"),
        ],
    )
    def test_passes_are_folded(self, passes, text, tmp_path):
        view = RunView(write_run(tmp_path, events=[hit("n", passes=one) for one in passes]))
        assert f"  n output: {text}" in view.to_text().splitlines()

    def test_no_terminal_is_told_to_do_anything(self, tmp_path):
        bad = "\x1b[2Jx\r\n\u202e\ud800"
        told = event("NodeNotKept", node_id=bad, message=bad)
        view = RunView(
            write_run(
                tmp_path,
                name=bad,
                tags=[bad],
                params={bad: bad},
                error=bad,
                state="failed",
                git={"sha": bad, "branch": bad},
                versions={bad: bad},
                events=[
                    event("RunStarted", phase=bad),
                    hit(bad, bad, key=bad),
                    completed(bad, bad),
                    event("NodeFailed", node_id=bad, what=bad, error=bad),
                    event("NodeStarted", node_id=bad, what=bad),
                    event("BranchTaken", node_id=bad, arm=bad),
                    told,
                ],
                metrics=[{"name": bad, "value": 1}],
            )
        )
        for whole in (False, True):
            text = view.to_text(whole=whole)
            assert all(line.isprintable() for line in text.split("\n"))
            assert text.encode()

    def test_many_calls_are_clipped(self, tmp_path):
        events = [event("RunStarted", f"r{number}", phase="fit") for number in range(30)]
        view = RunView(write_run(tmp_path, events=events))
        assert "calls, without the first 10 (--all)" in view.to_text()
        assert "fit r0 " not in view.to_text()
        assert "fit r0 " in view.to_text(whole=True)


class TestFind:
    def test_the_newest_come_first_and_what_is_no_run_is_left_alone(self, tmp_path):
        write_run(tmp_path, "run_b", created_at="2026-11-30T04:15:01+00:00")
        write_run(tmp_path, "run_a", created_at="2026-11-30T04:15:01+00:00")
        write_run(tmp_path, "run_c", created_at="2026-11-30T06:15:00.5+02:00")
        write_run(tmp_path, "run_20270101T000000Z_00ff", schema_version=9)
        write_run(tmp_path, ".run_half")
        (tmp_path / "runs" / "foreign").mkdir()
        (tmp_path / "runs" / "notes.txt").write_text("x")
        (tmp_path / "runs" / "dangling").symlink_to("nowhere")
        (tmp_path / "runs" / "odd" / "manifest.json").mkdir(parents=True)
        found = [one.id for one in runs(tmp_path)]
        assert found == ["run_20270101T000000Z_00ff", "run_b", "run_a", "run_c"]

    def test_no_root_no_runs(self, tmp_path):
        assert runs(tmp_path / "nothing") == []
        assert runs(tmp_path) == []
        with pytest.raises(UnknownName, match="There is no run 'x': no run is in"):
            find_run(tmp_path, "x")
        with pytest.raises(UnknownName, match="There is no last run"):
            find_run(tmp_path, "last")

    def test_a_root_that_is_none(self, tmp_path):
        (tmp_path / "file").write_text("x")
        with pytest.raises(InvalidInput, match="file is no folder of runs"):
            runs(tmp_path / "file")
        with pytest.raises(InvalidInput, match="is no folder of runs"):
            runs("a\0b")

    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("run_20261130T041500Z_3fa9", 0),
            ("run_20261130T", 0),
            ("3fa9", 0),
            ("fa9", 0),
            ("run_20261201", 1),
            ("last", 2),
            ("same", 2),
            ("other <b>\"'🎉", 0),
        ],
    )
    def test_a_run_is_found_by(self, text, found, tmp_path):
        ids = [
            "run_20261130T041500Z_3fa9",
            "run_20261201T041500Z_77aa",
            "run_20261202T041500Z_88bb",
        ]
        names = ["other <b>\"'🎉", "same", "same"]
        for day, (id_, name) in enumerate(zip(ids, names, strict=True)):
            write_run(tmp_path, id_, name=name, created_at=f"2026-12-0{day + 1}T00:00:00+00:00")
        assert find_run(tmp_path, text).id == ids[found]
        assert find_run("nowhere", str(tmp_path / "runs" / ids[found])).id == ids[found]

    @pytest.mark.parametrize("text", ["run_", "run_2026113"])
    def test_an_ambiguous_beginning_names_them(self, text, tmp_path):
        for end in ("3fa9", "3fb0"):
            write_run(tmp_path, f"run_20261130T041500Z_{end}")
        with pytest.raises(UnknownName) as caught:
            find_run(tmp_path, text)
        assert str(caught.value) == (
            f"{text!r} may be any of 'run_20261130T041500Z_3fb0', 'run_20261130T041500Z_3fa9'."
        )

    @pytest.mark.parametrize("text", ["", "digitz", "9", "a9", "..", "zzzzzzzzz"])
    def test_what_is_unknown(self, text, tmp_path):
        write_run(tmp_path)
        with pytest.raises(UnknownName, match="There is no run"):
            find_run(tmp_path, text)

    def test_a_path_is_one_with_a_separator(self, tmp_path, monkeypatch):
        path = write_run(tmp_path / "root", name="web")
        (tmp_path / "web").mkdir()
        (tmp_path / "web" / "manifest.json").write_text('{"manifest_version": 3}')
        monkeypatch.chdir(tmp_path)
        assert find_run("root", "web").path == path
        assert find_run("nowhere", f"root/runs/{path.name}").path == path
        with pytest.raises(InvalidInput, match=r"is no run: it has no manifest\.json"):
            find_run("root", "../runs")

    def test_a_name_goes_before_the_end_of_an_id(self, tmp_path):
        write_run(tmp_path, "run_20261130T041500Z_a101", name="precious")
        write_run(tmp_path, "run_20261130T041501Z_3fb0", name="101")
        assert find_run(tmp_path, "101").name == "101"
        assert find_run(tmp_path, "a101").name == "precious"

    def test_the_folder_of_the_runs_is_not_their_root(self, tmp_path):
        write_run(tmp_path)
        with pytest.raises(InvalidInput, match="holds runs itself: give the folder around it"):
            runs(tmp_path / "runs")

    def test_near_names_are_offered(self, tmp_path):
        write_run(tmp_path)
        with pytest.raises(UnknownName, match="Did you mean 'digits'"):
            find_run(tmp_path, "digitz")


class TestRemove:
    def test_what_may_be_no_run_at_all_is_left_alone(self, tmp_path):
        folder = tmp_path / "web"
        folder.mkdir()
        (folder / "manifest.json").write_text('{"manifest_version": 3}')
        (folder / "app.js").write_text("precious")
        with pytest.raises(InvalidInput, match="may be no run at all"):
            remove_run(RunView(folder), force=True)
        assert (folder / "app.js").read_text() == "precious"

    def test_it_is_gone(self, tmp_path):
        view = RunView(write_run(tmp_path))
        remove_run(view)
        assert list((tmp_path / "runs").iterdir()) == []
        with pytest.raises(InvalidInput, match="is no run, or is gone"):
            remove_run(view)

    def test_one_that_is_running(self, tmp_path):
        view = RunView(write_run(tmp_path, state="running", process=this_process()))
        with pytest.raises(InvalidInput, match="is running: end it first"):
            remove_run(view)
        assert view.path.exists()
        remove_run(view, force=True)
        assert not view.path.exists()

    def test_one_that_crashed(self, tmp_path):
        view = RunView(write_run(tmp_path, state="running", process=dead_process()))
        assert view.state == "crashed"
        remove_run(view)
        assert not view.path.exists()

    @pytest.mark.parametrize("name", ["manifest.json", "status.json"])
    def test_one_that_cannot_be_read(self, name, tmp_path):
        view = RunView(write_run(tmp_path))
        (view.path / name).write_text("?")
        with pytest.raises(InvalidInput, match="may be running"):
            remove_run(view)
        remove_run(view, force=True)
        assert not view.path.exists()

    def test_links_are_not_followed(self, tmp_path):
        elsewhere = write_run(tmp_path / "elsewhere")
        mine = write_run(tmp_path / "mine", "run_mine")
        link = tmp_path / "mine" / "runs" / "run_link"
        link.symlink_to(elsewhere)
        (mine / "checkpoints").symlink_to(elsewhere)
        assert {one.id for one in runs(tmp_path / "mine")} == {"run_mine", "run_link"}
        with pytest.raises(InvalidInput, match="is a link"):
            remove_run(RunView(link), force=True)
        remove_run(RunView(mine))
        assert not mine.exists()
        assert RunView(elsewhere).state == "completed"
        assert RunView(link).state == "completed"

    def test_what_became_a_foreign_folder(self, tmp_path):
        view = RunView(write_run(tmp_path))
        (view.path / "manifest.json").unlink()
        with pytest.raises(InvalidInput, match="is no run"):
            remove_run(view, force=True)
        assert (view.path / "events.jsonl").exists()

    def test_half_of_a_removed_run_is_never_listed(self, tmp_path, monkeypatch):
        view = RunView(write_run(tmp_path))
        listed = []

        def interrupted(path):
            listed.append(runs(tmp_path))
            raise PermissionError(13, "not allowed")

        monkeypatch.setattr(shutil, "rmtree", interrupted)
        with pytest.raises(InvalidInput, match=r"what is left lies in .*\.removed-.*: not allowed"):
            remove_run(view)
        assert listed == [[]]
        assert runs(tmp_path) == []


class TestFollower:
    def test_lines_come_once_and_whole(self, tmp_path):
        path = tmp_path / "lines"
        path.write_bytes(b"a\nb")
        follower = Follower(path)
        assert follower.lines() == [b"a"]
        assert follower.rest() == b"b"
        with path.open("ab") as file:
            file.write(b"c\nd\n")
        assert follower.lines() == [b"bc", b"d"]
        assert follower.lines() == []

    @pytest.mark.parametrize("how", ["replaced", "cut", "gone"])
    def test_another_file(self, how, tmp_path):
        path = tmp_path / "lines"
        path.write_bytes(b"abc\n")
        follower = Follower(path)
        follower.lines()
        if how == "replaced":
            (tmp_path / "new").write_bytes(b"abc\ndef\n")
            (tmp_path / "new").replace(path)
        elif how == "cut":
            path.write_bytes(b"a\n")
        else:
            path.unlink()
        with pytest.raises(InvalidInput, match=r"was replaced|cannot be read"):
            follower.lines()
