"""The words that records are made of.

They stand in every record, so they tell nobody a secret that happens to be the same; and a record
without them could not be read.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from soma.events import Metric
from soma.events.kinds import EVENT_TYPES
from soma.plan import entries

__all__ = ["OWN_WORDS"]

_CLASSES: dict[str, Any] = {
    **EVENT_TYPES,
    "Metric": Metric,
    **{name: one for name, one in vars(entries).items() if is_dataclass(one)},
}
_IN_EVENTS = """
    seq ts event_type fit forward total_nodes cached_nodes parallel_branches state output
    Trainable Stateless computed recomputed Memory Local Remote
"""
_IN_MANIFEST = """
    schema_version run_id kind run name tags params notes parent_run_id created_at soma_version
    python_version platform versions hostname cwd entrypoint argv git sha branch dirty seeds graph
    n_nodes node_ids graph_path graph.json
"""
_IN_GRAPH = """
    schema_version nodes id label kind type filter_name params edges plan error
    trainable stateless branch loop soma_plan_format root diagnostics type warning error
"""

OWN_WORDS = frozenset(
    (
        *_CLASSES,
        *(one.name for kind in _CLASSES.values() for one in fields(kind)),
        *f"{_IN_EVENTS} {_IN_MANIFEST} {_IN_GRAPH}".split(),
    )
)
"""Names of fields, and what fields hold that have a few values."""
