from __future__ import annotations

import math
import os
import re
import sys
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from soma import Filter, Graph
from soma.cli.report import report
from soma.tracking.find import find_run
from soma.tracking.records import MetricPoint
from soma.tracking.report import run_page, write_page
from soma.tracking.report.activity import Activity, Bar, CallBar, activity_of
from soma.tracking.report.axis import make_axis
from soma.tracking.report.plots import MAX_PLOTS, plots_of
from soma.tracking.report.scale import number_text, place_in, ticks, time_step
from soma.tracking.report.timeline import MAX_ROWS, WIDTH, timeline_of
from soma.tracking.view import RunView
from support.run_dirs import (
    completed,
    dead_process,
    event,
    events_of_a_fit,
    hit,
    live_process,
    write_run,
)

SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "br"}
ALLOWED = {
    *("html", "head", *VOID, "title", "style", "body", "header", "main", "footer", "section"),
    *("h1", "h2", "div", "span", "p", "ul", "li", "b", "i", "dl", "dt", "dd", "code", "pre"),
    *("table", "thead", "tbody", "tfoot", "tr", "th", "td", "details", "summary"),
    *("figure", "figcaption", "svg", "g", "rect", "path", "text", "line", "circle"),
}
LIMIT = 1_500_000
BEGAN = 1_796_012_100.125
ANY = st.text(st.characters(exclude_categories=()), max_size=30)  # lone surrogates as well


