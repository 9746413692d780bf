from __future__ import annotations

import dataclasses
import pickle

import pytest

from soma import CodecSpec, CommandSpec, InvalidSpec, RunnerSpec, StrategySpec
from soma.specs import SPECS

EXTRA = {
    "soma_codecs": {"types": ("my.Reading",)},
    "soma_transports": {"schemes": ("pigeon",)},
    "soma_executors": {"kind": "plan"},
    "soma_runners": {"schemes": ("batch",)},
    "soma_action_stores": {"shareable": True},
    "soma_cache_tiers": {"order_ms": 2},
}


def build(hook, **fields):
    base = {"name": "thing", "target": "my.module:thing"} | EXTRA.get(hook, {})
    return SPECS[hook](**(base | fields))


def test_there_are_ten_hooks():
    assert list(SPECS) == [
        "soma_codecs",
        "soma_transports",
        "soma_data_stores",
        "soma_executors",
        "soma_strategies",
        "soma_runners",
        "soma_action_stores",
        "soma_cache_tiers",
        "soma_event_sinks",
        "soma_commands",
    ]


@pytest.mark.parametrize("hook", SPECS)
def test_a_spec_is_frozen_equal_by_value_and_can_be_pickled(hook):
    spec = build(hook)
    assert spec == build(hook)
    assert hash(spec) == hash(build(hook))
    assert pickle.loads(pickle.dumps(spec)) == spec  # noqa: S301  # our own bytes
    assert not hasattr(spec, "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.name = "other"


@pytest.mark.parametrize("hook", SPECS)
def test_every_field_has_a_check(hook):
    assert all("check" in field.metadata for field in dataclasses.fields(SPECS[hook]))


BAD = [
    ("soma_commands", "name", ""),
    ("soma_commands", "name", " padded "),
    ("soma_commands", "name", "two\nlines"),
    ("soma_commands", "name", 7),
    ("soma_commands", "name", "-x"),
    ("soma_commands", "name", "two words"),
    ("soma_commands", "summary", "a\rb"),
    ("soma_commands", "summary", "\x1b[31mred"),
    ("soma_transports", "server", "nowhere"),
    ("soma_commands", "target", "my.module.thing"),
    ("soma_commands", "target", "my.module:"),
    ("soma_commands", "target", ":thing"),
    ("soma_commands", "target", "my module:thing"),
    ("soma_commands", "target", "a:b:c"),
    ("soma_commands", "target", len),
    ("soma_commands", "summary", "two\nlines"),
    ("soma_commands", "summary", None),
    ("soma_codecs", "types", "my.Reading"),
    ("soma_codecs", "types", ()),
    ("soma_codecs", "types", ["my.Reading"]),
    ("soma_codecs", "types", (int,)),
    ("soma_transports", "schemes", ()),
    ("soma_action_stores", "checkup", "nowhere"),
    ("soma_action_stores", "checkup", None),
    ("soma_transports", "min_bytes", -1),
    ("soma_transports", "min_bytes", 1.5),
    ("soma_transports", "min_bytes", True),
    ("soma_transports", "streaming", "yes"),
    ("soma_data_stores", "options", ["path"]),
    ("soma_executors", "kind", "both"),
    ("soma_executors", "plan_nodes", "Composite"),
    ("soma_strategies", "min_sessions", None),
    ("soma_strategies", "refuses", 1),
    ("soma_runners", "schemes", None),
    ("soma_runners", "schemes", ("HTTP://",)),
    ("soma_runners", "schemes", ("",)),
    ("soma_action_stores", "shareable", 1),
    ("soma_cache_tiers", "order_ms", -0.5),
    ("soma_cache_tiers", "order_ms", float("nan")),
    ("soma_event_sinks", "default", "no"),
]


@pytest.mark.parametrize(("hook", "field", "value"), BAD)
def test_a_wrong_field_is_named_with_its_value(hook, field, value):
    with pytest.raises(InvalidSpec) as caught:
        build(hook, **{field: value})
    assert f"{field} must be " in str(caught.value)
    assert repr(value) in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_aliases_are_the_further_names():
    assert RunnerSpec(name="ws", target="a:b", schemes=("ws", "wss")).aliases == ("ws", "wss")
    assert CodecSpec(name="k", target="a:b", types=("m.T",)).aliases == ("m.T",)
    assert CommandSpec(name="k", target="a:b").aliases == ()
    assert StrategySpec(name="k", target="a:b").min_sessions == 1
