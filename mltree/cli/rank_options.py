"""The option of commands that several processes share out."""

from __future__ import annotations

from typing import Annotated

import typer

from mltree.cli.options import whole_of

__all__ = ["RanksOption"]


def _ranks(text: str) -> int:
    """A number of ranks, from 1 on."""
    number = whole_of(text)
    if number < 1:
        raise typer.BadParameter("it takes one process at least")
    return number


RanksOption = Annotated[
    int,
    typer.Option(
        "--ranks",
        metavar="N",
        parser=_ranks,
        help="Processes on this machine that share out loci, replicates and the steps of a search. "
        "They share a GPU and its memory, or the CPUs. Same bits; each takes memory of its own.",
    ),
]
