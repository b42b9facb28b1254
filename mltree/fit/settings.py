"""Every constant of the search, once, with its unit and its origin.

bench/search-notebook.md says what they rest on; the prototype is that of bench/PROTOTYPE.md.
Differences of log-likelihood are in natural log units ("lnL"), branch lengths in expected
substitutions per site.
"""

from __future__ import annotations

import math
from dataclasses import field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mltree.system.values import Value
from mltree.tree.topology import DEFAULT_LENGTH


class BranchSettings(Value):
    """Bounds and starting values of branch lengths."""

    minimum: float = 1e-6
    """Shortest branch: RAxML, RAxML-NG and IQ-TREE agree."""
    maximum: float = 100.0
    """Longest branch: RAxML-NG's bound (RAxML 34.5, IQ-TREE 10)."""
    start: float = DEFAULT_LENGTH
    """Every branch of a start without lengths; Newton converges from 0.01 ... 2.0 (docs/search.md,
    "Branch lengths")."""
    long_alignment: int = 100_000
    """Sites from which the shortest branch is 0.1 / sites instead, as in IQ-TREE."""

    def bounds(self, sites: int) -> tuple[float, float]:
        """Shortest and longest branch for an alignment of so many sites."""
        shortest = 0.1 / sites if sites >= self.long_alignment else self.minimum
        return min(shortest, self.minimum), self.maximum

    def scaled(self, lengths: NDArray[np.float64], factor: ArrayLike) -> NDArray[np.float64]:
        """Lengths times a factor, or one of several a row, short of the longest."""
        product: NDArray[np.float64] = lengths * np.asarray(factor)
        return np.minimum(product, self.maximum)


class ModelSettings(Value):
    """Optimisation of model parameters."""

    step: float = 1e-3
    """Differences on log parameters. Mixed second differences are off by step / 2 x third
    derivatives, which bend a flat direction among steep ones the wrong way (primates under GTR,
    1e-2: -0.23 for 0.09), and by noise in lnL / step^2: 1e-9 even at lnL -1e6, so 1e-3."""
    mixed_step: float = 1e-2
    """Differences in mixed precision, where noise in lnL is 1e-5 and more."""
    iterations: int = 40
    """Newton iterations of one call; 4 to 8 from afar and 1 or 2 later are usual."""
    rough_epsilon: float = 0.1
    """lnL: stop when a step promises less, while the tree is still moving."""
    final_epsilon: float = 0.001
    """lnL: stop when a step promises less at the end; a fifth of the coordinate ascent's bound."""
    scale_limit: float = math.log(10.0)
    """Log of the largest change in tree length of one call."""


class RoundSettings(Value):
    """One batched SPR round."""

    keep: int = 15
    """Targets per prune that are re-scored. The best five by s0 hold 85 - 100 % of the prunes
    that improve, the best ten 99 - 100 % (docs/search.md, "Lazy scores rank"); in 24
    searches 5 / 8 / 15 lost 36 / 21 / 0.8 lnL in all, for 3 % more time on a GPU
    (bench/ABLATION.md); at 218 taxa 8 loses 9 and 28 to 15."""
    window: float = 30.0
    """lnL below the current tree down to which a target is re-scored; s0 lies a median 1.5 - 8.6
    below the re-scored value."""
    window_per_site: float = 0.01
    """The window is at least this many lnL a site: s0 falls short of the re-scored value in
    proportion to the data. 15 taxa with 4,096 / 8,192 distinct columns, from random trees: windows
    of 20 / 40 left 2 of 3 searches one NNI short of the tree that 40 / 80 found in all."""
    window_share: float = 0.0075
    """Share of the current tree's lnL, its sign left out, that the window does not exceed: of
    27,000 moves re-scored from more than 7 below -1110 and -1210, two gained in the last phase."""
    cut_share: float = 0.02
    """The same of a phase's cut: of 2,958 best moves at lnL -1110 and -1210, 11 lay behind a loss
    of more than 20."""
    min_gain: float = 0.05
    """lnL that a move must gain to be applied (docs/search.md, "Loose acceptance")."""
    rejection: float = 5.0
    """lnL below the current tree at which a re-scored move is rejected, and not scored again
    before a wider phase; on data of many taxa or sites see ``SearchSettings.for_data``."""
    smooth_epsilon: float = 0.1
    """lnL: branch smoothing after the moves stops below this gain a pass."""
    smoothing_margin: float = 2.0
    """lnL below the current tree down to which a re-scored move may be fully smoothed: moves that
    gain 0.27 and 0.11 were re-scored at -0.32 and -0.17 (R_Laurasiatherian, from parsimony)."""
    full_epsilon: float = 0.01
    """lnL: full smoothing of candidates stops below this gain a pass."""
    waves: tuple[int, ...] = (3, 8, 25)
    """Depths at which the scan stops to apply the cut (docs/search.md, "Radius and cut")."""
    max_rounds: int = 100
    """Rounds of one phase; the prototype saw at most 29. The bound stops a cycle."""


