"""The likelihood of one tree as a function of its branch lengths and the model's parameters.

For optimisers, samplers and approximations of others' own. Every variable is an element of one
vector: first the branch lengths, then the parameters on the scales of
:mod:`mltree.models.parameters` (logs of rates and shapes, log-ratios of frequencies, a logit of the
invariable sites), where any number is a value. Derivatives are with respect to those elements.

Slopes and curvatures in branch lengths are the engine's own, exact to rounding; all others are
differences of fourth order, of lnL or of slopes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mltree.likelihood import likelihood
from mltree.models.parameters import arrays_of, names, vector, with_vector
from mltree.models.partitioned import Linkage
from mltree.program.cases import Case
from mltree.runs.calls import in_turn, resources_of
from mltree.runs.engines import Engines, Workload, open_engines
from mltree.runs.inputs import AlignmentLike, TreeLike, newick_of, source_of
from mltree.runs.options import one_of
from mltree.runs.problem import load_problem
from mltree.runs.results import PhyloTree
from mltree.runs.trees import read_trees, with_own_lengths
from mltree.system.arrays import Float64
from mltree.system.errors import InputError
from mltree.system.events import ignore
from mltree.tree.newick import write_newick
from mltree.tree.topology import Tree

STEP = 1e-3
"""Step of parameters, for slopes: the formula is off by step^4 / 30 times a fifth derivative, and
by rounding of lnL / step, 1e-9 at lnL -1e4."""

CURVE_STEP = 4e-3
"""Step of parameters, for second differences of lnL, which divide rounding by its square."""

LENGTH_STEP = 1e-3
"""Step of a branch length, as a share of the length: slopes bend on that scale."""

LEAST_STEP = 1e-7
"""Shortest step of a branch length, expected substitutions per site."""

WEIGHTS = ((-2, 1 / 12), (-1, -8 / 12), (1, 8 / 12), (2, -1 / 12))
"""The slope of fourth order: steps and what each value counts, over the step."""


class Likelihood:
    """lnL, gradient and Hessian of a tree over an alignment, on any device.

    Methods take ``x``, f64 [n], or use that of the tree and model it was made with. Threads may
    share it: they take turns. After an interrupt it goes on with the next call.
    """

    def __init__(
        self,
        alignment: AlignmentLike,
        tree: TreeLike,
        model: str | None = None,
        *,
        taxa: Sequence[str] | None = None,
        data_type: str | None = None,
        brlen: str = "scaled",
        device: str | int | None = None,
        precision: str = "double",
        memory_limit: str | int | None = None,
    ) -> None:
        """Read the data and the tree; see :func:`mltree.evaluate` for the arguments.

        Raises:
            MltreeError: they cannot be used, or the device cannot.
        """
        one_of("brlen", brlen, Linkage)
        resources = resources_of(device, precision, memory_limit)
        source, text = source_of(alignment, taxa), newick_of(tree)
        with in_turn():
            problem = load_problem(source, model, ignore, data_type, Linkage(brlen))
            given = with_own_lengths(read_trees(text, problem, ignore), problem.model)
            self._problem, self._tree, self._resources = problem, given, resources
            self._engines: Engines | None = None
            self._engine()

    def __enter__(self) -> Likelihood:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Let the device go; the next call takes it again."""
        self._engines = None

    @property
    def taxa(self) -> tuple[str, ...]:
        """T names, sorted."""
        return self._problem.taxa

    @property
    def n_branches(self) -> int:
        """How many elements of ``x`` are branch lengths, of every part where each has its own."""
        return self._branches.size

    @cached_property
    def x(self) -> Float64:
        """f64 [n]: the variables as they were given; a copy may be changed and handed back."""
        model = self._problem.model
        values = [vector(own) for own in model.models]
        scalers = [np.log(model.scalers)] if self._has_scalers else []
        x = np.concatenate([self._branches.ravel(), *values, *scalers])
        x.setflags(write=False)
        return x

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the variables.

        The branch to a tip is named by the tip, an inner one by the taxa on the side that has fewer
        of them (or not the first one), a parameter as in ``rate AC``, ``alpha``.
        """
        model, several = self._problem.model, self._problem.model.n_parts > 1
        branches = self._branch_names()
        if self._tree.lengths.ndim > 1:
            branches = [f"{part}: {name}" for part in model.names for name in branches]
        parameters = [
            f"{part}: {name}" if several else name
            for part, own in zip(model.names, model.models, strict=True)
            for name in names(own)
        ]
        scalers = [f"{part}: scaler" for part in model.names] if self._has_scalers else []
        return (*branches, *parameters, *scalers)

    def tree(self, x: ArrayLike | None = None) -> PhyloTree:
        """The tree with the branch lengths of ``x``; their mean over sites where parts have own."""
        tree = self._tree_at(self._checked(x))
        plain = tree.with_lengths(self._problem.model.mean_lengths(tree.lengths))
        return PhyloTree(write_newick(plain, self.taxa, digits=None))

    def model(self, x: ArrayLike | None = None) -> str:
        """The model with the parameters of ``x``, as ``model`` takes it."""
        parts, scalers = self._split(self._checked(x))
        own = [
            with_vector(model, values)
            for model, values in zip(self._problem.model.models, parts, strict=True)
        ]
        return self._problem.model.with_parts(own, scalers).text

    def lnl(self, x: ArrayLike | None = None) -> float:
        """Log-likelihood (natural)."""
        with in_turn():
            return float(self._lnls(self._checked(x)[None])[0])

    def site_lnl(self, x: ArrayLike | None = None) -> Float64:
        """f64 [sites]: of every site, in the alignment's order."""
        x = self._checked(x)
        with in_turn():
            (case,) = self._cases(x[None])
            return self._problem.by_site(
                self._asked("site_log_likelihoods", self._tree_at(x), case)
            )

    def gradient(self, x: ArrayLike | None = None) -> Float64:
        """f64 [n]: slopes of lnL."""
        x = self._checked(x)
        with in_turn():
            return np.concatenate([self._derivatives(x)[0], self._parameter_slopes(x)])

    def hessian(self, x: ArrayLike | None = None) -> Float64:
        """f64 [n, n]: second derivatives of lnL; four gradients a branch and parameter."""
        x = self._checked(x)
        with in_turn():
            b, n = self.n_branches, x.size
            hessian = np.zeros((n, n))
            for k in range(n):
                hessian[:b, k] = self._slopes_along(x, k)
            hessian[b:, :b] = hessian[:b, b:].T
            hessian[:b, :b] = 0.5 * (hessian[:b, :b] + hessian[:b, :b].T)
            diagonal = np.arange(b)
            hessian[diagonal, diagonal] = self._derivatives(x)[1]
            hessian[b:, b:] = self._parameter_curves(x)
            return hessian

    # ------------------------------------------------------------------------------- variables

    @property
    def _branches(self) -> Float64:
        """f64 [branches], or a row a part: lengths as they were given."""
        return self._tree.lengths[..., : self._tree.n_branches]

    @property
    def _has_scalers(self) -> bool:
        model = self._problem.model
        return model.linkage == Linkage.SCALED and model.n_parts > 1

    def _branch_names(self) -> list[str]:
        tree, taxa = self._tree, self.taxa
        below: dict[int, frozenset[int]] = {}
        for half in tree.postorder(int(tree.edge[0])).tolist():
            one, other = (int(tree.twin[h]) for h in tree.siblings(half))
            sides = [below.get(h, frozenset([h // 3])) for h in (one, other)]
            below[half] = sides[0] | sides[1]
        labels = [""] * tree.n_edges
        for pair in tree.edge_halves.tolist():
            tips = [h // 3 for h in pair if h < 3 * tree.n_tips]
            if tips:
                labels[int(tree.edge[pair[0]])] = taxa[tips[0]]
        every = frozenset(range(tree.n_tips))
        for half, inside in below.items():
            if not labels[int(tree.edge[half])]:
                side = min(inside, every - inside, key=lambda tips: (len(tips), 0 in tips))
                labels[int(tree.edge[half])] = ",".join(taxa[tip] for tip in sorted(side))
        return labels[: tree.n_branches]

    def _checked(self, x: ArrayLike | None) -> Float64:
        """Raises: InputError where it is no such vector."""
        if x is None:
            return self.x
        given = np.array(x, np.float64)
        if given.shape != self.x.shape:
            raise InputError(f"x has {self.x.size} elements, not {list(given.shape)}")
        if not np.isfinite(given).all() or (given[: self.n_branches] < 0).any():
            raise InputError("x must be finite, and its branch lengths not negative")
        return given

    def _split(self, x: Float64) -> tuple[list[Float64], Float64]:
        """The parameters of every part, and the parts' scalers."""
        model = self._problem.model
        sizes = [vector(own).size for own in model.models]
        ends = np.cumsum([self.n_branches, *sizes])
        *parts, rest = np.split(x, ends)[1:]
        return parts, np.exp(rest) if self._has_scalers else model.scalers

    def _tree_at(self, x: Float64) -> Tree:
        tree = self._tree.copy()
        tree.lengths[..., : tree.n_branches] = x[: self.n_branches].reshape(self._branches.shape)
        return tree

    def _cases(self, points: Float64) -> list[Case]:
        """Cases for each row of variables, f64 [m, n]."""
        model = self._problem.model
        split = [self._split(x) for x in points]
        values = [np.array(rows) for rows in zip(*(parts for parts, _ in split), strict=True)]
        scalers = list(np.array([own for _, own in split]).T)
        every = arrays_of(model.models, values, scalers, model.shapes)
        return [Case(models) for models in zip(*every, strict=True)]

    # ------------------------------------------------------------------------------ the engine

    def _engine(self) -> likelihood.TreeLikelihood:
        if self._engines is None:
            self._engines = open_engines(self._resources, Workload.of(self._problem), ignore)
        return self._engines.likelihood

    def _asked(self, what: str, *arguments: Any) -> Any:
        """Ask the engine; one that was interrupted is not asked again."""
        try:
            return getattr(self._engine(), what)(*arguments)
        except BaseException:
            self._engines = None
            raise

    def _lnls(self, points: Float64) -> Float64:
        """f64 [m]: lnL at each of f64 [m, n]."""
        trees = [self._tree_at(x) for x in points]
        lnls: Float64 = self._asked("log_likelihoods", trees, self._cases(points))
        return lnls

    def _derivatives(self, x: Float64) -> tuple[Float64, Float64]:
        """Slope and curvature in every branch length."""
        (case,) = self._cases(x[None])
        _, slope, curve = self._asked("derivatives", self._tree_at(x), case)
        some = slice(self._tree.n_branches)
        return slope[..., some].ravel(), curve[..., some].ravel()

    def _parameter_slopes(self, x: Float64) -> Float64:
        """f64 [parameters]: of fourth order, all points in one launch."""
        free = range(self.n_branches, x.size)
        if not free:
            return np.empty(0)
        points = [_moved(x, {k: by * STEP}) for k in free for by, _ in WEIGHTS]
        lnls = self._lnls(np.array(points)).reshape(-1, len(WEIGHTS))
        slopes: Float64 = lnls @ np.array([weight for _, weight in WEIGHTS]) / STEP
        return slopes

    def _parameter_curves(self, x: Float64) -> Float64:
        """f64 [parameters, parameters]: (4 D(h) - D(2h)) / 3 of second differences D."""
        free = list(range(self.n_branches, x.size))
        pairs = [(a, b) for n, a in enumerate(free) for b in free[: n + 1]]
        points = [
            _moved(x, {a: one * by * CURVE_STEP}, {b: other * by * CURVE_STEP})
            for a, b in pairs
            for by in (1, 2)
            for one, other in ((1, 1), (1, -1), (-1, 1), (-1, -1))
        ]
        curves = np.zeros((len(free), len(free)))
        if not points:
            return curves
        lnls = self._lnls(np.array(points)).reshape(len(pairs), 2, 4)
        second = lnls @ np.array([1, -1, -1, 1]) / (4 * CURVE_STEP**2) / np.array([1, 4])
        for (a, b), (near, far) in zip(pairs, second, strict=True):
            row, column = a - self.n_branches, b - self.n_branches
            curves[row, column] = curves[column, row] = (4 * near - far) / 3
        return curves

    def _slopes_along(self, x: Float64, k: int) -> Float64:
        """f64 [branches]: how the slopes of the branches change with an element of x."""
        step = STEP if k >= self.n_branches else max(LENGTH_STEP * x[k], LEAST_STEP)
        if k < self.n_branches and x[k] < 2 * step:  # no length is below 0
            slopes = [self._derivatives(_moved(x, {k: by * step}))[0] for by in (0, 1, 2)]
            return (-3 * slopes[0] + 4 * slopes[1] - slopes[2]) / (2 * step)
        change = np.zeros(self.n_branches)
        for by, weight in WEIGHTS:
            change += weight * self._derivatives(_moved(x, {k: by * step}))[0]
        return change / step


def _moved(x: Float64, *steps: dict[int, float]) -> Float64:
    """A copy of x, some of its elements moved."""
    moved = x.copy()
    for step in steps:
        for k, by in step.items():
            moved[k] += by
    return moved
