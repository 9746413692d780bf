"""Colours and lines: one sheet, whose classes carry a name made from it.

A sheet within an SVG holds for the whole page that the SVG stands in. So no rule speaks of anything
but classes, and these begin with a hash of the sheet: pictures of one release share their rules,
and those of two do not disturb each other. Nothing here is said by colour alone.
"""

from __future__ import annotations

from hashlib import blake2b

__all__ = ["OUTCOME_COLOURS", "SHEET", "classes"]

_INK, _MUTED, _FAINT, _RULE = "#0f172a", "#5b6779", "#94a3b8", "#cbd5e1"
_FONT = 'Inter,"Segoe UI",Helvetica,Arial,sans-serif'

OUTCOME_COLOURS = {
    "hit": ("#e4f5ee", "#0b8f6a"),
    "computed": ("#e4f0fa", "#0a6cb0"),
    "recomputed": ("#fdf1d7", "#a86500"),
    "running": ("#f3ecf9", "#7a3fa0"),
    "unfinished": ("#fdf0ec", "#9a3412"),
    "failed": ("#fde8e2", "#c2330f"),
}
"""Tint and ink, after Okabe and Ito: told apart by those who see no red or no green."""
_RULES = {
    "paper": "fill:#fff;stroke:#e2e8f0",
    "box": f"fill:#fff;stroke:{_RULE};stroke-width:1.25",
    "bar": "fill:#4f46e5",
    "frame": f"fill:#f8fafc;stroke:{_FAINT};stroke-width:1.25",
    "body": "fill:#fff;stroke:#e2e8f0",
    "group": "fill:#eef2ff;stroke:#818cf8;stroke-width:1.25;stroke-dasharray:5 4",
    "text": f"font-family:{_FONT};font-size:11px;fill:{_MUTED};white-space:pre",
    "title": f"font-size:13px;font-weight:600;fill:{_INK}",
    "arm": f"font-weight:600;fill:{_INK}",
    "mark": "font-size:10px;fill:#334155",
    "middle": "text-anchor:middle",
    "pill": f"fill:#f1f5f9;stroke:{_RULE}",
    "line": "fill:none;stroke:#64748b;stroke-width:1.4",
    "choice": "stroke-dasharray:5 4",
    "again": "stroke:#4f46e5;stroke-width:1.6",
    "tip": "fill:#64748b",
    "tip-again": "fill:#4f46e5",
    "rim": "fill:#4f46e5",
    "icon": "fill:none;stroke:#4f46e5;stroke-width:1.6;stroke-linecap:round;stroke-linejoin:round",
    "grouptitle": "font-size:10px;font-weight:600;fill:#4f46e5;paint-order:stroke;"
    "stroke:#eef2ff;stroke-width:4px;stroke-linejoin:round",
    "glyph": "fill:none;stroke:#fff;stroke-width:1.6;stroke-linecap:round;stroke-linejoin:round",
    "pale": "opacity:.42",
}


def _rules() -> dict[str, str]:
    rules = dict(_RULES)
    for name, (tint, ink) in OUTCOME_COLOURS.items():
        rules[name] = f"fill:{tint};stroke:{ink}"
        rules[f"{name}-frame"] = f"stroke:{ink}"  # its boxes have the tints
        rules[f"{name}-ink"] = f"fill:{ink}"
    for ending in ("", "-frame"):
        rules[f"failed{ending}"] += ";stroke-width:3"
        rules[f"unfinished{ending}"] += ";stroke-width:2;stroke-dasharray:2 3"
        rules[f"running{ending}"] += ";stroke-width:2;stroke-dasharray:6 3"
    return rules


_NAME = "s" + blake2b(repr(_rules()).encode(), digest_size=3).hexdigest()

SHEET = "".join(f".{_NAME}-{name}{{{rule}}}" for name, rule in _rules().items())
"""The text of the ``<style>`` element. Where two classes say something, the later rule holds."""


def classes(*names: str) -> str:
    """Return the attribute that gives an element these classes."""
    return f'class="{" ".join(f"{_NAME}-{name}" for name in names)}"'
