from __future__ import annotations

import copy
import enum
import math
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from types import MappingProxyType
from typing import get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from soma import InvalidInput, events
from soma.events import (
    EVENT_TYPES,
    BestUpdated,
    Event,
    Metric,
    MetricReported,
    NodeCacheHit,
    NodeProgress,
    NodeStarted,
    RunStarted,
    StudyProgress,
    TrialMetric,
    TrialStarted,
    UserEvent,
    check_event,
    make_event,
)
from soma.events.plain import MAX_DEPTH, MAX_VALUES

PROGRESS = {"run_id": "r", "node_id": "a", "progress": 0.5}

texts = st.text(st.characters(), max_size=5)  # with halves of pairs
floats = st.floats(allow_nan=False)
scalars = st.none() | st.booleans() | st.integers() | floats | texts
plain = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=10
)
metrics = st.builds(Metric, texts, floats, st.none() | st.integers(), st.none() | floats)
BY_HINT = {
    str: texts,
    int: st.integers(),
    float: floats,
    bool: st.booleans(),
    bool | None: st.none() | st.booleans(),
    int | None: st.none() | st.integers(),
    str | None: st.none() | texts,
    float | None: st.none() | floats,
    tuple[int, ...]: st.lists(st.integers()).map(tuple),
    tuple[str, ...]: st.lists(texts).map(tuple),
    Metric: metrics,
}


def drawn(hint):
    if get_origin(hint) is dict:
        return st.dictionaries(texts, floats if get_args(hint)[1] is float else plain)
    return st.sampled_from(get_args(hint)) if hint not in BY_HINT else BY_HINT[hint]


def events_of(kind):
    hints = get_type_hints(kind)
    return st.builds(kind, **{one.name: drawn(hints[one.name]) for one in fields(kind)})


def refusal(given, /, **fields):
    with pytest.raises(InvalidInput) as caught:
        make_event(given, fields)
    return str(caught.value)


class TestKinds:
    def test_every_class_is_exported_under_its_name(self):
        assert len(EVENT_TYPES) == 33
        for name, kind in EVENT_TYPES.items():
            assert getattr(events, name) is kind
            assert (kind.event_type, kind.__name__) == (name, name)
            assert issubclass(kind, Event)
        assert set(EVENT_TYPES) < set(events.__all__)
        assert "UserEvent" not in EVENT_TYPES

    def test_events_are_small_frozen_and_compare_by_what_they_say(self):
        event = NodeProgress(**PROGRESS)
        assert event == NodeProgress(**PROGRESS)
        assert hash(event) == hash(NodeProgress(**PROGRESS))
        assert event != NodeProgress(**PROGRESS | {"progress": 0.75})
        assert event != UserEvent("x", {})
        assert repr(event) == "NodeProgress(run_id='r', node_id='a', progress=0.5)"
        assert not hasattr(event, "__dict__")
        with pytest.raises(FrozenInstanceError, match="'progress'"):
            event.progress = 1.0
        with pytest.raises(FrozenInstanceError):
            del event.progress
        with pytest.raises(TypeError):
            NodeProgress("r", "a", 0.5)
        with pytest.raises(TypeError, match="progress"):
            NodeProgress(run_id="r", node_id="a")
        assert replace(event, progress=1.0).progress == 1.0

    def test_what_an_event_is_as_a_dict(self):
        event = NodeStarted(
            run_id="r", node_id="a", what="state", kind="Trainable", passes=(2, 1)
        ).to_dict()
        assert event == {
            "event_type": "NodeStarted",
            "run_id": "r",
            "node_id": "a",
            "what": "state",
            "kind": "Trainable",
            "effectful": False,
            "passes": [2, 1],
        }
        assert next(iter(event)) == "event_type"
        metric = TrialMetric(study_id="s", trial_id="t", metric=Metric("loss", 0.5, step=3))
        assert metric.to_dict()["metric"] == {
            "name": "loss",
            "value": 0.5,
            "step": 3,
            "timestamp": None,
        }

    def test_a_dict_shares_nothing_with_its_event(self):
        event = TrialStarted(study_id="s", trial_id="t", params={"a": [1, {"b": (2,)}]})
        event.to_dict()["params"]["a"][1]["b"].append(3)
        assert event.to_dict()["params"] == {"a": [1, {"b": [2]}]}
        own = UserEvent("mine", MappingProxyType({"a": [1]}))
        own.to_dict()["a"].append(2)
        assert own.to_dict() == {"event_type": "mine", "a": [1]}

    @pytest.mark.parametrize(
        "event",
        [NodeProgress(**PROGRESS), UserEvent("mine", {"a": 1})],
        ids=lambda event: event.event_type,
    )
    def test_copies_and_pickles(self, event):
        for found in (copy.copy(event), copy.deepcopy(event), pickle.loads(pickle.dumps(event))):  # noqa: S301  # our own bytes
            assert type(found) is type(event)
            assert found == event


