"""The beginning of the page: which run it is, how it went, and what it was run with."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import UTC
from typing import Any

from soma._html import safe
from soma.errors import InvalidInput, shown
from soma.events.human import human_ms, one_line, printable, times
from soma.tracking.report.style import STATES
from soma.tracking.report.tables import folded, table
from soma.tracking.view import RunView

__all__ = ["head_of", "tiles_of", "title_of"]

_VALUE = 400
_ERROR = 20_000
_PARAMS, _ARGUMENTS, _PACKAGES = 500, 200, 2_000
_SAID = {
    "crashed": "Its process is no more, and did not say why.",
    "running": "It was running when this page was written.",
}

_TOOK = {"running": "so far", "crashed": "heard of for"}


def title_of(view: RunView) -> str:
    """Return what the page is called."""
    try:
        return one_line(view.name) or view.id
    except InvalidInput:
        return view.id


def head_of(view: RunView) -> Iterator[str]:
    """Yield name, state, error and facts of a run."""
    state = view.state
    colour = STATES.get(state)
    style = f' style="background:{colour}"' if colour else ""
    yield f"<div><h1>{safe(printable(title_of(view)))}</h1> "
    yield f'<span class="state"{style}>{safe(state)}</span></div>'
    yield f'<p class="id">{safe(printable(view.id))}</p>'
    if view.note:
        yield f'<div class="error">{safe(view.note)}</div>'
        return
    if said := view.error or _SAID.get(state):
        yield f'<div class="error">{safe(_cut(said))}</div>'
    manifest = view.manifest()
    yield f'<div class="facts">{_list(_asked(view, manifest))}{_list(_around(manifest))}</div>'
    yield _packages(manifest.get("versions"))


def tiles_of(view: RunView) -> str:
    """Return the numbers that say most."""
    calls = view.calls()
    hits, failures = sum(one.hits for one in calls), len(view.failures())
    tiles = [
        (len(calls), "call" if len(calls) == 1 else "calls", False),
        (hits, "hit" if hits == 1 else "hits", False),
        (sum(one.computed for one in calls), "computed", False),
    ]
    if recomputed := sum(one.recomputed for one in calls):
        tiles.append((recomputed, "recomputed", False))
    tiles.append((failures, "failure" if failures == 1 else "failures", bool(failures)))
    tiles.append((view.lost_events, "lost events", bool(view.lost_events)))
    if view.damaged_lines:
        tiles.append((view.damaged_lines, "damaged lines", True))
    looks = {True: ' class="bad"', False: ""}
    cells = "".join(
        f"<li{looks[bad]}><b>{count:,}</b><span>{said}</span></li>" for count, said, bad in tiles
    )
    return f'<ul class="tiles">{cells}</ul>'


def _list(facts: Iterator[tuple[str, str]]) -> str:
    said = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts if value)
    return f"<dl>{said}</dl>" if said else ""


def _asked(view: RunView, manifest: dict[str, Any]) -> Iterator[tuple[str, str]]:
    began, ended = view.created_at, view.finished_at
    when = f"{began.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    yield "began", safe(when)
    yield "took" if ended else _TOOK.get(view.state, "took"), safe(human_ms(_took(view)))
    tags = view.tags
    more = f" and {len(tags) - _PARAMS:,} more" if len(tags) > _PARAMS else ""
    yield "tags", "".join(_chip(one_line(one)) for one in tags[:_PARAMS]) + more
    params = view.params
    chips = [_chip(f"{printable(name)} = {_value(one)}") for name, one in params.items()]
    more = f" and {len(chips) - _PARAMS:,} more" if len(chips) > _PARAMS else ""
    yield "params", "".join(chips[:_PARAMS]) + more
    seeds = manifest.get("seeds")
    seed = seeds.get("graph") if isinstance(seeds, dict) else None
    yield "seed", "" if seed is None else safe(_value(seed))


def _took(view: RunView) -> float:
    """Return what it took; a run that crashed may have been heard of after its last heartbeat."""
    if view.finished_at is not None:
        return view.duration_ms
    began = view.created_at.timestamp()
    heard = [(one.started - began) * 1e3 + (one.duration_ms or 0.0) for one in view.calls()]
    return max([view.duration_ms, *heard])


def _around(manifest: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "git", _git(manifest.get("git"))
    yield "host", _texts(manifest, "hostname", "platform")
    yield "made with", _made_with(manifest)
    yield "command", _command(manifest.get("argv"))


def _git(git: Any) -> str:
    if not isinstance(git, dict):
        return ""
    sha, branch = git.get("sha"), git.get("branch")
    said = [f"<code>{safe(one_line(str(sha)))}</code>" if sha else "no commit"]
    said += [f"on {safe(one_line(str(branch)))}"] if branch else []
    said += ["with changes that are not committed"] if git.get("dirty") is True else []
    return " ".join(said)


def _texts(manifest: dict[str, Any], *names: str) -> str:
    return safe(", ".join(one_line(str(manifest[one])) for one in names if manifest.get(one)))


def _made_with(manifest: dict[str, Any]) -> str:
    soma, python = manifest.get("soma_version"), manifest.get("python_version")
    named = (("Soma", soma), ("Python", python))
    return safe(", ".join(f"{name} {one_line(str(one))}" for name, one in named if one))


def _command(argv: Any) -> str:
    if not isinstance(argv, list) or not argv:
        return ""
    words = [printable(shlex.quote(str(one))) for one in argv[:_ARGUMENTS]]
    return f"<code>{safe(_cut(' '.join(words)))}{' …' if len(argv) > _ARGUMENTS else ''}</code>"


def _packages(versions: Any) -> str:
    if not isinstance(versions, dict) or not versions:
        return ""
    rows = [(one_line(str(name)), one_line(str(one))) for name, one in versions.items()]
    listed = table(("package", "version"), rows[:_PACKAGES])
    return folded(listed, max(len(rows), 31), f"versions of {times(len(rows), 'package')}")


def _chip(said: str) -> str:
    return f'<span class="chip">{safe(said)}</span>'


def _value(value: Any) -> str:
    return value if _is_plain(value) else one_line(shown(value, _VALUE), _VALUE)


def _is_plain(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable() and 0 < len(value) <= _VALUE


def _cut(text: str) -> str:
    return text if len(text) <= _ERROR else f"{text[:_ERROR]}…"
