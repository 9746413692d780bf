"""The record of a run: a folder of plain text files, written while it runs, and read by anybody.

    g.track_run(...) ──► TrackedRun ──► manifest, status, graph, events, metrics
    soma.runs(root)  ──► [RunView, ...]                  the same, read

The files are specified in docs/formats/run.md. Nothing is imported here: a graph that nobody tracks
needs next to nothing of this room.
"""

from __future__ import annotations
