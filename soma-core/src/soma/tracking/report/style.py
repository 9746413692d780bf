"""Colours and rules of the page.

The inks of outcomes are those of the picture of the graph, after Okabe and Ito. White ground and
dark ink are said outright, so that a browser in dark mode changes neither; print drops nothing but
the shades. Nothing is said by colour alone.
"""

from __future__ import annotations

__all__ = ["SHEET", "STATES"]

_FONT = 'Inter,"Segoe UI",Helvetica,Arial,sans-serif'
_INK, _MUTED, _RULE = "#0f172a", "#52606f", "#e2e8f0"
_GREEN, _RED, _AMBER, _PURPLE, _GREY = "#08704f", "#b42d0d", "#8f5600", "#7a3fa0", "#475569"

STATES = {
    "completed": _GREEN,
    "failed": _RED,
    "crashed": _RED,
    "interrupted": _AMBER,
    "running": _PURPLE,
}
"""State of a run -> colour under white letters; others are grey."""

SHEET = f"""
:root{{color-scheme:only light}}
*{{box-sizing:border-box}}
body{{margin:0;background:#fff;color:{_INK};font:14px/1.5 {_FONT}}}
main,header,footer{{max-width:1128px;margin:0 auto;padding:0 24px}}
header{{padding-top:28px}}
h1{{font-size:26px;line-height:1.25;margin:0 12px 0 0;overflow-wrap:anywhere;display:inline}}
h2{{font-size:18px;margin:36px 0 10px;padding-bottom:6px;border-bottom:1px solid {_RULE}}}
h3{{font-size:14px;margin:20px 0 6px}}
p{{margin:8px 0}}
footer{{color:{_MUTED};font-size:12px;margin-top:40px;padding-bottom:28px}}
.id{{color:{_MUTED};margin:4px 0 14px}}
.id,code,.m{{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:12.5px}}
code,.m,dd,td,th{{overflow-wrap:anywhere}}
.note{{color:{_MUTED};font-size:12.5px}}
.state{{display:inline-block;vertical-align:4px;color:#fff;background:{_GREY};border-radius:11px;
padding:1px 11px;font-size:13px;font-weight:600}}
.error{{border-left:4px solid {_RED};background:#fdf3f0;padding:8px 14px;margin:14px 0;
white-space:pre-wrap;overflow-wrap:anywhere}}
.chip{{display:inline-block;background:#f1f5f9;border:1px solid {_RULE};border-radius:6px;
padding:0 7px;margin:1px 5px 1px 0;overflow-wrap:anywhere;max-width:100%}}
.tiles{{display:flex;flex-wrap:wrap;gap:12px;margin:20px 0 0;padding:0;list-style:none}}
.tiles li{{flex:1 1 110px;border:1px solid {_RULE};border-radius:10px;padding:10px 14px}}
.tiles b{{display:block;font-size:24px;line-height:1.2;font-weight:650;
font-variant-numeric:tabular-nums}}
.tiles span{{color:{_MUTED};font-size:12.5px}}
.tiles .bad{{border-color:{_RED};background:#fdf3f0}}
.tiles .bad b{{color:{_RED}}}
.facts{{display:flex;flex-wrap:wrap;gap:0 36px}}
dl{{flex:1 1 420px;display:grid;grid-template-columns:max-content 1fr;gap:3px 18px;margin:6px 0;
align-content:start;min-width:0}}
dt{{color:{_MUTED};min-width:82px}}
dd{{margin:0;min-width:0}}
.wide{{overflow-x:auto}}
.wide svg{{display:block;max-width:100%;height:auto;margin:0 auto}}
.drawn{{width:100%;height:auto;display:block}}
table{{border-collapse:collapse;width:100%;font-size:13px;margin:6px 0}}
th,td{{text-align:left;vertical-align:top;padding:4px 10px 4px 0;border-bottom:1px solid {_RULE}}}
thead th{{color:{_MUTED};font-weight:600;white-space:nowrap;border-bottom-color:#94a3b8}}
tbody th{{font-weight:600;min-width:90px}}
tfoot th,tfoot td{{font-weight:600;border-top:1px solid #94a3b8;border-bottom:0}}
.n{{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}}
.n+td:not(.n):not(.share),.n+th:not(.n):not(.share){{padding-left:14px}}
.pre{{white-space:pre-wrap}}
.share{{width:110px;padding-right:0}}
.share i{{display:block;height:9px;margin-top:6px;background:#0a6cb0;border-radius:2px;
print-color-adjust:exact;-webkit-print-color-adjust:exact}}
details{{margin:8px 0}}
summary{{cursor:pointer;color:#1d4f91}}
pre{{background:#f8fafc;border:1px solid {_RULE};border-radius:8px;padding:12px;overflow-x:auto;
font-size:12.5px;line-height:1.45}}
.plots{{display:grid;grid-template-columns:repeat(auto-fill,minmax(300px,1fr));gap:16px}}
figure{{margin:0;border:1px solid {_RULE};border-radius:10px;padding:10px 12px;min-width:0;
break-inside:avoid}}
figcaption{{font-weight:600;overflow-wrap:anywhere}}
figcaption span{{color:{_MUTED};font-weight:400}}
figure p{{margin:2px 0 0;font-size:12px}}
figure p span{{white-space:nowrap;margin-right:10px}}
svg text{{font-family:{_FONT}}}
.g-t{{font-size:12px;fill:{_INK}}}
.g-s{{font-size:11px;fill:{_MUTED}}}
.g-e{{text-anchor:end}}
.g-m{{text-anchor:middle}}
.g-w{{font-size:11px;fill:#fff}}
.g-grid{{stroke:{_RULE};stroke-width:1}}
.g-axis{{stroke:#94a3b8;stroke-width:1;fill:none}}
.g-band{{fill:#f8fafc}}
.g-cut{{fill:#fff}}
.g-line{{fill:none;stroke:#0a6cb0;stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round}}
.g-dot{{fill:#0a6cb0}}
.g-fit{{fill:#334155}}
.g-forward,.g-call{{fill:#64748b}}
.g-computed{{fill:#0a6cb0}}
.g-recomputed{{fill:#a86500}}
.g-hit{{fill:#0b8f6a}}
.g-open{{fill:#f3ecf9;stroke:#7a3fa0;stroke-width:1.2;stroke-dasharray:4 2}}
.g-failed{{fill:#f6c3b4;stroke:#b42d0d;stroke-width:1}}
.g-cross{{fill:none;stroke:#b42d0d;stroke-width:2;stroke-linecap:round}}
@media print{{
body{{font-size:11px}}
main,header,footer{{max-width:none;padding-left:0;padding-right:0}}
h2,h3{{break-after:avoid}}
tr,.tiles li,.error{{break-inside:avoid}}
.wide{{overflow:visible}}
.wide div{{min-width:0!important;break-inside:avoid}}
.wide svg{{max-height:22cm;width:auto}}
.drawn{{break-inside:avoid}}
.plots{{grid-template-columns:repeat(3,1fr)}}
svg,.state,.chip{{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
}}
""".strip()
"""The text of the one ``<style>`` element of the page."""
