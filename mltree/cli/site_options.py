"""Options of commands about sites: state frequencies of their own (PMSF), and rates."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["GuideTreeOption", "SiteFrequenciesOption", "SiteRatesOption"]

SiteFrequenciesOption = Annotated[
    str | None,
    typer.Option(
        "--site-freqs",
        metavar="FILE",
        help="Sites have state frequencies of their own (PMSF), from a .sitefreq file, IQ-TREE's "
        "or `mltree evaluate --site-freq`'s; the model's own and its profiles do not count.",
    ),
]
GuideTreeOption = Annotated[
    str | None,
    typer.Option(
        "--guide-tree",
        metavar="TREE",
        help="The same, from the profiles of --model (LG+C20+F+G4) on this Newick tree; writes "
        "PREFIX.mltree.sitefreq.",
    ),
]
SiteRatesOption = Annotated[
    bool,
    typer.Option(
        "--site-rates",
        help="Also write the posterior mean rate and the most probable category of every site "
        "(+G, +R, +I), as IQ-TREE's -wsr.",
    ),
]
