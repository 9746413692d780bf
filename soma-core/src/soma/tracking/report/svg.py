"""Small pieces of SVG; their looks are classes of the one sheet of the page."""

from __future__ import annotations

from soma.pictures.texts import xml

__all__ = ["block", "label", "length", "line", "svg"]


def length(value: float) -> str:
    """Return a length as it is written, to a tenth of a pixel."""
    written = f"{value:.1f}"
    return "0" if written == "-0.0" else written.removesuffix(".0")


def label(shown: str, x: float, y: float, look: str, tip: str = "") -> str:
    """Return a text that is printable already, its baseline at y."""
    title = f"<title>{xml(tip)}</title>" if tip else ""
    return f'<text class="{look}" x="{length(x)}" y="{length(y)}">{title}{xml(shown)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, look: str) -> str:
    """Return a straight line."""
    ends = f'x1="{length(x1)}" y1="{length(y1)}" x2="{length(x2)}" y2="{length(y2)}"'
    return f'<line class="{look}" {ends}/>'


def block(x: float, y: float, width: float, height: float, *, look: str, tip: str = "") -> str:
    """Return a rectangle."""
    place = f'x="{length(x)}" y="{length(y)}" width="{length(width)}" height="{length(height)}"'
    if not tip:
        return f'<rect class="{look}" {place}/>'
    return f'<rect class="{look}" {place}><title>{xml(tip)}</title></rect>'


def svg(parts: list[str], width: float, height: float, title: str) -> str:
    """Return a picture as wide as the page has room."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="drawn" role="img" '
        f'viewBox="0 0 {length(width)} {length(height)}"><title>{xml(title)}</title>'
        f"{''.join(parts)}</svg>"
    )