class TestRoundTrip:
    @pytest.mark.parametrize("kind", EVENT_TYPES.values(), ids=EVENT_TYPES)
    def test_every_type_comes_back_from_its_dict(self, kind):
        @settings(max_examples=30)  # for each of the types
        @given(events_of(kind))
        def check(event):
            assert check_event(event) == event
            data = event.to_dict()
            assert make_event(data, {}) == event
            name = data.pop("event_type")
            assert make_event(name, data) == event

        check()

    @given(st.dictionaries(texts.filter(lambda name: name != "event_type"), plain))
    def test_own_events_come_back(self, data):
        event = make_event("mine", data)
        assert event == UserEvent("mine", data)
        assert make_event(event.to_dict(), {}) == event
        assert check_event(event) == event

    def test_defaults_may_be_left_out(self):
        assert make_event("StudyProgress", {"study_id": "s", "completed": 1, "total": 2}) == (
            StudyProgress(study_id="s", completed=1, total=2, best_value=None)
        )


class TestKnownTypes:
    def test_scalars_are_of_exactly_their_type(self):
        class Word(enum.StrEnum):
            RUN = "r"

        event = make_event(
            "NodeCacheHit",
            {
                "run_id": Word.RUN,
                "node_id": np.str_("a"),
                "what": np.str_("state"),
                "key": "00",
                "tier": "Local",
                "load_time": np.float32(0.5),
                "bytes": np.int64(8),
                "passes": [np.int8(1), 2],
            },
        )
        assert event == NodeCacheHit(
            run_id="r",
            node_id="a",
            what="state",
            key="00",
            tier="Local",
            load_time=0.5,
            bytes=8,
            passes=(1, 2),
        )
        kinds = [type(getattr(event, one.name)) for one in fields(event)]
        assert kinds == [str, str, str, str, str, float, int, tuple]
        assert [type(one) for one in event.passes] == [int, int]
        for number in (1, np.float64(1.0), np.array(1.0)):
            found = make_event("NodeProgress", PROGRESS | {"progress": number}).progress
            assert (type(found), found) == (float, 1.0)

    @pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
    def test_every_float_is_a_number(self, number):
        found = make_event("NodeProgress", PROGRESS | {"progress": number}).progress
        assert repr(found) == repr(number)

    def test_a_metric_may_be_a_dict(self):
        for metric in ({"name": "loss", "value": np.float32(2)}, Metric("loss", 2)):
            event = make_event("MetricReported", {"run_id": "r", "metric": metric})
            assert event == MetricReported(run_id="r", metric=Metric("loss", 2.0))
            assert type(event.metric.value) is float

    def test_what_the_user_changes_later_does_not_show(self):
        params, passes = {"a": [1]}, [1]
        given = BestUpdated(study_id="s", trial_id="t", value=1.0, params=params)
        event = make_event(given, {})
        started = make_event(
            NodeStarted(run_id="r", node_id="a", what="state", kind="Trainable", passes=passes), {}
        )
        params["a"].append(2)
        passes.append(2)
        assert event.params == {"a": [1]}
        assert started.passes == (1,)

    @pytest.mark.parametrize(
        ("name", "changed", "message"),
        [
            ("NodeProgress", {"progress": "x"}, "progress must be a number, not 'x' (str)"),
            ("NodeProgress", {"progress": True}, "progress must be a number, not True (bool)"),
            ("NodeProgress", {"progress": np.True_}, "progress must be a number, not "),
            ("NodeProgress", {"progress": None}, "progress must be a number, not None"),
            ("NodeProgress", {"progress": 10**400}, "progress must be a number that a float holds"),
            ("NodeProgress", {"progress": np.zeros(1)}, "progress must be a number, not array("),
            ("NodeProgress", {"progress": 1j}, "progress must be a number, not 1j (complex)"),
            ("NodeProgress", {"node_id": 3}, "node_id must be a text, not 3 (int)"),
            (
                "NodeProgress",
                {"node_id": "\udce9", "run_id": b""},
                "run_id must be a text, not b''",
            ),
            ("StepCompleted", {"step": 1.0}, "step must be a whole number, not 1.0 (float)"),
            ("StepCompleted", {"step": True}, "step must be a whole number, not True (bool)"),
            ("LoopCompleted", {"stopped": 1}, "stopped must be True or False, not 1 (int)"),
            (
                "LoopCompleted",
                {"passes": 1},
                "passes must be a tuple of whole numbers, not 1 (int)",
            ),
            ("LoopCompleted", {"passes": [1, "x"]}, "passes[1] must be a whole number, not 'x'"),
            ("RunStarted", {"phase": "fitt"}, "phase must be 'fit' or 'forward', not 'fitt' (str)"),
            (
                "RunStarted",
                {"plan_summary": [1]},
                "plan_summary must be a dict of plain data, not a",
            ),
            (
                "RunStarted",
                {"plan_summary": {"a": {1: 2}}},
                "plan_summary['a'] must be a dict whose",
            ),
            ("RunStarted", {"plan_summary": {"a": b"x"}}, "plan_summary['a'] must be plain data"),
            ("EpochCompleted", {"metrics": {"a": "x"}}, "metrics['a'] must be a number, not 'x'"),
            (
                "EpochCompleted",
                {"metrics": {1: 1.0}},
                "metrics must be a dict whose keys are texts",
            ),
            ("EpochCompleted", {"metrics": 1.0}, "metrics must be a dict of numbers, not 1.0"),
            ("StudyProgress", {"best_value": "x"}, "best_value must be a number, not 'x' (str)"),
            ("TrialMetric", {"metric": 1.0}, "metric must be a Metric or a dict of its fields"),
            (
                "TrialMetric",
                {"metric": Metric("a", "b")},
                "metric: value must be a number, not 'b'",
            ),
            ("TrialMetric", {"metric": {"name": "a", "valu": 1}}, "Did you mean 'value'?"),
        ],
    )
    def test_a_field_of_the_wrong_type_is_named(self, name, changed, message):
        right = {
            "NodeProgress": PROGRESS,
            "StepCompleted": {"run_id": "r", "step": 1, "epoch": 1},
            "LoopCompleted": {"run_id": "r", "node_id": "a", "iterations": 1, "stopped": True},
            "RunStarted": {"run_id": "r", "phase": "fit", "plan_summary": {}},
            "EpochCompleted": {"run_id": "r", "epoch": 1, "metrics": {}},
            "StudyProgress": {"study_id": "s", "completed": 1, "total": 1},
            "TrialMetric": {"study_id": "s", "trial_id": "t", "metric": Metric("a", 1.0)},
        }[name]
        said = refusal(name, **right | changed)
        assert said.startswith(f"{name}: ")
        assert message in said
        assert refusal(EVENT_TYPES[name](**right | changed)) == said

    def test_missing_and_unknown_fields_are_named(self):
        assert refusal("NodeProgress", run_id="r") == (
            "NodeProgress needs node_id (a text) and progress (a number), and they were not given"
        )
        assert refusal("NodeProgress", run_id="r", nodeid="a") == (
            "NodeProgress has no field 'nodeid'. Did you mean 'node_id'?"
        )
        assert refusal({"event_type": "NodeProgress", 3: 4}).startswith(
            "NodeProgress has no field 3. Known: 'node_id'"
        )
        assert "'event_type'" in refusal("NodeProgress", **PROGRESS, event_type="NodeProgress")


