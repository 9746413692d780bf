"""What happens inside of one fit that goes over its data in epochs and steps."""

from __future__ import annotations

from soma.events.base import Event, Metric, event

__all__ = ["EpochCompleted", "EpochStarted", "HealthFlag", "MetricReported", "StepCompleted"]


@event
class EpochStarted(Event):
    """One more pass over the data begins."""

    run_id: str
    epoch: int
    total_epochs: int


@event
class EpochCompleted(Event):
    """One pass over the data is done."""

    run_id: str
    epoch: int
    metrics: dict[str, float]
    """Name of the metric -> its value over the epoch."""


@event
class StepCompleted(Event):
    """One batch is done."""

    run_id: str
    step: int
    epoch: int


@event
class MetricReported(Event):
    """One number was measured."""

    run_id: str
    metric: Metric
    node_id: str | None = None
    """The node that reports it, if one does."""
    trial_id: str | None = None
    """The trial that the run belongs to, if it does."""


@event
class HealthFlag(Event):
    """Something about the training looks wrong."""

    run_id: str
    node_id: str
    step: int
    flag: str
    """What was seen, in one word."""
    detail: str = ""