LARGE_TREE = 100.0
"""Taxa from which on the last phase is preceded by a wide look: constants tuned on 47 to 200 taxa
left searches of 218 and 714 up to 300 lnL short (bench/ABLATION.md)."""

REJECTION_PER_TAXON, MAX_REJECTION = 0.1, 20.0
"""lnL: rejection of moves in a large tree, whose other branches change much from round to round. At
5, `fast` ended 89 lnL lower from RAxML-NG's start of 714 taxa, and 21, 20 and 4 from three others;
from three of 218 taxa 0, 4 and -0.3. At 20 nothing is lost to giving up nothing at all, in the same
time (one H200)."""

CUT_A_TAXON, WIDEST_CUT = 1.0, 400.0
"""lnL: the cut of a wide look. From one parsimony start of 714 taxa the way to 300 lnL more led
through a valley deeper than 100."""

BROADEST = 8 / 3
"""Breadth of a wide look on the largest trees: 40 targets a prune, and a window of 80 lnL."""

TURN_PATIENCE = 3
"""Batches of copies without a better tree that end a turn of starts."""

LARGE_PATIENCE = 2
"""Factor on ``patience`` and ``returns`` for large trees on a GPU, where every other copy is
resolved anew: these come back sooner. Of five seeds stamatak_218 then ended at a median of
-134141.7, not -134144.7, in the same 4.8 s (one H200)."""

WIDE_GAIN = 5.0
"""lnL: a wide look is repeated while a round gains as much."""


HARD_SPREAD = 0.3
"""Mean distance of parsimony starts (:func:`mltree.tree.splits.mean_distance`) from which on data
are hard."""

HARD_SPREAD_OF_FEW, FEW_SITES = 0.2, 1_000
"""The same up to so many sites, where a start costs a tenth of a second: of 40 sets of ten families
seven ended more than 0.1 lnL below the best, and five with this and more starts, in 0.7 of IQ-TREE
2's time (bench/search-notebook.md)."""

UNSURE_SPREAD, UNSURE_STARTS = 0.08, 18
"""Distance from ``hard_spread`` up to which that of six starts says too little, and parsimony trees
that say enough: six of the two-tree set s2 (bench/search-notebook.md) differed by 0.29 to 0.49, six
of R_Laurasiatherian by 0.19 to 0.34."""

MOST_HARD_TAXA = 100
"""Taxa up to which random starts pay."""

STRONG_FRACTION, HARD_RETURNS = 0.7, 2
"""``strong_fraction`` where data are hard, two sets of interchanges, and factor on ``returns``. On
an alignment of two trees all copies that one set had changed came back to the tree that they were
made of, and two sets led 35 lnL higher; where few sites vary small changes find more."""

ROUGH_BREADTH = 2 / 15
"""Factor on the first phase's breadth on hard data: two targets a prune, in a window of 4 lnL. Six
starts of 80 hard sets ended no lower than with 15 in 30, in 0.8 of the time."""

HARD_AT_ONCE, HARD_IN_COMPANY = 4, 8
"""Starts that begin side by side where data are hard, on CPUs and elsewhere."""

ALIKE_ENDS = 2.0
"""lnL: starts that end so close to each other count as ended alike, since fusing and copies take
the best of them on."""

FEW_STARTS, FEW_COPIES = 2, 4
"""Starts and copies side by side where that saves no time: on CPUs."""


class PhaseSettings(Value):
    """Rounds of one radius and one cut."""

    radius: int
    """Edges from the pruning point to the farthest target; 1 is NNI."""
    cut: float
    """lnL below the current tree at which a scan goes no further."""
    fully_smoothed: int = 0
    """Candidates that are fully smoothed when a round finds no move; 0: none."""
    breadth: float = 1.0
    """Factor on the shortlist: on the targets kept and on the window."""
    min_round_gain: float = 0.1
    """lnL: the phase ends with a round that gains less (RAxML-NG's and RAxML's epsilon)."""
    skips_stalled: bool = False
    """True: a subtree whose moves gained nothing is skipped while its surroundings last."""

    def wide_look(self, taxa: int) -> PhaseSettings:
        """Return the phase with farther walks and a longer shortlist, while rounds gain much."""
        return replace(
            self,
            cut=max(self.cut, min(CUT_A_TAXON * taxa, WIDEST_CUT)),
            breadth=self.breadth * min(taxa / LARGE_TREE, BROADEST),
            fully_smoothed=0,
            min_round_gain=WIDE_GAIN,
        )