class TestWhatIsNoEvent:
    @pytest.mark.parametrize("given", [3, None, NodeProgress, [("event_type", "x")]])
    def test_other_objects(self, given):
        assert "emit takes the name of an event and its fields" in refusal(given)

    @pytest.mark.parametrize("given", [{}, {"a": 1}, {"event_type": 3}])
    def test_dicts_without_a_name(self, given):
        assert "where it has an 'event_type', a text" in refusal(given)

    def test_fields_beside_an_event(self):
        assert "put 'progress' into it" in refusal(NodeProgress(**PROGRESS), progress=1.0)
        assert "this is a dict" in refusal({"event_type": "x"}, progress=1.0)

    def test_classes_of_others(self):
        class Own(Event):
            pass

        class RunStarted2(RunStarted):
            pass

        RunStarted2.__name__ = "RunStarted"
        assert "Own is no event type of Soma" in refusal(Own())
        assert "is no event type" in refusal(RunStarted2(run_id="r", phase="fit", plan_summary={}))


class TestOwnEvents:
    def test_values_are_copied_as_plain_data(self):
        losses, inner = (1, np.float32(2.5)), {"x": None}
        event = make_event("my_event", {"losses": losses, "inner": inner, "n": np.int8(3)})
        inner["x"] = 1
        assert event == UserEvent("my_event", {"losses": [1, 2.5], "inner": {"x": None}, "n": 3})
        assert type(event.fields["n"]) is int
        assert event.event_type == "my_event"
        assert event.to_dict() == {
            "event_type": "my_event",
            "losses": [1, 2.5],
            "inner": {"x": None},
            "n": 3,
        }

    @pytest.mark.parametrize(
        "name", ["node_started", "nodestarted", "NODE_STARTED", "Node_Started"]
    )
    def test_a_name_near_to_a_known_one_is_refused(self, name):
        assert f"cannot be called {name!r}: 'NodeStarted' is Soma's" in refusal(name)

    def test_a_known_name_is_refused_as_an_own_event(self):
        assert "'NodeStarted' is Soma's" in refusal(UserEvent("NodeStarted", {}))

    @pytest.mark.parametrize("name", ["", "  ", 3, None])
    def test_a_name_says_something(self, name):
        assert "must be a text that says something" in refusal(UserEvent(name, {}))

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (UserEvent("mine", {"event_type": "x"}), "a field cannot be called 'event_type'"),
            (UserEvent("mine", {3: 1}), "the name of a field must be a text, not 3 (int)"),
            (UserEvent("mine", [1]), "fields must be a dict, not a list"),
            (UserEvent("mine", {"a": {"b": [0, {1}]}}), "'mine': a['b'][1] must be plain data"),
            (UserEvent("\udce9", {"a b": b""}), "'\\udce9': 'a b' must be plain data"),
            (UserEvent("mine", {"\udce9": [object]}), "'\\udce9'[0] must be plain data"),
        ],
    )
    def test_what_is_not_plain_is_named(self, given, message):
        said = refusal(given)
        assert message in said
        said.encode()

    def test_halves_of_pairs_are_text(self):
        assert make_event("\udce9", {"a": "\ud800"}).to_dict() == {
            "event_type": "\udce9",
            "a": "\ud800",
        }

    def test_what_contains_itself_or_is_too_deep_or_large_is_refused(self):
        cycle = {"a": []}
        cycle["a"].append(cycle)
        assert "x['a'][0] must be plain data" in refusal("mine", x=cycle)
        assert "not a dict that contains itself" in refusal("mine", x=cycle)
        twice = [1]
        assert make_event("mine", {"x": [twice, twice]}).fields == {"x": [[1], [1]]}
        deep = [1]
        for _ in range(MAX_DEPTH - 1):
            deep = [deep]
        assert make_event("mine", {"x": deep}).fields == {"x": deep}
        assert f"at most {MAX_DEPTH} levels" in refusal("mine", x=[deep])
        doubled = 1
        for _ in range(MAX_DEPTH):
            doubled = [doubled, doubled]
        assert f"at most {MAX_VALUES} values" in refusal("mine", x=doubled)

    def test_methods_of_others_are_no_trouble(self):
        class Odd:
            shape = ()

            def item(self):
                raise RuntimeError

            def __repr__(self):
                raise RuntimeError

        class Liar(int):
            def __int__(self):
                return 5

        assert "x must be plain data" in refusal("mine", x=Odd())
        assert make_event("mine", {"x": Liar(3)}).fields == {"x": 3}
