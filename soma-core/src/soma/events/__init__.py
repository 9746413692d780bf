"""What happens in a graph, as events: frozen records that a bus brings to whoever subscribed.

    engine, g.emit(...) ──► Bus.emit ──► callbacks of the user    plain dicts
                                    └──► sinks of plugins         the events themselves

The classes are named after what happened (runs.py, studies.py, training.py), and all that Soma
emits are in ``EVENT_TYPES``; a ``UserEvent`` is whatever else a user wants to say. Nothing is
built where nobody listens: whoever emits asks ``bus.listening`` first.
"""

from __future__ import annotations

from soma.events.base import Event, Metric, UserEvent
from soma.events.bus import Bus, Subscription
from soma.events.kinds import EVENT_TYPES
from soma.events.making import check_event, make_event
from soma.events.runs import (
    BranchTaken,
    LoopCompleted,
    NodeCacheHit,
    NodeCacheMiss,
    NodeCompleted,
    NodeFailed,
    NodeNotDeterministic,
    NodeNotKept,
    NodePlaced,
    NodeProgress,
    NodeRecomputed,
    NodeStarted,
    RunCompleted,
    RunFailed,
    RunStarted,
)
from soma.events.sinks import DefaultSinks, open_default_sinks, open_sink
from soma.events.studies import (
    BestUpdated,
    GenerationCompleted,
    GenerationStarted,
    MemberExploited,
    ParetoUpdated,
    StudyCompleted,
    StudyProgress,
    StudyStarted,
    TrialCompleted,
    TrialFailed,
    TrialMetric,
    TrialPruned,
    TrialStarted,
)
from soma.events.training import (
    EpochCompleted,
    EpochStarted,
    HealthFlag,
    MetricReported,
    StepCompleted,
)

__all__ = [
    "EVENT_TYPES",
    "BestUpdated",
    "BranchTaken",
    "Bus",
    "DefaultSinks",
    "EpochCompleted",
    "EpochStarted",
    "Event",
    "GenerationCompleted",
    "GenerationStarted",
    "HealthFlag",
    "LoopCompleted",
    "MemberExploited",
    "Metric",
    "MetricReported",
    "NodeCacheHit",
    "NodeCacheMiss",
    "NodeCompleted",
    "NodeFailed",
    "NodeNotDeterministic",
    "NodeNotKept",
    "NodePlaced",
    "NodeProgress",
    "NodeRecomputed",
    "NodeStarted",
    "ParetoUpdated",
    "RunCompleted",
    "RunFailed",
    "RunStarted",
    "StepCompleted",
    "StudyCompleted",
    "StudyProgress",
    "StudyStarted",
    "Subscription",
    "TrialCompleted",
    "TrialFailed",
    "TrialMetric",
    "TrialPruned",
    "TrialStarted",
    "UserEvent",
    "check_event",
    "make_event",
    "open_default_sinks",
    "open_sink",
]
