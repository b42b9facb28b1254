"""A choice of models as text: how it goes, the best candidates in a table, and the last word."""

from __future__ import annotations

from collections.abc import Sequence

from mltree.alignment.partition_files import NO_NAME
from mltree.events.choice import CandidatesScored, ModelChosen, ModelsRanked, PartsMerged

__all__ = ["NAMES", "best_fit_line", "chosen_line", "merged_line", "ranking_lines", "scored_line"]

NAMES = {"bic": "BIC", "aic": "AIC", "aicc": "AICc"}
"""Criteria as papers write them."""


def scored_line(event: CandidatesScored) -> str:
    """Candidates that were fitted, and the best of all so far."""
    count = f"{event.candidates:,} candidate{'' if event.candidates == 1 else 's'}"
    if event.parts == 1:
        return f"models: {count}, best so far {event.best}"
    return f"models: {count} for {event.parts:,} parts, best so far {event.best} for the first"


def merged_line(event: PartsMerged) -> str:
    """A round of merging."""
    pairs = f"{event.pairs:,} pair{'' if event.pairs == 1 else 's'}"
    subsets = f"{event.subsets:,} subset{'' if event.subsets == 1 else 's'} left"
    return f"merging: {pairs} compared, {event.merged:,} merged, {subsets}, score {event.score:.3f}"


def chosen_line(event: ModelChosen) -> str:
    """The best model of a part."""
    criterion = _criterion(event.criterion)
    part = "best model" if event.part == NO_NAME else event.part
    return f"{part}: {event.model}  {criterion} {event.score:.3f}  lnL {event.lnl:.3f}"


def ranking_lines(event: ModelsRanked) -> list[str]:
    """The best candidates of a part in columns, and how many were compared."""
    criterion = _criterion(event.criterion)
    width = max(len("Model"), *(len(one.model) for one in event.models))
    least = event.models[0].score
    part = "" if event.part == NO_NAME else f"{event.part}: "
    title = f"{part}the best {len(event.models):,} of {event.candidates:,} candidates"
    heads = f"{'lnL':>14} {'free':>5} {criterion:>14} {'delta':>9} {'weight':>7}"
    rows = [
        f"{one.model:<{width}} {one.lnl:14.3f} {one.parameters:5} {one.score:14.3f} "
        f"{one.score - least:9.3f} {one.weight:7.4f}"
        for one in event.models
    ]
    return [title, f"{'Model':<{width}} {heads}", *rows]


def best_fit_line(criterion: str, chosen: Sequence[tuple[str, str]]) -> str:
    """IQ-TREE's line, which pipelines look for; ``chosen``: parts and their models.

    A lone part's model stands alone, those of several before their part: ``HKY+FC:gene1,JC:gene2``.
    """
    if len(chosen) == 1:
        ((_, models),) = chosen
    else:
        models = ",".join(f"{model}:{part}" for part, model in chosen)
    return f"Best-fit model according to {_criterion(criterion)}: {models}"


def _criterion(name: str) -> str:
    return NAMES.get(name, name)
