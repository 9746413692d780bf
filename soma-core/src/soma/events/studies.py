"""What happens in a search: the study as a whole, generation by generation, and trial by trial."""

from __future__ import annotations

from typing import Any

from soma.events.base import Event, Metric, event

__all__ = [
    "BestUpdated",
    "GenerationCompleted",
    "GenerationStarted",
    "MemberExploited",
    "ParetoUpdated",
    "StudyCompleted",
    "StudyProgress",
    "StudyStarted",
    "TrialCompleted",
    "TrialFailed",
    "TrialMetric",
    "TrialPruned",
    "TrialStarted",
]


@event
class TrialStarted(Event):
    """A trial begins."""

    study_id: str
    trial_id: str
    params: dict[str, Any]
    """Name of the parameter -> the value that is tried."""


@event
class TrialMetric(Event):
    """A trial reports one number."""

    study_id: str
    trial_id: str
    metric: Metric


@event
class TrialPruned(Event):
    """A trial was given up before its end."""

    study_id: str
    trial_id: str
    step: int
    """Its last step."""
    reason: str


@event
class TrialCompleted(Event):
    """A trial came to its end."""

    study_id: str
    trial_id: str
    final_metrics: dict[str, Any]
    """Name of the metric -> its last value."""


@event
class TrialFailed(Event):
    """A trial ended with an error."""

    study_id: str
    trial_id: str
    error: str
    """``"ValueError: what it says"``."""


@event
class StudyStarted(Event):
    """A study begins."""

    study_id: str
    name: str
    total_trials: int


@event
class StudyProgress(Event):
    """One more trial has ended."""

    study_id: str
    completed: int
    """Trials that have ended."""
    total: int
    best_value: float | None = None
    """None while there is none, or where several objectives have no single best."""


@event
class BestUpdated(Event):
    """A trial is better than every one before."""

    study_id: str
    trial_id: str
    value: float
    params: dict[str, Any]
    """Name of the parameter -> its value in that trial."""


@event
class ParetoUpdated(Event):
    """The set of trials that no other beats in everything has changed."""

    study_id: str
    front_size: int
    """Trials in it."""


@event
class StudyCompleted(Event):
    """A study is done."""

    study_id: str
    best_trial_id: str | None = None
    """None where no trial was completed, or several objectives have no single best."""
    best_value: float | None = None
    """None as above."""


@event
class GenerationStarted(Event):
    """A population goes into its next generation."""

    study_id: str
    generation: int
    population_size: int


@event
class GenerationCompleted(Event):
    """Every member of a generation has been measured."""

    study_id: str
    generation: int
    best_fitness: float
    mean_fitness: float


@event
class MemberExploited(Event):
    """A weak member of a population was replaced by a copy of a strong one."""

    study_id: str
    generation: int
    replaced_id: str
    donor_id: str
