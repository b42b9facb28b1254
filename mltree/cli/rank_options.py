"""The option of commands that several processes share out."""

from __future__ import annotations

from typing import Annotated

import typer

from mltree.cli.options import whole_of

__all__ = ["RanksOption"]

AUTO = "auto"


def _ranks(text: str) -> int | None:
    """A number of ranks, from 1 on; None where the run shall decide."""
    if text == AUTO:
        return None
    number = whole_of(text)
    if number < 1:
        raise typer.BadParameter("it takes one process at least")
    return number


RanksOption = Annotated[
    int | None,
    typer.Option(
        "--ranks",
        metavar="N|auto",
        parser=_ranks,
        help="Processes on this machine that share out loci, replicates and the steps of a search. "
        "They share a GPU and its memory, or the CPUs. Same bits; each takes memory of its own. "
        "auto: several for many loci or replicates on a GPU, else one.",
    ),
]
