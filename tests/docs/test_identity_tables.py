"""Each row of the tables in docs/identity.md is a test."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from soma.frame import content_hash

PAGE = (Path(__file__).parents[2] / "docs" / "identity.md").read_text()


def rows(title: str) -> list[tuple[str, str]]:
    table = PAGE.partition(f"| {title} | |\n| --- | --- |\n")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(.*)` \| `(.*)` \|$", table, flags=re.MULTILINE)


def value_of(text: str):
    return eval(text, {"np": np})  # noqa: S307  # our own page


def test_the_tables_are_found():
    assert len(rows("these differ")) == 13
    assert len(rows("these are the same")) == 3


@pytest.mark.parametrize(("one", "other"), rows("these differ"))
def test_these_differ(one, other):
    assert content_hash(value_of(one)) != content_hash(value_of(other))


@pytest.mark.parametrize(("one", "other"), rows("these are the same"))
def test_these_are_the_same(one, other):
    assert content_hash(value_of(one)) == content_hash(value_of(other))
