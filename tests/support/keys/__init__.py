"""The rows of the tables in docs/keys.md, each as a case that runs graphs before and after."""

from __future__ import annotations

from support.keys import data, graph, looks, runs, settings, sources, surroundings
from support.keys.lab import CASES, Keys, Lab

__all__ = ["CASES", "Keys", "Lab"]
_ALL = (data, graph, looks, runs, settings, sources, surroundings)  # each enters its cases
