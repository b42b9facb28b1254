"""The plan of a search: what is done in which order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from mltree.settings import PhaseSettings, SearchSettings

__all__ = [
    "Cull",
    "Finish",
    "OptimiseModel",
    "Perturb",
    "Rearrange",
    "Smooth",
    "Stage",
    "plan",
]


@dataclass(frozen=True)
class Smooth:
    """Branch lengths of every tree."""

    epsilon: float


@dataclass(frozen=True)
class OptimiseModel:
    """Model parameters on the best tree; the other trees follow."""

    afresh: bool = False
    """From every start that a model has, not only from where it stands."""


@dataclass(frozen=True)
class Rearrange:
    """SPR rounds until no tree gains."""

    phase: PhaseSettings


@dataclass(frozen=True)
class Cull:
    """Starts that cannot catch up are dropped."""


@dataclass(frozen=True)
class Perturb:
    """Batches of perturbed copies of the best tree."""


@dataclass(frozen=True)
class Finish:
    """Model and branch lengths in turn, to the last epsilon."""


Stage: TypeAlias = Smooth | OptimiseModel | Rearrange | Cull | Perturb | Finish


def plan(settings: SearchSettings) -> tuple[Stage, ...]:
    """The stages of a search (docs/search.md, "A plan")."""
    smooth = Smooth(settings.rounds.smooth_epsilon)
    between = (OptimiseModel(), smooth)
    stages: list[Stage] = [
        Smooth(settings.first_smooth_epsilon),
        OptimiseModel(afresh=True),
        smooth,
    ]
    for number, phase in enumerate(settings.phases):
        stages.append(Rearrange(phase))
        if number == 0:
            stages.append(Cull())
        if number < len(settings.phases) - 1:
            stages.extend(between)
    if settings.perturbation.patience > 0:
        stages.extend((*between, Perturb()))
    stages.append(Finish())
    return tuple(stages)
