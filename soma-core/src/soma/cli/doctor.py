"""``soma doctor``: whether what is installed here works, and what to do where it does not."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from typing import Any

import click

from soma._texts import one_line
from soma.contracts import Finding
from soma.doctor import examine

__all__ = ["doctor"]

_WORDS = {"fine": "ok", "note": "note", "wrong": "WRONG"}
_COLOURS = {"fine": "green", "note": "yellow", "wrong": "red"}
_WIDTH = max(map(len, _WORDS.values()))
_MOST_TEXT = 2_000


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object per finding.")
def doctor(*, as_json: bool) -> None:
    """Check this installation: versions, plugins, cache, environment, session children.

    Each line is ok, note (it works, and could be better) or WRONG, with what to do below it.
    Nothing is changed. Exits with 1 if something is wrong.
    """
    found, section = [], ""
    # What a plugin prints while it is looked at may not stand between our lines, or spoil --json.
    out = sys.stdout
    with redirect_stdout(sys.stderr):
        for title, finding in examine():
            found.append((title, finding))
            if not as_json:
                if title != section:
                    click.echo(f"{chr(10) * bool(section)}{title}", file=out)
                    section = title
                _print(finding, out)
    if as_json:
        _print_json(found)
    else:
        click.echo(f"\n{_sum([finding for _, finding in found])}")
    click.get_current_context().exit(any(finding.state == "wrong" for _, finding in found))


def _print(finding: Finding, out: Any) -> None:
    word = f"{_WORDS[finding.state]:{_WIDTH}}"
    if "NO_COLOR" not in os.environ:  # click leaves colours out where nobody would see them
        word = click.style(word, fg=_COLOURS[finding.state])
    about, text = one_line(finding.about), one_line(finding.text, _MOST_TEXT)
    click.echo(f"  {word}  {about}: {text}", file=out)
    if finding.advice:
        advice = one_line(finding.advice, _MOST_TEXT)
        click.echo(f"  {'':{_WIDTH}}  -> {advice}", file=out)


def _sum(found: list[Finding]) -> str:
    wrong = sum(one.state == "wrong" for one in found)
    notes = sum(one.state == "note" for one in found)
    noted = f"; {notes} note{'s' * (notes != 1)}" if notes else ""
    if not wrong:
        return f"Nothing is wrong{noted}."
    return f"{wrong} thing{'s are' if wrong > 1 else ' is'} wrong{noted}."


def _print_json(found: list[tuple[str, Finding]]) -> None:
    import json  # which the lines do without

    rows = [
        {
            "section": section,
            "about": one.about,
            "state": one.state,
            "text": one.text,
            "advice": one.advice,
        }
        for section, one in found
    ]
    click.echo(json.dumps(rows, indent=2))
