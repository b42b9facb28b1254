"""Options that ask for supports, of a search and a bootstrap; see :mod:`mltree.cli.options`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from mltree.cli.help import SUPPORTS
from mltree.cli.options import whole_of
from mltree.system.errors import InputError

if TYPE_CHECKING:
    from mltree.analyses.bootstrap import Wanted
    from mltree.analyses.tree_tests import LocalTests
    from mltree.analyses.ufboot import WantedUltrafast


FEWEST_REPLICATES = 1000
"""Of an ultrafast bootstrap: with fewer, supports are too coarse to tell that they stay (IQ-TREE).
"""

MOST_RESAMPLINGS = 1_000_000
"""More is a slip of the finger."""

MetricOption = Annotated[
    str,
    typer.Option(
        "--metric",
        metavar="METRIC",
        rich_help_panel=SUPPORTS,
        help="fbp, the percentage of replicates that have a branch; tbe, the "
        "transfer bootstrap expectation, 0 to 1; or both: fbp,tbe.",
    ),
]
BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        metavar="N",
        rich_help_panel=SUPPORTS,
        help="Then N bootstrap replicates, and supports on the best tree; auto: as many as "
        "it takes until more would change little (autoMRE), 1,000 at most.",
    ),
]
ShAlrtOption = Annotated[
    int | None,
    typer.Option(
        "--sh-alrt",
        metavar="N",
        parser=whole_of,
        rich_help_panel=SUPPORTS,
        help="SH-aLRT of every branch of the best tree, by N resamplings (1000 is usual).",
    ),
]
LbpOption = Annotated[
    int | None,
    typer.Option(
        "--lbp",
        metavar="N",
        parser=whole_of,
        rich_help_panel=SUPPORTS,
        help="Local bootstrap probability of every branch, by N resamplings.",
    ),
]
AlrtOption = Annotated[
    bool,
    typer.Option(
        "--alrt", rich_help_panel=SUPPORTS, help="Parametric aLRT of every branch: 1 - p."
    ),
]
AbayesOption = Annotated[
    bool,
    typer.Option("--abayes", rich_help_panel=SUPPORTS, help="aBayes support of every branch."),
]

UltrafastOption = Annotated[
    int | None,
    typer.Option(
        "--ufboot",
        metavar="N",
        parser=whole_of,
        rich_help_panel=SUPPORTS,
        help="Ultrafast bootstrap (UFBoot2) of N replicates, 1000 at least, and its supports on "
        "the best tree, behind those of --sh-alrt.",
    ),
]
ClimbOption = Annotated[
    bool,
    typer.Option(
        "--bnni",
        rich_help_panel=SUPPORTS,
        help="Improve every replicate of --ufboot by interchanges on its own data, which guards "
        "against overconfidence where models are wrong.",
    ),
]


def ultrafast_of(
    replicates: int | None, climbs: bool, bootstrap: str | None
) -> WantedUltrafast | None:
    """The ultrafast bootstrap that follows a search.

    Raises:
        InputError: there are too few replicates, or something does not go together.
    """
    from mltree.analyses.ufboot import WantedUltrafast

    if replicates is None:
        if climbs:
            raise InputError("--bnni improves the replicates of --ufboot", hint="give both")
        return None
    if bootstrap is not None:
        raise InputError("--ufboot and --bootstrap exclude each other")
    if not FEWEST_REPLICATES <= replicates <= MOST_RESAMPLINGS:
        problem = f"--ufboot {replicates}: between {FEWEST_REPLICATES:,} and {MOST_RESAMPLINGS:,}"
        raise InputError(f"{problem} replicates, please", hint="1000 is usual")
    return WantedUltrafast(replicates, climbs)


def bootstrap_of(replicates: str | None, metric: str) -> Wanted | None:
    """The replicates that follow a search.

    Raises:
        InputError: it is no number of them, or there is no such metric.
    """
    from mltree.analyses.bootstrap import Wanted
    from mltree.analyses.trees import support_kinds

    support_kinds(metric)
    return None if replicates is None else Wanted(replicates_of(replicates, "--bootstrap"), metric)


def local_tests_of(
    sh_alrt: int | None, lbp: int | None, alrt: bool, abayes: bool
) -> LocalTests | None:
    """The tests of the best tree's branches; where two resample, the larger number is for both.

    Raises:
        InputError: a number of resamplings is no such number.
    """
    from mltree.analyses.tree_tests import BRANCH_TESTS, LocalTests

    for option, number in (("--sh-alrt", sh_alrt), ("--lbp", lbp)):
        if number is not None and not 1 <= number <= MOST_RESAMPLINGS:
            hint = "--alrt is the parametric test" if number == 0 else "1000 is usual"
            problem = f"{option} {number}: between 1 and {MOST_RESAMPLINGS:,} resamplings, please"
            raise InputError(problem, hint=hint)
    asked = (sh_alrt is not None, lbp is not None, alrt, abayes)
    names = [name for name, is_asked in zip(BRANCH_TESTS.values(), asked, strict=True) if is_asked]
    return LocalTests(tuple(names), max(sh_alrt or 1, lbp or 1)) if names else None


def replicates_of(text: str, option: str) -> int | None:
    """A number of replicates; None for ``auto``.

    Raises:
        InputError: it is neither.
    """
    if text.strip().lower() == "auto":
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,5}", text.strip()):
        raise InputError(f"{option} {text}: a number from 1 to 999999, or auto")
    return int(text)
