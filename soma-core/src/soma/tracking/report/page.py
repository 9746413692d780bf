"""The page as a whole: its parts, one after the other, each of which may fail by itself."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from soma._html import preformatted, safe
from soma._version import __version__
from soma.errors import InvalidInput, SomaError
from soma.events.human import one_line
from soma.tracking.files import write_output
from soma.tracking.report.activity import activity_of
from soma.tracking.report.head import head_of, tiles_of, title_of
from soma.tracking.report.plots import MAX_PLOTS, plots_of
from soma.tracking.report.sections import (
    calls_of,
    decisions_of,
    failures_of,
    nodes_of,
    notices_of,
    reuse_of,
)
from soma.tracking.report.style import SHEET
from soma.tracking.report.timeline import timeline_of
from soma.tracking.view import RunView

__all__ = ["run_page", "write_page"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What the browser is told: nothing is loaded, and nothing is run."""
_WIDTH = re.compile(r'<svg[^>]* width="([0-9.]+)"')
_SMALLEST = 0.6
"""Letters that are smaller cannot be read."""


def run_page(view: RunView) -> str:
    """Return a page that tells all there is to say of a run, and needs no other file.

    What cannot be read is said in its place; a run that cannot be read at all has a page, too.
    """
    body = "".join(_body(view))
    title = f"{one_line(title_of(view))} ({view.state})"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        '<meta name="color-scheme" content="only light">\n'
        f"<title>{safe(title)}</title>\n<style>\n{SHEET}\n</style>\n</head>\n"
        f"<body>\n{body}</body>\n</html>\n"
    )


def write_page(view: RunView, path: str | os.PathLike[str]) -> None:
    """Write the page of a run into a file; one that is there is replaced when all is written.

    Raises:
        OSError: it could not be written; the file that was there is as it was.
    """
    write_output(path, run_page(view))


def _body(view: RunView) -> Iterator[str]:
    yield f"<header>\n{_tried(lambda: head_of(view))}</header>\n<main>\n"
    if not view.note:
        yield _tried(lambda: [tiles_of(view)])
        yield _section(_what_failed(view), lambda: failures_of(view))
        yield _section("Graph", lambda: _graph(view))
        yield _section("Timeline", lambda: _timeline(view))
        yield _section("Measured", lambda: _plots(view))
        yield _section("Nodes", lambda: nodes_of(view))
        yield _section("Calls", lambda: calls_of(view))
        yield _section("Reused", lambda: reuse_of(view))
        yield _section("Decided", lambda: decisions_of(view))
        yield _section("To be known", lambda: notices_of(view))
    made = f"Made by Soma {safe(__version__)} from the record of the run."
    yield f"</main>\n<footer>{made}</footer>\n"


def _what_failed(view: RunView) -> str:
    with suppress(InvalidInput):  # the section says so
        if not view.failures():
            return "What it is working on" if view.state == "running" else "What had not ended"
    return "What failed"


def _section(title: str, part: Callable[[], Iterable[str]]) -> str:
    found = _tried(part)
    return f"<section><h2>{safe(title)}</h2>\n{found}\n</section>\n" if found else ""


def _tried(part: Callable[[], Iterable[str]]) -> str:
    """Return a part of the page, or why it is not there: the others are still worth reading."""
    try:
        return "".join(part())
    except Exception as error:  # noqa: BLE001  # whatever is in the files
        return f'<p class="error">{safe(one_line(str(error) or type(error).__name__, 1_000))}</p>'


def _graph(view: RunView) -> Iterator[str]:
    from soma.compiler.text import plan_text  # a page of a run without a plan needs none of it
    from soma.pictures import draw
    from soma.plan.picture import scene_of

    plan = view.plan()
    if plan is None:
        why = view.graph().get("error")
        said = f": {one_line(why, 1_000)}" if isinstance(why, str) and why else "."
        yield f"<p>There is no picture, as the graph did not compile{safe(said)}</p>"
        return
    try:
        picture = draw(scene_of(plan), view.overlay())
    except SomaError as error:
        why = one_line(str(error)).partition(":")[0]  # what follows is advice on other methods
        yield f"<p>There is no picture: {safe(why)}.</p>"
        text = preformatted(plan_text(plan))
        yield f"<details><summary>The plan as text</summary>{text}</details>"
    else:
        yield f'<div class="wide"><div{_at_least(picture)}>{picture}</div></div>'


def _at_least(picture: str) -> str:
    """Return the width below which a picture is moved about in and made no smaller."""
    found = _WIDTH.search(picture)
    return f' style="min-width:{float(found[1]) * _SMALLEST:.0f}px"' if found else ""


def _timeline(view: RunView) -> Iterator[str]:
    picture, remarks = timeline_of(activity_of(view))
    if picture:
        yield picture
        yield f'<p class="note">{safe(" ".join(remarks))}</p>' if remarks else ""


def _plots(view: RunView) -> Iterator[str]:
    figures, left_out = plots_of(view.metrics(), view.created_at.timestamp())
    if figures:
        yield f'<div class="plots">{"".join(figures)}</div>'
    if left_out:
        said = f"{left_out:,} more are not drawn; these are the first {MAX_PLOTS}."
        yield f'<p class="note">{said}</p>'
