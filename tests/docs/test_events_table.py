"""The table in docs/events.md lists every event with all of its fields, and nothing else."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from soma.events import EVENT_TYPES, Metric

PAGE = (Path(__file__).parents[2] / "docs" / "events.md").read_text()


def test_the_table_is_complete():
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (.*) \|$", PAGE, re.MULTILINE)
    listed = {
        name: set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", described)))
        for names, described in rows
        for name in re.findall(r"\w+", names)
    }
    assert listed == {name: {one.name for one in fields(cls)} for name, cls in EVENT_TYPES.items()}


def test_a_metric_is_described():
    names = ", ".join(f"`{one.name}`" for one in fields(Metric))
    assert f"A `metric` is {names}." in PAGE