class Page(HTMLParser):
    """The page as a browser takes it; complains of tags that are not closed."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.texts, self.attributes = [], set(), [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open and data.strip():
            self.texts.append(data.strip())

    @property
    def text(self):
        return "\n".join(self.texts)


def checked(view):
    """Return the page of a run, after all that is to be said of any page."""
    html = run_page(view)
    html.encode("utf-8")
    page = Page(html)
    assert page.tags <= ALLOWED
    assert not {name for name, _ in page.attributes if name.startswith("on")}
    assert not {name for name, _ in page.attributes} & {"href", "src", "action", "srcset"}
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)[1]
    assert "url(" not in style
    assert "@import" not in style
    assert {value for _, value in page.attributes if value and value.startswith("http")} <= {
        SVG[1:-1]
    }
    for picture in pictures(html):
        assert picture.tag == f"{SVG}svg"
    return page


def pictures(html):
    found = re.findall(r"<svg .*?</svg>", html, re.DOTALL)
    assert len(found) == html.count("<svg")
    return [ET.fromstring(one) for one in found]  # noqa: S314  # we wrote it


def looks(picture, name):
    return [one for one in picture.iter() if one.get("class") == name]


def labels(picture):
    return [one.text or one[0].tail for one in picture.iter(f"{SVG}text")]


def numbers(text):
    return [float(one) for one in re.findall(r"-?\d+(?:\.\d+)?", text)]


def tiles(page):
    names = {"call", "calls", "hit", "hits", "computed", "failure", "failures", "lost events"}
    found = {}
    for count, name in pairwise(page.texts):
        if name in names:
            found.setdefault(name, count)
    return {name: count for name, count in found.items() if count.isdigit()}


# Round numbers


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (0.13, 0.52, ["0.2", "0.3", "0.4", "0.5"]),
        (-1, 3, ["-1", "0", "1", "2", "3"]),
        (0, 4999, ["0", "1,000", "2,000", "3,000", "4,000"]),
        (0, 5e7, ["0", "1e7", "2e7", "3e7", "4e7", "5e7"]),
        (1e-9, 4e-9, ["1e-9", "2e-9", "3e-9", "4e-9"]),
        (10, 10, ["10"]),
        (-1e308, 1e308, ["-1e308", "1e308"]),
        (1.0, math.nextafter(1.0, 2), ["1", "1"]),
    ],
)
def test_ticks_stand_at_round_numbers(low, high, expected):
    assert [one.label for one in ticks(low, high, 5)] == expected


def test_ticks_of_steps_are_whole():
    assert [one.label for one in ticks(0, 2, 5, whole=True)] == ["0", "1", "2"]


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_ticks_lie_on_the_axis_and_are_few(one, other):
    low, high = sorted((one, other))
    found = ticks(low, high, 5)
    assert 1 <= len(found) <= 30
    values = [tick.value for tick in found]
    assert values == sorted(values)
    slack = (high / 2 - low / 2) * 1e-6
    assert all(low / 2 - slack <= value / 2 <= high / 2 + slack for value in values)
    assert all(tick.label for tick in found)
    assert high == low or place_in(values[0], low, high) >= -1e-6


@pytest.mark.parametrize(
    ("at_least", "expected"),
    [
        (0.00000013, ["0", "0.2 µs", "0.4 µs"]),
        (0.0013, ["0", "2 ms", "4 ms"]),
        (0.013, ["0", "20 ms", "40 ms"]),
        (0.3, ["0", "0.5 s", "1.0 s"]),
        (13, ["0", "20 s", "40 s"]),
        (20.1, ["0", "30 s", "1 min"]),
        (40, ["0", "1 min", "2 min"]),
        (1700, ["0", "30 min", "1 h"]),
        (2000, ["0", "1 h", "2 h"]),
        (90_000, ["0", "2 d", "4 d"]),
    ],
)
def test_steps_of_time_are_round(at_least, expected):
    step = time_step(at_least)
    assert step.seconds >= at_least
    assert [step.label(count) for count in range(3)] == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.1, "0.1"), (1234567.0, "1.2346e6"), (math.nan, "NaN"), (-math.inf, "-inf"), (0.0, "0")],
)
def test_numbers_are_short(value, expected):
    assert number_text(value) == expected


# The time axis


def test_long_idle_times_are_cut_out_of_the_axis_and_all_that_is_left_has_one_scale():
    axis = make_axis([(101.0, 102.0), (0.0, 1.0)], 100, 900)
    assert axis.per_second == pytest.approx((800 - 46 - 2 * 3) / 2)
    assert [axis.x(at) for at in (0, 1, 101, 102)] == pytest.approx([100, 474, 523, 897])
    assert [one.seconds for one in axis.cuts] == [100]
    assert (axis.cuts[0].left, axis.cuts[0].right) == pytest.approx((477, 523))
    assert [one.label for one in axis.ticks(axis.stretches[1])] == ["0", "0.5 s", "1.0 s"]
    assert axis.x(-5) == 100
    assert axis.x(50) == pytest.approx(477)
    assert axis.x(1000) == pytest.approx(900)


def test_short_pauses_stay():
    axis = make_axis([(0.0, 1.0), (1.1, 2.0), (2.2, 3.0)], 0, 100)
    assert len(axis.stretches) == 1
    assert not axis.cuts


def test_of_pauses_the_long_ones_are_cut():
    axis = make_axis([(0, 1), (1.1, 2), (7, 8)], 0, 100)
    assert [(one.start, one.end) for one in axis.stretches] == [(0, 2), (7, 8)]


def test_many_short_calls_get_times_since_the_first():
    axis = make_axis([(second, second + 0.001) for second in range(600)], 0, 1000)
    assert axis.is_shredded
    assert sum(one.right - one.left for one in axis.cuts) == pytest.approx(250)
    assert [one.label for one in axis.wall_ticks()][:3] == ["0", "1 min", "2 min"]


def test_an_instant_is_an_axis_too():
    axis = make_axis([(5.0, 5.0)], 10, 20)
    assert axis.x(5.0) == 10


# When nodes were at work


def test_bars_begin_with_the_start_of_a_node_and_are_as_long_as_its_end_says(tmp_path):
    path = write_run(
        tmp_path,
        events=[
            event("RunStarted", phase="fit"),  # at 1001, each a second after the other
            event("NodeStarted", node_id="a", what="state", passes=[1]),
            event("NodeStarted", node_id="a", what="state", passes=[2]),
            completed("a", "state", ms=1500, passes=(1,)),
            hit("b"),
            completed("a", "state", ms=250, passes=(2,), outcome="recomputed"),
            event("NodeStarted", node_id="c", what="output"),
            event("NodeFailed", node_id="c", what="output", error="E"),
            completed("late", ms=500),  # its start was lost
            event("NodeStarted", node_id="d", what="output", passes=[]),
            event("RunFailed", error="E"),
        ],
    )
    found = activity_of(RunView(path))
    assert found.calls == [CallBar("fit", "failed", 1001, 1011)]
    assert found.bars == [
        Bar("a", "state", "computed", 1002, 1003.5),
        Bar("a", "state", "recomputed", 1003, 1003.25),
        Bar("b", "output", "hit", 1005, 1005),
        Bar("c", "output", "failed", 1007, 1008),
        Bar("late", "output", "computed", 1008.5, 1009),
        Bar("d", "output", "open", 1010, 1011),
    ]


def test_what_a_crash_left_lasts_until_the_last_sign_of_life(tmp_path):
    path = write_run(
        tmp_path,
        state="running",
        process=dead_process(),
        events=[
            {**event("RunStarted", phase="forward"), "ts": BEGAN},
            {**event("NodeStarted", node_id="a", what="output"), "ts": BEGAN + 1},
        ],
    )
    os.utime(path / "events.jsonl", (BEGAN, BEGAN))
    found = activity_of(RunView(path))
    assert found.bars == [Bar("a", "output", "open", BEGAN + 1, BEGAN + 2.5)]
    assert found.calls == [CallBar("forward", "open", BEGAN, BEGAN + 2.5)]


@pytest.mark.parametrize(
    "damage",
    [{"ts": "x"}, {"ts": "NaN"}, {"ts": -1}, {"node_id": 3}, {"what": None}, {"run_id": []}],
)
def test_damaged_events_make_no_bars(tmp_path, damage):
    path = write_run(tmp_path, events=[{**completed("a"), **damage}, {**hit("a"), **damage}])
    assert activity_of(RunView(path)).bars == []


# The timeline


def drawn(bars, calls=()):
    html, remarks = timeline_of(Activity(calls=list(calls), bars=list(bars)))
    return ET.fromstring(html), remarks  # noqa: S314  # we wrote it


def test_bars_stand_where_their_times_are():
    calls = [CallBar("fit", "completed", 10.0, 14.0)]
    bars = [
        Bar("a", "state", "computed", 10.0, 12.0),
        Bar("b", "output", "computed", 12.0, 14.0),
        Bar("b", "output", "hit", 13.0, 13.0),
    ]
    picture, remarks = drawn(bars, calls)
    # Labels take 60 pixels at least, and the times at the right 74.
    scale = (WIDTH - 74 - 60 - 3) / 4
    found = [
        (float(one.get("x")), float(one.get("width")), one[0].text)
        for one in looks(picture, "g-computed")
        if len(one)
    ]
    assert found == [
        (60.0, pytest.approx(2 * scale, abs=0.1), "fit, computed, 2.0 s"),
        (
            pytest.approx(60 + 2 * scale, abs=0.1),
            pytest.approx(2 * scale, abs=0.1),
            "forward, computed, 2.0 s",
        ),
    ]
    tick = next(one for one in looks(picture, "g-hit") if one.tag == f"{SVG}path")
    assert numbers(tick.get("d"))[0] == pytest.approx(60 + 3 * scale, abs=0.1)
    assert tick[0].text == "1 hit"
    call = looks(picture, "g-fit")[0]
    assert (call.get("x"), call[0].text) == ("60", "fit, 4.0 s")
    assert [one for one in labels(picture) if one.endswith(" s")][:8] == [
        *(f"{tenth / 2:.1f} s" for tenth in range(1, 9)),
    ][:8]
    assert {"a", "b", "computed", "hit", "fit", "calls"} <= set(labels(picture))
    assert remarks == []


def test_rows_stand_in_the_order_in_which_nodes_appear():
    bars = [Bar(node, "output", "computed", n, n + 1.0) for n, node in enumerate("zax")]
    assert [one for one in labels(drawn(bars)[0]) if one in "zax"] == ["z", "a", "x"]


def test_failures_are_marked_and_told():
    picture, _ = drawn([Bar("a", "output", "failed", 0, 1.0), Bar("a", "output", "open", 1.0, 2.0)])
    assert looks(picture, "g-failed")
    assert len(looks(picture, "g-cross")) == 2  # one in the legend
    assert {"failed", "not ended"} <= set(labels(picture))


def test_idle_time_is_said_where_it_is_cut_out():
    bars = [Bar("a", "output", "computed", start, start + 1.0) for start in (0, 301)]
    picture, remarks = drawn(bars)
    assert "idle for 5 min 00 s, cut out" in [one.text for one in picture.iter(f"{SVG}title")]
    assert remarks == [
        "An idle time is cut out (5 min 00 s); after a cut, time counts from 0 again."
    ]


def test_only_the_slowest_nodes_have_rows():
    bars = [Bar(f"n{n}", "output", "computed", n, n + 0.1 + n / 1000) for n in range(MAX_ROWS + 5)]
    picture, remarks = drawn(bars)
    shown = [one for one in labels(picture) if re.fullmatch(r"n\d+", one)]
    assert shown == [f"n{n}" for n in range(5, MAX_ROWS + 5)]
    assert "5 nodes that took less time are left out." in remarks


def test_small_bars_that_touch_are_one():
    bars = [Bar("a", "output", "computed", n / 1000, (n + 1) / 1000) for n in range(20_000)]
    picture, remarks = drawn(bars)
    shared = next(one for one in looks(picture, "g-computed") if one.tag == f"{SVG}path")
    assert shared.get("d").count("M") == 1
    assert shared[0].text == "20,000 computed, 20.0 s"
    assert any("drawn as if" in one for one in remarks)


def test_hits_are_seen_among_what_was_computed():
    bars = [Bar("a", "output", "computed", n / 1000, (n + 1) / 1000) for n in range(5_000)]
    picture, _ = drawn([*bars, Bar("a", "output", "hit", 2.5, 2.5)])
    paths = [one for one in picture.iter(f"{SVG}path") if one.get("class") != "g-axis"]
    assert [one.get("class") for one in paths] == ["g-hit", "g-computed"]
    hit_high, computed_high = (numbers(one.get("d"))[3] for one in paths)
    assert hit_high > computed_high


# Charts


def points(values, steps=True):
    return [MetricPoint(n if steps else None, value, BEGAN + n) for n, value in enumerate(values)]


def chart(values, **more):
    html = plots_of({"loss": points(values, **more)}, BEGAN)[0][0]
    return html, pictures(html)[0] if "<svg" in html else None


def test_a_line_goes_through_the_values():
    html, picture = chart([0.0, 10.0, 5.0])
    xs, ys = (numbers(looks(picture, "g-line")[0].get("d"))[place::2] for place in (0, 1))
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.11)
    assert ys[0] - ys[2] == pytest.approx(ys[2] - ys[1], abs=0.11)
    assert len(looks(picture, "g-dot")) == 3
    assert labels(picture) == ["0", "2", "4", "6", "8", "10", "0", "1", "2", "step"]
    assert "min 0 (step 0)</span> <span>max 10 (step 1)</span> <span>last 5</span>" in html


def test_peaks_of_one_point_are_seen_among_thousands():
    values = [math.sin(n / 500) for n in range(50_000)]
    values[31_234], values[40_000] = 50.0, -50.0
    html, picture = chart(values)
    found = numbers(looks(picture, "g-line")[0].get("d"))
    assert len(found) <= 2 * 4 * 331
    ticked = {one.text: float(one.get("y")) - 4 for one in looks(picture, "g-s g-e")}
    per_unit = (ticked["-40"] - ticked["40"]) / 80
    assert max(found[1::2]) - min(found[1::2]) == pytest.approx(100 * per_unit, abs=0.3)
    assert "max 50 (step 31,234)" in html
    assert not looks(picture, "g-dot")


@given(st.lists(st.floats(), min_size=1, max_size=50), st.booleans())
def test_any_values_make_a_chart(values, steps):
    html, picture = chart(values, steps=steps)
    left_out = sum(not math.isfinite(one) for one in values)
    if left_out == len(values):
        assert picture is None
        assert "none is a number" in html
        return
    assert (f"{left_out} of " in html) == bool(left_out)
    for one in picture.iter():
        for name in ("x", "y", "cx", "cy", "d", "x1", "y1"):
            assert not re.search("nan|inf|e[+-]?[0-9]", one.get(name) or "")


def test_values_that_are_no_numbers_leave_gaps_and_are_counted():
    html, picture = chart([1.0, 2.0, math.nan, 3.0, math.inf, 4.0, 5.0, -math.inf])
    assert len(looks(picture, "g-line")) == 2
    assert "3 of 8 values are not drawn (1 NaN, 2 infinite)." in html
    assert "last -inf" in html


def test_one_value_is_a_dot_and_equal_ones_a_level_line():
    picture = chart([0.5])[1]
    assert len(looks(picture, "g-dot")) == 1
    assert not looks(picture, "g-line")
    level = chart([3.0] * 40)[1]
    assert len(set(numbers(looks(level, "g-line")[0].get("d"))[1::2])) == 1
    assert labels(level)[0] == "3"


def test_without_steps_values_stand_over_time():
    assert labels(chart([1.0, 2.0, 3.0], steps=False)[1])[-1] == "seconds since the run began"


def test_steps_that_begin_again_begin_a_line_of_their_own():
    twice = {"loss": [*points([1.0, 2.0]), *points([3.0, 4.0])]}
    assert len(looks(pictures(plots_of(twice, BEGAN)[0][0])[0], "g-line")) == 2
    often = {"loss": points([1.0, 2.0]) * 20}
    assert "seconds since" in plots_of(often, BEGAN)[0][0]


def test_steps_longer_than_a_float_are_no_axis():
    huge = {"loss": [MetricPoint(10**400, 1.0, BEGAN)]}
    assert "seconds since" in plots_of(huge, BEGAN)[0][0]


def test_nodes_and_trials_have_charts_of_their_own():
    found = plots_of(
        {
            "loss": [
                MetricPoint(0, 1.0, BEGAN, node, trial)
                for node, trial in (("a", None), (None, "7"))
            ]
        },
        BEGAN,
    )[0]
    assert ["node a" in found[0], "trial 7" in found[1]] == [True, True]


def test_more_charts_than_a_page_bears_are_counted(tmp_path):
    metrics = [{"ts": BEGAN, "name": f"m{n}", "value": n, "step": n} for n in range(MAX_PLOTS + 5)]
    page = checked(RunView(write_run(tmp_path, metrics=metrics)))
    assert f"m{MAX_PLOTS - 1}" in page.texts
    assert f"m{MAX_PLOTS}" not in page.texts
    assert "5 more are not drawn; these are the first 40." in page.texts


# The page


def test_a_page_says_what_was_run_and_what_came_of_it(tmp_path):
    path = write_run(
        tmp_path,
        events=events_of_a_fit(),
        tags=["baseline", "a<b"],
        params={"lr": 0.1, "name": "adam & co"},
        hostname="node-7",
        seeds={"graph": 11},
        argv=["train.py", "--token", "***", "a b"],
    )
    page = checked(RunView(path))
    assert page.texts[0] == "digits (completed)"
    for said in (
        *("run_20261130T041500Z_3fa9", "2026-11-30 04:15:00 UTC", "2.5 s", "baseline", "a<b"),
        *("lr = 0.1", "name = adam & co", "11", "0123abcd", "node-7", "Soma 0.1.0, Python 3.11.7"),
        "train.py --token '***' 'a b'",
    ):
        assert said in page.texts
    assert tiles(page) == {
        "call": "1", "hits": "4", "computed": "1", "failures": "0", "lost events": "0",
    }  # fmt: skip
    rows = page.texts[page.texts.index("Nodes") :]
    assert rows[rows.index("scaler") + 1 :][:5] == ["1", "1", "3.0 ms", "40 B", "pca"]
    reused = page.texts[page.texts.index("Reused") :]
    assert reused[reused.index("step") :][:6] == ["step", "forward", "3", "1", "1 to 3", "Memory"]
    assert {"refine", "3 passes, stopped", "classify", "took arm 'balanced'"} <= set(page.texts)
    assert "versions of 1 package" in page.texts


def test_a_page_is_the_same_each_time(tmp_path):
    path = write_run(tmp_path, events=events_of_a_fit())
    assert run_page(RunView(path)) == run_page(RunView(path))


def test_a_page_forbids_the_browser_to_load_or_run_anything(tmp_path):
    html = run_page(RunView(write_run(tmp_path)))
    assert "default-src 'none'; style-src 'unsafe-inline'" in html
    assert "<script" not in html
    assert html.startswith('<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">')


def test_an_empty_run_has_a_page(tmp_path):
    page = checked(RunView(write_run(tmp_path)))
    assert "No fit and no forward has begun." in page.texts
    assert "Timeline" not in page.texts
    assert "Measured" not in page.texts


def test_a_failed_run_says_so_at_the_top(tmp_path):
    failed = event(
        "NodeFailed", node_id="bad", what="output", error="ValueError: <b>\n  of 2", passes=[2]
    )
    path = write_run(
        tmp_path,
        state="failed",
        error="ValueError: <b>\n  of 2",
        events=[event("RunStarted", phase="fit"), failed, event("RunFailed", error="ValueError")],
    )
    page = checked(RunView(path))
    assert page.texts[:4] == ["digits (failed)", "digits", "failed", "run_20261130T041500Z_3fa9"]
    assert page.texts[4] == "ValueError: <b>\n  of 2"
    rows = page.texts[page.texts.index("What failed") :]
    assert rows[rows.index("bad") :][:5] == [
        "bad",
        "forward",
        "2",
        "fit",
        "ValueError: <b>\n  of 2",
    ]
    assert tiles(page)["failure"] == "1"


def test_a_crashed_run_says_what_had_not_ended(tmp_path):
    path = write_run(
        tmp_path,
        state="running",
        process=dead_process(),
        events=[
            event("RunStarted", phase="fit"),
            event("NodeStarted", node_id="slow", what="state", kind="Trainable"),
        ],
    )
    page = checked(RunView(path))
    assert "crashed" in page.texts
    assert "Its process is no more, and did not say why." in page.texts
    assert "had not ended" in page.texts[page.texts.index("What had not ended") :]


def test_a_run_that_goes_on_says_so(tmp_path):
    with live_process() as process:
        path = write_run(
            tmp_path,
            state="running",
            process=process,
            events=[
                event("RunStarted", phase="fit"),
                event("NodeStarted", node_id="slow", what="state", kind="Trainable"),
            ],
        )
        page = checked(RunView(path))
    assert "running" in page.texts
    assert "What it is working on" in page.texts


def test_lost_events_are_not_kept_quiet(tmp_path):
    page = checked(RunView(write_run(tmp_path, lost_events=7)))
    assert tiles(page)["lost events"] == "7"


def test_a_run_of_a_newer_soma_has_a_page_that_says_so(tmp_path):
    page = checked(RunView(write_run(tmp_path, schema_version=99)))
    assert "unknown" in page.texts
    assert any("newer Soma" in one for one in page.texts)


@pytest.mark.parametrize("name", ["events.jsonl", "graph.json", "metrics.jsonl"])
def test_what_cannot_be_read_is_said_and_the_rest_is_there(tmp_path, name):
    path = write_run(tmp_path, events=events_of_a_fit(), metrics=[])
    (path / name).unlink()
    (path / name).mkdir()
    page = checked(RunView(path))
    assert any(name in one for one in page.texts)
    assert "0123abcd" in page.texts


def test_a_graph_that_did_not_compile_says_why(tmp_path):
    page = checked(RunView(write_run(tmp_path)))
    assert "There is no picture, as the graph did not compile." in page.texts


class Add(Filter):
    def __init__(self, amount=1):
        self.amount = amount

    def forward(self, x, state):
        return (sum(x.values()) if isinstance(x, dict) else x) + self.amount


def is_large(x):
    return x > 3


def test_a_real_run_has_its_graph_with_what_was_done(tmp_path):
    g = Graph.somatize(Add(1).named("first"))
    g.loop("again", Add(1).named("more"), until=is_large)
    g.edge("first", "again")
    with g.track_run("real", root=tmp_path) as run:
        g.forward(0)
        g.forward(0)
        run.log("score", 0.5)
    html = run_page(find_run(tmp_path, "last"))
    page = checked(find_run(tmp_path, "last"))
    graph, timeline, _score = pictures(html)
    assert {one.get("data-node") for one in graph.iter() if one.get("data-node")} == {
        *("first", "again", "more", "is_large"),
    }
    assert "There is no picture" not in page.text
    assert [one for one in labels(timeline) if one in {"first", "again", "more", "is_large"}] == [
        *("first", "more", "is_large"),
    ]
    assert {"again", "score"} <= set(page.texts)


def test_a_graph_too_large_for_a_picture_is_shown_as_text(tmp_path):
    side_by_side = Add(0).named("n0")
    for n in range(1, 2_001):
        side_by_side = side_by_side | Add(n).named(f"n{n}")
    g = Graph.somatize(side_by_side)
    with g.track_run("wide", root=tmp_path):
        pass
    page = checked(find_run(tmp_path, "last"))
    assert (
        "There is no picture: this graph has 2,001 nodes, and a picture is drawn of at most 2,000."
        in page.texts
    )
    assert "n1999" in page.text


@settings(max_examples=60, deadline=None)
@given(ANY, ANY, ANY)
def test_nothing_in_a_run_breaks_the_page(tmp_path_factory, node, name, error):
    hostile = f"{node}<script>alert(1)</script>\"'&]]>\x00\ufffe\ud800🙂"
    failed = event("NodeFailed", node_id=hostile, what=name, error=error)
    path = write_run(
        tmp_path_factory.mktemp("run"),
        name=name + hostile,
        tags=[error, hostile],
        params={hostile: {error: hostile}},
        hostname=hostile,
        argv=[hostile, error],
        git={"sha": hostile, "branch": error, "dirty": True},
        versions={hostile: error},
        error=error + hostile,
        state="failed",
        events=[
            event("RunStarted", hostile, phase=name),
            event("NodeStarted", hostile, node_id=hostile, what=name),
            completed(node, name),
            completed(hostile, "state"),
            {**hit(hostile), "tier": hostile, "key": name},
            failed,
            event("BranchTaken", node_id=node, arm=hostile),
            event("NodeNotKept", node_id=hostile, message=error + hostile),
            event("RunFailed", error=hostile),
        ],
        metrics=[{"ts": 1.0, "name": hostile, "value": 1, "step": 1, "node_id": name}],
    )
    checked(RunView(path))


@pytest.mark.parametrize(("nodes", "every_hit", "measured"), [(3, 2, 100_000), (90, 3, 0)])
def test_a_hundred_thousand_events_make_a_page_for_a_mail(tmp_path, nodes, every_hit, measured):
    events = []
    now = BEGAN

    def add(one, took=0.0):
        nonlocal now
        now += took
        events.append({**one, "ts": now})

    call = 0
    while len(events) < 100_000:
        call += 1
        run_id = f"{call:032x}"
        add(event("RunStarted", run_id, phase="fit"), 0.5)
        for n in range(nodes):
            if (call + n) % every_hit == 0:
                add(hit(f"node {n}", "state", run_id, key=f"{call}"), 1e-5)
            else:
                add(event("NodeStarted", run_id, node_id=f"node {n}", what="state"), 1e-5)
                took = 0.0005 * (1 + (call * 7 + n) % 13)
                add(completed(f"node {n}", "state", run_id, ms=took * 1e3), took)
        add(event("RunCompleted", run_id, duration=1.0))
    metrics = [
        {"ts": BEGAN, "name": f"m{n % 50}", "value": n * 7919 % 1013, "step": n // 50}
        for n in range(measured)
    ]
    path = write_run(tmp_path, events=events, metrics=metrics)
    html = run_page(RunView(path))
    assert len(html.encode()) < LIMIT
    found = pictures(html)
    assert len(found) == 1 + MAX_PLOTS * bool(measured)
    assert len(list(found[0].iter())) < 6_000
    assert len(html) > 50_000


# Files


def test_a_page_replaces_the_one_that_was_there_only_when_it_is_whole(tmp_path, monkeypatch):
    view = RunView(write_run(tmp_path))
    target = tmp_path / "page.html"
    target.write_text("old")
    target.chmod(0o600)

    def full(path, onto):
        assert onto == target != path
        assert path.stat().st_size == len(run_page(view).encode())
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(type(target), "replace", full)
        with pytest.raises(OSError, match="No space"):
            write_page(view, target)
    assert target.read_text() == "old"
    write_page(view, target)
    assert target.stat().st_mode & 0o777 == 0o600
    assert target.read_text(encoding="utf-8") == run_page(view)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["page.html", "runs"]


def test_a_link_stays_a_link_and_a_device_a_device(tmp_path):
    view = RunView(write_run(tmp_path))
    link = tmp_path / "link.html"
    link.symlink_to("page.html")
    write_page(view, link)
    assert link.is_symlink()
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype")
    write_page(view, os.devnull)
    assert not os.path.isfile(os.devnull)  # noqa: PTH113  # as Path would say


def test_the_command_writes_a_page_named_after_the_run(tmp_path, monkeypatch):
    path = write_run(tmp_path, events=events_of_a_fit())
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(report, ["3fa9", "--root", str(tmp_path)])
    assert (done.exit_code, done.output) == (0, f"{path.name}.html\n")
    page = (tmp_path / f"{path.name}.html").read_bytes()
    assert page == run_page(RunView(path)).encode()
    again = CliRunner().invoke(report, ["last", "--root", str(tmp_path), "-o", "-"])
    assert again.stdout_bytes == page
    elsewhere = CliRunner().invoke(report, ["last", "--root", str(tmp_path), "-o", "x.html"])
    assert elsewhere.output == "x.html\n"
    assert (tmp_path / "x.html").read_bytes() == page


def test_the_command_says_what_is_wrong(tmp_path):
    write_run(tmp_path)
    unknown = CliRunner().invoke(report, ["nope", "--root", str(tmp_path)])
    assert unknown.exit_code == 2
    assert "nope" in unknown.output
    nowhere = str(tmp_path / "no" / "x.html")
    failed = CliRunner().invoke(report, ["last", "--root", str(tmp_path), "-o", nowhere])
    assert failed.exit_code == 1
    assert f"{nowhere} cannot be written: No such file or directory" in failed.output


# What clocks, damage and odd values do


@pytest.mark.parametrize("back", [0.5, 3.0, 61.0])
def test_a_clock_that_was_set_back_makes_no_time_negative(tmp_path, back):
    path = write_run(
        tmp_path,
        events=[
            {**event("RunStarted", phase="fit"), "ts": BEGAN},
            {**event("NodeStarted", node_id="a", what="state"), "ts": BEGAN + 1},
            {**event("RunFailed", error="ValueError: x"), "ts": BEGAN + 1 - back},
            {**event("NodeFailed", node_id="a", what="state", error="x"), "ts": BEGAN - back},
        ],
    )
    found = activity_of(RunView(path))
    assert all(one.start <= one.end for one in (*found.calls, *found.bars))
    assert checked(RunView(path))


def test_an_axis_of_intervals_that_end_before_they_begin():
    axis = make_axis([(0.0, -58.0), (1.0, 3.0)], 60.0, 926.0)
    assert axis.stretches[0].left == 60.0
    assert axis.stretches[-1].right == pytest.approx(926.0)


def test_a_node_whose_duration_is_damaged_has_ended(tmp_path):
    damaged = {**completed("a"), "duration": "x"}
    path = write_run(tmp_path, events=[event("NodeStarted", node_id="a", what="output"), damaged])
    assert activity_of(RunView(path)).bars == []


def test_a_node_that_ends_after_its_call_has_one_bar(tmp_path):
    path = write_run(
        tmp_path,
        events=[
            {**event("NodeStarted", node_id="a", what="output"), "ts": BEGAN},
            {**event("RunFailed", error="x"), "ts": BEGAN + 1},
            {**completed("a"), "duration": 2_000.0, "ts": BEGAN + 2},
        ],
    )
    (bar,) = activity_of(RunView(path)).bars
    assert (bar.outcome, bar.start, bar.end) == ("computed", BEGAN, BEGAN + 2)


@pytest.mark.parametrize("values", [[0.0, 5e-324], [-5e-324, 5e-324], [1e308, -1e308, 5e-324]])
def test_the_smallest_numbers_make_a_chart(values):
    assert chart(values)[1] is not None


def test_where_there_are_more_gaps_than_columns_there_are_points():
    html, picture = chart([0.0, math.nan] * 50_000)
    assert len(html) < 60_000
    (line,) = looks(picture, "g-line")
    assert line.get("d").count("M") > 100


def test_thousands_of_tags_are_counted(tmp_path):
    page = checked(RunView(write_run(tmp_path, tags=[f"tag {n}" for n in range(5_000)])))
    assert "tag 0" in page.text
    assert "tag 4999" not in page.text
    assert re.search(r"and 4,\d\d\d more", page.text)


def test_a_report_outlives_its_picture(tmp_path, monkeypatch):
    g = Graph(cache="memory")
    g.node("here", abs)
    with g.track_run("mine", tmp_path):
        g.forward(-3)
    monkeypatch.setitem(sys.modules, "graphlay", None)
    page = checked(find_run(tmp_path, "last"))
    assert "There is no picture: Pictures need graphlay" in page.text
    assert "here" in page.text


def test_a_node_that_failed_and_succeeded_later_is_not_drawn_as_failed(tmp_path):
    class Fails(Filter):
        def forward(self, x, state):
            return 1 / x

    g = Graph(cache="off")
    g.node("once", Fails())
    with g.track_run("mine", tmp_path) as run:
        with pytest.raises(ZeroDivisionError):
            g.forward(0)
        view = RunView(run.path)
        assert view.overlay().nodes["once"].outcome == "failed"
        g.forward(1)
    assert view.overlay().nodes["once"].outcome == "computed"
    assert [one.node for one in view.failures()] == ["once"]
