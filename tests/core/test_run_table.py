from __future__ import annotations

import unicodedata
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soma.engine.report import NodeRun
from soma.events.human import clipped, moment_text, one_line, width
from soma.events.table import NodeSummary, human_bytes, human_ms, summarize, table_text

MS = [
    (0, "0 µs"),
    (0.008, "8 µs"),
    (0.9994, "999 µs"),
    (0.9996, "1.0 ms"),
    (1.24, "1.2 ms"),
    (99.94, "99.9 ms"),
    (99.96, "100 ms"),
    (999.4, "999 ms"),
    (999.6, "1.0 s"),
    (3_400, "3.4 s"),
    (59_940, "59.9 s"),
    (59_960, "1 min 00 s"),
    (125_000, "2 min 05 s"),
    (3_599_400, "59 min 59 s"),
    (3_599_600, "1 h 00 min"),
    (3_720_000, "1 h 02 min"),
    (360_000_000, "100 h 00 min"),
    (-1, "0 µs"),
    (float("nan"), "?"),
    (float("inf"), "?"),
]
SIZES = [
    (0, "0 B"),
    (812, "812 B"),
    (1023, "1023 B"),
    (1024, "1.0 KiB"),
    (4200, "4.1 KiB"),
    (1023 * 1024, "1023 KiB"),
    (1024**2 - 1, "1.0 MiB"),
    (1_600_000_000, "1.5 GiB"),
    (5 * 1024**4, "5.0 TiB"),
    (3 * 1024**5, "3.0 PiB"),
    (2 * 1024**6, "2.0 EiB"),
    (5000 * 1024**6, "5000 EiB"),
]
ROWS = [
    NodeRun("scaler", "state", "computed", 1.0, 4000),
    NodeRun("scaler", "output", "computed", 0.2, 96),
    NodeRun("step", "output", "hit", 0.0, 500),
    NodeRun("step", "output", "computed", 400.0, 600),
    NodeRun("step", "output", "computed", 500.0, 1024),
    NodeRun("model", "state", "hit", 0.0, 0),
    NodeRun("model", "output", "recomputed", 3_000.0, 0),
]

texts = st.text(st.characters(exclude_categories=()), max_size=120)  # lone surrogates as well
rows = st.builds(
    NodeRun,
    texts | st.sampled_from(["a", "日本語", "🎉", "a\nb", "\ud800", "e\u0301" * 60]),
    st.sampled_from(["state", "output"]),
    st.sampled_from(["hit", "computed", "recomputed"]),
    st.floats(0, 1e9),
    st.integers(0, 2**70),
)


@pytest.mark.parametrize(("ms", "text"), MS)
def test_durations(ms, text):
    assert human_ms(ms) == text


def test_moments_are_of_this_machines_clock():
    then = datetime(2026, 11, 30, 13, 43, 5, 999_999).astimezone()
    assert moment_text(then.timestamp()) == "2026-11-30 13:43:05"
    assert moment_text(then.timestamp(), seconds=False) == "2026-11-30 13:43"


@pytest.mark.parametrize(
    ("at", "text"),
    [(1e30, "1e+30 s"), (-1e18, "-1e+18 s"), (float("nan"), "nan s"), (float("inf"), "inf s")],
)
def test_what_is_no_moment_is_a_number(at, text):
    assert moment_text(at) == moment_text(at, seconds=False) == text


@pytest.mark.parametrize(("n", "text"), SIZES)
def test_sizes(n, text):
    assert human_bytes(n) == text


def test_one_summary_per_node_in_order_of_appearance():
    assert summarize(iter(ROWS)) == [
        NodeSummary(
            node="scaler",
            fits=1,
            forwards=1,
            hits=0,
            computed=2,
            recomputed=0,
            duration_ms=1.2,
            bytes=4096,
            where=("",),
        ),
        NodeSummary(
            node="step",
            fits=0,
            forwards=3,
            hits=1,
            computed=2,
            recomputed=0,
            duration_ms=900.0,
            bytes=1024,
            where=("",),
        ),
        NodeSummary(
            node="model",
            fits=1,
            forwards=1,
            hits=1,
            computed=0,
            recomputed=1,
            duration_ms=3000.0,
            bytes=0,
            where=("",),
        ),
    ]


def test_a_table():
    assert table_text(summarize(ROWS), "fit").splitlines() == [
        "fit",
        "node    what was done                     forwards    time    bytes",
        "scaler  computed                                    1.2 ms  4.0 KiB",
        "step    1 hit, 2 computed                        3  900 ms  1.0 KiB",
        "model   1 hit, 1 recomputed                          3.0 s",
        "───────────────────────────────────────────────────────────────────",
        "total   2 hits, 4 computed, 1 recomputed         5   3.9 s  5.0 KiB",
    ]


def test_what_nobody_has_to_say_is_left_out():
    assert table_text(summarize([NodeRun("a", "output", "hit", 0.0, 0)]), "forward") == (
        "forward\nnode   what was done\na      hit\n────────────────────\ntotal  1 hit"
    )
    assert table_text([], "fit") == "fit: nothing to do"


def test_ids_of_any_text_stay_on_their_line():
    ids = ["日本", "a\nb", "\ud800", "", " ", "👩\u200d🔬", "x" * 30 + "y" * 30]
    found = table_text(summarize([NodeRun(one, "state", "hit", 0.0, 0) for one in ids]), "fit")
    assert [line.split("  ")[0] for line in found.splitlines()[2:-2]] == [
        "日本",
        r"'a\nb'",
        r"'\ud800'",
        "''",
        "' '",
        r"'👩\u200d🔬'",
        "x" * 19 + "…" + "y" * 20,
    ]


def test_thousands_of_rows_of_one_node_are_one_line():
    found = summarize(NodeRun("step", "output", "computed", 0.5, 8) for _ in range(10_000))
    assert table_text(found, "forward").splitlines()[2].split() == [
        "step",
        *("10000", "computed"),
        "10000",
        *("5.0", "s"),
        *("8", "B"),
    ]


def cells(line):
    """Count cells as ``human.width`` should, in other words."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in line)
    return len(line) + wide - sum(unicodedata.category(char) in {"Mn", "Me"} for char in line)


@given(st.lists(rows, max_size=30), texts)
def test_any_rows_make_a_table_that_is_in_line_and_adds_up(given_rows, title):
    found = summarize(given_rows)
    lines = table_text(found, title).split("\n")
    nodes = list(dict.fromkeys(row.node for row in given_rows))
    assert [one.node for one in found] == nodes
    assert sum(one.fits + one.forwards for one in found) == len(given_rows)
    assert sum(one.hits + one.computed + one.recomputed for one in found) == len(given_rows)
    assert sum(one.duration_ms for one in found) == pytest.approx(
        sum(row.duration_ms for row in given_rows)
    )
    last = {(row.node, row.what): row.bytes for row in given_rows}
    assert sum(one.bytes for one in found) == sum(last.values())
    if nodes:
        assert len(lines) == len(nodes) + 4
        rule = len(lines[-2])
        assert set(lines[-2]) == {"─"}
        assert all(cells(line) <= rule for line in lines[1:])
    assert all(line.isprintable() for line in lines)


@given(texts, st.integers(3, 50))
def test_what_is_clipped_fits_and_keeps_both_ends(text, limit):
    text = "".join(filter(str.isprintable, text))
    found = clipped(text, limit)
    assert width(found) <= limit
    assert len(found) <= 4 * limit
    assert found == text or "…" in found


@given(texts)
def test_a_message_is_one_line(text):
    found = one_line(text, 50)
    assert found.isprintable()
    assert len(found) <= 50