class PerturbationSettings(Value):
    """Iterated local search on copies of the best trees."""

    fraction: float = 0.15
    """Share of the inner edges that get a random NNI (docs/search.md, "Perturbation")."""
    strong_fraction: float = 0.0
    """The same in every other of such copies; 0: as in all."""
    strengthen: float = 1.5
    """Factor on the fraction when too many copies fall back to the tree they came from."""
    fall_back_share: float = 0.8
    """Share of copies that may fall back before the fraction grows (docs/search.md,
    "Perturbation")."""
    free_length: float = 1e-4
    """Inner branches up to here say nothing about the order of their neighbours; see
    ``free_substitutions``, which decides once the alignment is known."""
    free_substitutions: float = 0.1
    """Longest free inner branch, in expected substitutions in the alignment: a branch that needs
    none goes to its lower bound in the end, but gets no nearer than this while rounds smooth to 0.1
    lnL."""
    max_fraction: float = 0.5
    """Bound on the fraction; beyond it the start is forgotten."""
    copies: int = 8
    """Copies of one launch; 8 to 32 on a GPU (docs/search.md, "Perturbation")."""
    patience: int = 2
    """Batches of copies without a better tree after which the search stops; 0: no perturbation."""
    returns: int = 8
    """Copies that come back to the tree they were made from, without a better one among others,
    after which the search stops."""
    agreement_share: float = 0.5
    """Share of the returns that starts stand for which led to one tree, the best."""
    resolves: bool = False
    """True: every other copy is resolved anew where another tree of the pool differs, instead of
    changed by random NNIs, which SPR rounds mostly take back."""
    min_gain: float = 0.01
    """lnL by which a copy must beat the best tree to replace it (docs/search.md,
    "Perturbation")."""
    phase: PhaseSettings = PhaseSettings(radius=8, cut=30.0, fully_smoothed=2, skips_stalled=True)
    """Local repair of a copy (docs/search.md, "Perturbation"). Two fully smoothed candidates took
    stamatak_101 from 3 to 5 of 5 seeds at its best lnL, -64747.24, in the same time."""


class CheckpointSettings(Value):
    """Settings of how often a search is saved."""

    first: float = 1.0
    """Seconds until the first checkpoint, and at least between any two."""
    growth: float = 0.1
    """Share of the time spent so far that a kill may cost, beside the step under way."""
    longest: float = 60.0
    """Seconds: more are not at stake, however long a search has run."""
    share: float = 0.01
    """Share of the time that writing may take (1.2 / 9 ms on a local disk for 6 trees and a full
    pool of 71 / 1,000 taxa)."""

    def pause(self, spent: float, cost: float) -> float:
        """Seconds between two checkpoints, ``spent`` seconds into a search.

        ``cost``: seconds that the last one took to write.
        """
        due = min(max(self.first, self.growth * spent), self.longest)
        return max(due, cost / self.share)


