"""Figures that were not measured in a run but are worth a line beside it, always marked so."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["QUOTED", "QUOTED_LNLS", "QUOTED_SEARCHES", "Quoted", "QuotedLnl", "QuotedSearch"]


@dataclass(frozen=True)
class Quoted:
    """Whole-process seconds of another program on the seed15 alignments, measured elsewhere."""

    title: str
    threads: int
    machine: str
    seconds: dict[int, float]
    """By number of patterns."""


_HOST = "the 16-core host of an NVIDIA H200"

QUOTED = (
    Quoted("RAxML-NG 1.2.2", 1, _HOST, {1024: 0.324, 8192: 3.09, 65536: 33.7, 262144: 154.0}),
    Quoted("RAxML-NG 1.2.2", 16, _HOST, {8192: 0.408, 65536: 2.30, 262144: 10.3}),
    Quoted("RAxML-NG 1.2.2", 4, _HOST, {1024: 0.121}),
    Quoted("RAxML 8.2.12 AVX2", 1, _HOST, {1024: 1.47, 8192: 12.1}),
)
"""AVX2, site repeats on, from the same parsimony start (2026-11). They hold for the given
``seed15_*`` alignments only, so that only runs on those show them."""


@dataclass(frozen=True)
class QuotedLnl:
    """Log-likelihoods that another program claims for its final trees, on alignments by name."""

    title: str
    lnls: dict[str, float]


QUOTED_LNLS = (
    QuotedLnl(
        "RAxML-NG 1.2.2",
        {
            "R_Laurasiatherian": -44699.6542,
            "R_chloroplast": -71909.48,
            "beast_benchmark2_carnivora": -194467.9737,
            "garli_rana": -21864.13,
            "phyml_proteic": -12454.52,
            "sim200x2000_gtrg": -127706.9244,
            "sim50x2000_lgg": -89286.4043,
            "stamatak_101": -64771.3993,
        },
    ),
)
"""``--search`` from one parsimony tree (2026-11), GTR+FC+G4 or LG+G4. Names are those of the given
alignments; the trees are not here to be judged."""


@dataclass(frozen=True)
class QuotedSearch:
    """Searches of another program from the parsimony trees that ``bench search`` starts from."""

    title: str
    threads: int
    machine: str
    found: dict[str, tuple[float, float]]
    """By alignment: CPU seconds on one thread, wall seconds on more; and the lnL that it claims."""


QUOTED_SEARCHES = (
    QuotedSearch(
        "RAxML-NG 1.2.2",
        1,
        "2 cores",
        {
            "R_Laurasiatherian": (4.9, -44699.67),
            "garli_rana": (3.9, -21864.13),
            "stamatak_101": (20.8, -64771.41),
        },
    ),
    QuotedSearch(
        "RAxML-NG 1.2.2",
        16,
        "H200's host",
        {
            "R_Laurasiatherian": (1.16, -44699.6542),
            "beast_benchmark2_carnivora": (2.54, -194467.9737),
            "sim200x2000_gtrg": (9.87, -127706.9244),
            "sim50x2000_lgg": (3.89, -89286.4043),
            "stamatak_101": (4.71, -64771.3993),
        },
    ),
)
"""AVX2, site repeats on (2026-11), ``--search`` under GTR+FC+G4 or LG+G4."""