class SearchSettings(Value):
    """Everything that a search does, apart from data, model, starts and seed."""

    phases: tuple[PhaseSettings, ...] = (
        PhaseSettings(25, 50.0, min_round_gain=5.0),
        PhaseSettings(25, 100.0, fully_smoothed=8),
    )
    """The radius matters more than anything (docs/search.md, "Radius and cut"); 25 with a cut of
    100 finds the long moves. Cutting at 50 first halves the work of the prototype's three phases
    and ends as high; a radius of 10 or a cut of 30 costs tens of lnL (bench/ABLATION.md). What a
    last round of the first phase would gain the second one gains too: ending it at 5 lnL saved a
    round in half of eight searches of 12 to 101 taxa and cost less than 1e-3; at 20, stamatak_101
    lost 0.2."""
    parsimony_starts: int = 1
    tips_of_starts: int = 72
    """Tips of parsimony starts that cost next to nothing: small sets get several, since rounds of
    so few tips take as long as their steps. Of nine starts of 15 taxa (hard/dup) five end at the
    best lnL, three 7.5 below it, behind moves that no single SPR or perturbation made up for."""
    starts_in_company: int = 1
    """Parsimony starts where trees side by side take hardly longer than one, on GPUs: where those
    are more than usual, the best one alone goes on after the first phase. Four of 714 taxa took an
    H200 4 s instead of 3 and ended 20 to 60 lnL higher."""
    improves_all_starts: bool = True
    """True: parsimony moves improve every parsimony start. False: the first one alone, and leave
    the others as stepwise addition made them (bench/search-notebook.md, "Replicates")."""
    random_starts: int = 0
    hard_starts: tuple[int, int] = (0, 0)
    """Parsimony and random starts at most where data are hard (:meth:`for_spread`). Zeros: the
    usual starts there too."""
    hard_spread: float = HARD_SPREAD
    """Mean distance of parsimony starts from which on data are hard."""
    hard_chance: float = 0.015
    """Where data are hard: ``chance``."""
    chance: float = 0.0
    """Chance that another start ends higher than those searched to their ends, as these tell;
    others follow while it is larger. 0: others follow after the first phase, if at all."""
    starts_at_once: int | None = None
    """Starts that begin side by side; others follow while those before disagree. None: all."""
    starts_as_needed: bool = False
    """True: as many others follow as are enough if they end as those before did."""
    starts_in_turn: int = 0
    """Starts that are searched to the end, their best tree's copies too, before the next so many
    are; the ends are fused, and copied once more. 0: all starts have one end. On large trees only:
    the ends of default searches of stamatak_218 lie up to 10 lnL apart."""
    agreement: int = 2
    """Starts that lead to one tree, the best, after which no others follow."""
    cull_factor: float = 0.75
    """After the first phase a start goes on if it lies within this factor of the spread between
    the best and the worst start."""
    cull_margin: float = 2.0
    """lnL: starts this close to the best are never culled."""
    max_survivors: int = 4
    """Starts that go on after the first phase: enough to keep the one that wins. On an H200 a
    search with 4 of 6 starts takes no longer than one with 3 of 4, since better starts leave
    less to the perturbation, and reached the best lnL of stamatak_59 in 5 of 5 seeds, not 4."""
    model_margin: float = 0.5
    """lnL that a start may lose under the best tree's model and still go on in its landscape."""
    pool: int = 20
    """Distinct best trees that are kept, as in RAxML-Light."""
    first_smooth_epsilon: float = 1.0
    """lnL: branch smoothing of a fresh start (docs/search.md, "A plan")."""
    ascent_epsilon: float = 0.005
    """lnL: coordinate ascent of model and branches ends once all further turns would gain less, as
    their pace tells: half of IQ-TREE's 0.01, for other things end early too."""
    final_smooth_epsilon: float = 1e-4
    """lnL: smoothing in coordinate ascent; lengths that hang together gain 0.02 in passes of 1e-3
    (57 branches, 1,000 sites)."""
    max_ascent_turns: int = 60
    """Turns of coordinate ascent; two to four are usual. Along the ridge of +I+G they gained 0.62
    and then 0.8 to 0.9 of the last one, 27 times (20 taxa, 1,827 sites): 20 turns left 0.022."""
    checkpoints: CheckpointSettings = field(default_factory=CheckpointSettings)
    branches: BranchSettings = field(default_factory=BranchSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    rounds: RoundSettings = field(default_factory=RoundSettings)
    perturbation: PerturbationSettings = field(default_factory=PerturbationSettings)

    @property
    def perturbs(self) -> bool:
        """True if perturbed copies of the best tree are searched."""
        return self.perturbation.patience > 0

    @property
    def most_trees(self) -> int:
        """Trees that are searched side by side at most: starts, or copies of the best one."""
        copies = self.perturbation.copies if self.perturbs else 0
        usual, hard = self.parsimony_starts + self.random_starts, sum(self.hard_starts)
        starts = max(usual, min(hard, HARD_IN_COMPANY))
        return max(min(starts, self.starts_at_once or starts), copies)

    def for_data(self, taxa: int, sites: int) -> SearchSettings:
        """Return the settings fitted to an alignment of so many taxa and sites."""
        rounds, perturbation = self.rounds, self.perturbation
        window = max(rounds.window, rounds.window_per_site * sites)
        of_large_trees = min(REJECTION_PER_TAXON * taxa, MAX_REJECTION)
        rejection = max(rounds.rejection, of_large_trees, window * rounds.rejection / rounds.window)
        free_starts = self.tips_of_starts // taxa if self.parsimony_starts else 0
        free_length = perturbation.free_substitutions / sites
        in_turn = self.starts_in_turn if taxa > LARGE_TREE else 0
        if in_turn:
            returns = TURN_PATIENCE * perturbation.copies
            perturbation = replace(perturbation, patience=TURN_PATIENCE, returns=returns)
        return replace(
            self,
            hard_spread=HARD_SPREAD_OF_FEW if sites <= FEW_SITES else HARD_SPREAD,
            hard_starts=self.hard_starts if taxa <= MOST_HARD_TAXA else (0, 0),
            starts_in_turn=in_turn,
            parsimony_starts=max(self.parsimony_starts, free_starts),
            phases=self._phases_for(taxa),
            rounds=replace(rounds, window=window, rejection=rejection),
            perturbation=replace(perturbation, free_length=free_length),
        )

    def for_spread(self, spread: float) -> SearchSettings:
        """Return the settings for parsimony starts of such a mean distance."""
        if spread < self.hard_spread or not any(self.hard_starts):
            return self
        parsimony, random = self.hard_starts
        first, *later = self.phases
        return replace(
            self,
            parsimony_starts=parsimony,
            random_starts=random,
            chance=self.hard_chance,
            starts_at_once=HARD_IN_COMPANY if self.starts_at_once is None else HARD_AT_ONCE,
            starts_as_needed=self.starts_at_once is not None,
            phases=(replace(first, breadth=first.breadth * ROUGH_BREADTH), *later),
            perturbation=replace(
                self.perturbation,
                resolves=True,
                strong_fraction=STRONG_FRACTION,
                returns=HARD_RETURNS * self.perturbation.returns,
            ),
        )

    def side_by_side(self, taxa: int, *, usual_starts: bool = True) -> SearchSettings:
        """Return the settings for devices where trees side by side take hardly longer than one.

        ``usual_starts``: none was given.
        """
        fitting, perturbation = self, self.perturbation
        if taxa > LARGE_TREE:
            factor = 1 if self.starts_in_turn else LARGE_PATIENCE
            patient = replace(
                perturbation,
                resolves=True,
                patience=factor * perturbation.patience,
                returns=factor * perturbation.returns,
            )
            fitting = replace(self, perturbation=patient)
        if usual_starts and 0 < self.parsimony_starts < self.starts_in_company:
            return replace(fitting, parsimony_starts=self.starts_in_company, max_survivors=1)
        return fitting

    def one_by_one(self, *, all_starts: bool) -> SearchSettings:
        """Return the settings for devices where trees side by side cost as much as one by one.

        ``all_starts``: none is left out, however well others agree.
        """
        patience = self.perturbation.copies // FEW_COPIES * self.perturbation.patience
        return replace(
            self,
            starts_at_once=None if all_starts else FEW_STARTS,
            perturbation=replace(self.perturbation, copies=FEW_COPIES, patience=patience),
        )

    def _phases_for(self, taxa: int) -> tuple[PhaseSettings, ...]:
        """The phases, on large trees with a wide look before the last one."""
        last = self.phases[-1:]
        looks = [phase.wide_look(taxa) for phase in last if taxa > LARGE_TREE]
        return (*self.phases[:-1], *looks, *last)

    def for_precision(self, exact: bool) -> SearchSettings:
        """Return the settings with differences of lnL wide enough for an engine's precision."""
        step = self.model.step if exact else self.model.mixed_step
        return replace(self, model=replace(self.model, step=step))

    def unperturbed(self) -> SearchSettings:
        """Return the settings without perturbation."""
        return replace(self, perturbation=replace(self.perturbation, patience=0))

    def nni_only(self) -> SearchSettings:
        """Return the settings restricted to nearest-neighbour interchanges."""
        moves = PhaseSettings(radius=1, cut=math.inf)
        return replace(
            self, phases=(moves, moves), perturbation=replace(self.perturbation, phase=moves)
        )


PRESETS: dict[str, SearchSettings] = {
    "fast": SearchSettings(starts_in_company=4, perturbation=PerturbationSettings(patience=0)),
    "default": SearchSettings(parsimony_starts=6, hard_starts=(2, 30)),
    "thorough": SearchSettings(
        parsimony_starts=10,
        hard_starts=(4, 44),
        hard_chance=0.005,
        random_starts=2,
        agreement=12,
        max_survivors=6,
        starts_in_turn=4,
        perturbation=PerturbationSettings(copies=16, patience=5, returns=80),
    ),
}
"""fast: one start, four on a GPU, and no perturbation; default: what the quality bars need;
thorough: more of both."""

REPLICATE = SearchSettings(
    parsimony_starts=3,
    improves_all_starts=False,
    perturbation=PerturbationSettings(copies=4, patience=1, agreement_share=1.0),
)
"""A bootstrap replicate's search (bench/search-notebook.md, "Replicates")."""


def preset(name: str) -> SearchSettings:
    """The settings of a named preset. Raises: KeyError."""
    return PRESETS[name]
