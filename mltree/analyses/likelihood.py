"""Likelihoods as functions: of one tree's branch lengths and parameters; of pairs' distances.

For optimisers, samplers and approximations of others' own. Every variable is an element of one
vector: first the branch lengths, then the parameters on the scales of
:mod:`mltree.models.parameters` (logs of rates and shapes, log-ratios of frequencies, a logit of the
invariable sites), where any number is a value. Derivatives are with respect to those elements.

Slopes and curvatures in branch lengths are the engine's own, exact to rounding; all others are
differences of fourth order, of lnL or of slopes.

The distance of two sequences is the branch length between them of the largest likelihood, found by
Newton's method; :func:`nj_tree` makes a tree of distances.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from html import escape
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mltree.analyses.bootstrap import is_given, prepare_bootstrap, replicate_settings
from mltree.analyses.options import PairOptions
from mltree.data.alignments import Source
from mltree.data.patterns import Patterns
from mltree.likelihood import likelihood
from mltree.models.eigen import ModelArrays
from mltree.models.parameters import arrays_of, names, vector, with_vector
from mltree.models.partitioned import Linkage, PartitionModel
from mltree.program.cases import Case
from mltree.runs.calls import Call, in_turn, resources_of, taking, threads_of_call
from mltree.runs.engines import Engines, Workload, open_engines
from mltree.runs.inputs import (
    AlignmentLike,
    ModelLike,
    ModelParameters,
    TreeLike,
    model_of,
    newick_of,
    source_of,
)
from mltree.runs.logged_run import load
from mltree.runs.options import one_of
from mltree.runs.problem import load_problem
from mltree.runs.results import PhyloTree, Table, data_frame, table
from mltree.runs.trees import read_tree, read_trees, with_own_lengths
from mltree.system.arrays import Float64
from mltree.system.errors import InputError, ModelError
from mltree.system.events import ignore
from mltree.system.files import write_whole
from mltree.tree.newick import write_newick
from mltree.tree.topology import Tree, neighbour_joining

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
        model: ModelLike | None = None,
        *,
        taxa: Sequence[str] | None = None,
        data_type: str | None = None,
        brlen: str = "scaled",
        device: str | int | None = None,
        precision: str = "double",
        memory_limit: str | int | None = None,
        threads: int | None = None,
    ) -> None:
        """Read the data and the tree; see :func:`mltree.evaluate` for the arguments.

        Raises:
            MltreeError: they cannot be used, or the device cannot.
        """
        one_of("brlen", brlen, Linkage)
        resources = resources_of(device, precision, memory_limit)
        source, text = source_of(alignment, taxa), newick_of(tree)
        name = None if model is None else model_of(model)
        self._threads = threads_of_call(threads)
        with self._turn():
            problem = load_problem(source, name, ignore, data_type, Linkage(brlen))
            given = with_own_lengths(read_trees(text, problem, ignore), problem.model)
            self._problem, self._tree, self._resources = problem, given, resources
            self._engines: Engines | None = None
            self._engine()

    def _turn(self) -> AbstractContextManager[None]:
        return in_turn(self._threads)

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
        return self._model_at(x).text

    def parameters(self, x: ArrayLike | None = None) -> ModelParameters:
        """The same as numbers. Raises: InputError where parts have a model each."""
        model = self._model_at(x)
        if model.n_parts > 1:
            raise InputError("there is a model a part", hint="model() has them all as text")
        return ModelParameters.of(model.lone)

    def _model_at(self, x: ArrayLike | None) -> PartitionModel:
        parts, scalers = self._split(self._checked(x))
        own = [
            with_vector(model, values)
            for model, values in zip(self._problem.model.models, parts, strict=True)
        ]
        return self._problem.model.with_parts(own, scalers)

    def lnl(self, x: ArrayLike | None = None) -> float:
        """Log-likelihood (natural)."""
        with self._turn():
            return float(self._lnls(self._checked(x)[None])[0])

    def site_lnl(self, x: ArrayLike | None = None) -> Float64:
        """f64 [sites]: of every site, in the alignment's order."""
        x = self._checked(x)
        with self._turn():
            (case,) = self._cases(x[None])
            return self._problem.by_site(
                self._asked("site_log_likelihoods", self._tree_at(x), case)
            )

    def gradient(self, x: ArrayLike | None = None) -> Float64:
        """f64 [n]: slopes of lnL."""
        x = self._checked(x)
        with self._turn():
            return np.concatenate([self._derivatives(x)[0], self._parameter_slopes(x)])

    def hessian(self, x: ArrayLike | None = None) -> Float64:
        """f64 [n, n]: second derivatives of lnL; four gradients a branch and parameter."""
        x = self._checked(x)
        with self._turn():
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

    def __repr__(self) -> str:
        parameters = self.x.size - self.n_branches
        return (
            f"Likelihood({len(self.taxa):,} taxa, {self.n_branches:,} branch lengths, "
            f"{parameters:,} parameters)"
        )

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


# Distances of pairs of sequences, and the tree that they make.
#
# With n_cd the sites where the pair has the characters c and d, over the eigen system of each rate
# category or class k,
#
#     lnL(t) = Σ_cd n_cd log f_cd(t)
#     f_cd(t) = Σ_ks w_k (C π_k V_k)_cs e^(λ_ks r_k t) (V⁻¹_k Cᵀ)_sd
#
# where a row of C has 1 for the states that a character may be, so that all derivatives are sums of
# the same exponentials.

LONGEST_DISTANCE = 10.0
"""Substitutions per site: no more is told apart from no relation (IQ-TREE's longest branch)."""

DISTANCE_ERROR = 1e-8
"""Step of Newton's method below which a distance stands, as a share of 1 + the distance: the next
one would be about its square, and rounding makes some of 1e-11."""

MOST_NEWTON_STEPS = 100


class DistanceMatrix(Table):
    """Distances of all pairs of sequences, expected substitutions per site."""

    def __init__(self, taxa: Sequence[str], matrix: Float64, raw: Float64, model: str) -> None:
        self.taxa = tuple(taxa)
        """T names, sorted."""
        self.matrix = matrix
        """f64 [T, T]: by maximum likelihood; NaN where a pair shares no site with data."""
        self.raw = raw
        """f64 [T, T]: share of the sites that differ, of those where both have one sure state."""
        self.model = model
        """The model with its values, as ``model`` takes it."""

    def __getitem__(self, pair: tuple[str, str]) -> float:
        """The distance of two taxa. Raises: KeyError."""
        place = {name: row for row, name in enumerate(self.taxa)}
        return float(self.matrix[place[pair[0]], place[pair[1]]])

    def columns(self) -> dict[str, Sequence[Any]]:
        """A column for each taxon."""
        return dict(zip(self.taxa, self.matrix.T.tolist(), strict=True))

    def to_dataframe(self) -> Any:
        """The matrix as a ``DataFrame``, its rows and columns named by the taxa.

        Raises: ImportError where pandas is not installed.
        """
        return data_frame(self.columns(), index=self.taxa)

    def write(self, path: str | PathLike[str]) -> None:
        """Write the square matrix in PHYLIP's format. Raises: InputError: it cannot be written."""
        rows = zip(self.taxa, self.matrix.tolist(), strict=True)
        lines = [" ".join([name, *(f"{value:.8f}" for value in row)]) for name, row in rows]
        write_whole(Path(path), "\n".join([str(len(self.taxa)), *lines, ""]).encode())

    def _repr_html_(self) -> str:
        shown = slice(SHOWN_TAXA)
        rows = zip(self.taxa[shown], self.matrix[shown, shown].tolist(), strict=True)
        cells = [[name, *(f"{value:.4f}" for value in row)] for name, row in rows]
        more = "" if len(self.taxa) <= SHOWN_TAXA else "<p>to_dataframe() has all</p>"
        return f"<p>{escape(repr(self))}</p>{table(cells, ['', *self.taxa[shown]])}{more}"

    def __repr__(self) -> str:
        pairs = self.matrix[np.triu_indices(len(self.taxa), 1)]
        mean = f", mean {np.nanmean(pairs):.4f}" if np.isfinite(pairs).any() else ""
        return f"DistanceMatrix({len(self.taxa):,} taxa{mean})"


SHOWN_TAXA = 12
"""Taxa of a matrix that a notebook is shown."""


@taking(PairOptions, "model")
def distances(options: PairOptions, source: Source, call: Call) -> DistanceMatrix:
    """Compute the distances of all pairs of sequences by maximum likelihood.

    Parameters that the model leaves open are estimated once, for all pairs, on the tree.
    """
    problem = load(options, call, source)
    model, tree = problem.model, options.tree
    if any(own.ascertainment is not None for own in model.models):
        raise ModelError("+ASC is of whole trees: pairs have constant sites", hint="leave it out")
    if not is_given(problem):
        start = None if tree is None else read_tree(tree, problem, call)
        settings, seed = replicate_settings(nni_only=False), options.seed
        ready = prepare_bootstrap(
            problem, settings, options.resources, tree=start, seed=seed, emit=call
        )
        model = ready.replicates.model
    order = [0] if problem.data is None else problem.data.order
    each = zip(order, model.arrays(), model.scalers.tolist(), strict=True)
    parts = [_Pairs(problem.part(number), arrays, scaler) for number, arrays, scaler in each]
    rows = [_distances_from(row, parts) for row in range(len(problem.taxa) - 1)]
    matrix, raw = (_both_ways(np.concatenate(values)) for values in zip(*rows, strict=True))
    return DistanceMatrix(problem.taxa, matrix, raw, model.text)


def _both_ways(values: Float64) -> Float64:
    """f64 [T, T]: symmetric, of the values above the diagonal by rows."""
    n = round((1 + math.sqrt(1 + 8 * values.size)) / 2)
    matrix = np.zeros((n, n))
    matrix[np.triu_indices(n, 1)] = values
    return matrix + matrix.T


class _Pairs:
    """Characters of pairs of sequences at the sites of a part, and their likelihoods."""

    def __init__(self, patterns: Patterns, arrays: ModelArrays, scaler: float) -> None:
        self._weights = patterns.weights
        used, self._codes = np.unique(patterns.codes, return_inverse=True)
        self._codes = self._codes.reshape(patterns.codes.shape)
        self._n_codes = used.size
        may_be = patterns.alphabet.tip_table[used]
        is_sure = np.isin(used, patterns.alphabet.certain_codes)
        self._is_sure = (is_sure[:, None] & is_sure).ravel()
        is_known = used != patterns.alphabet.gap_code
        self._is_known = (is_known[:, None] & is_known).ravel()
        self._differs = ~np.eye(used.size, dtype=bool).ravel()
        shape = arrays.n_systems, -1
        rates, weights = arrays.rates.reshape(shape), arrays.weights.reshape(shape)
        exponents, factors = [], []
        for number in range(arrays.n_systems):
            system = arrays.system(number)
            left, right = (may_be * system.frequencies) @ system.right, system.left @ may_be.T
            products = np.einsum("cs,sd->scd", left, right).reshape(len(right), -1)
            for rate, weight in zip(rates[number], weights[number], strict=True):
                exponents.append(system.eigenvalues * rate * scaler)
                factors.append(weight * products)
        self._exponents, self._factors = np.concatenate(exponents), np.concatenate(factors)

    def counts(self, row: int) -> Float64:
        """f64 [T - row - 1, C²]: sites with each pair of characters, beside those behind."""
        keys = self._codes[row] * self._n_codes + self._codes[row + 1 :]
        size = self._n_codes**2
        keys = keys + size * np.arange(len(keys))[:, None]
        weights = np.broadcast_to(self._weights, keys.shape)
        counted = np.bincount(keys.ravel(), weights.ravel(), minlength=size * len(keys))
        return np.asarray(counted, np.float64).reshape(-1, size)

    def differing(self, counts: Float64) -> tuple[Float64, Float64, Float64]:
        """f64 [n] each: sites that differ, sites with sure states, sites with any data in both."""
        sure = counts[:, self._is_sure]
        differing = counts[:, self._is_sure & self._differs]
        return differing.sum(axis=1), sure.sum(axis=1), counts[:, self._is_known].sum(axis=1)

    def slopes(self, counts: Float64) -> Callable[[Float64], tuple[Float64, Float64]]:
        """First and second derivative of lnL, f64 [n] each, as a function of n distances."""
        cells = counts.any(axis=0)
        n, factors, powers = counts[:, cells], self._factors[:, cells], self._exponents
        shape = 3, len(counts), -1

        def at(t: Float64) -> tuple[Float64, Float64]:
            terms = np.exp(np.multiply.outer(t, powers))
            sums = np.concatenate([terms, terms * powers, terms * powers**2]) @ factors
            f, first, second = sums.reshape(shape)
            f = np.maximum(f, LEAST_SHARE)
            slope = first / f
            return (n * slope).sum(axis=1), (n * (second / f - slope**2)).sum(axis=1)

        return at


LEAST_SHARE = 1e-300
"""Likelihood of a pair of characters that rounding has left none."""


def _distances_from(row: int, parts: Sequence[_Pairs]) -> tuple[Float64, Float64]:
    """f64 [T - row - 1] each: distances of a sequence from those behind it, and raw ones.

    Newton's method on all pairs at once, which halves an interval where a step would leave it.
    """
    counts = [part.counts(row) for part in parts]
    facts = [part.differing(own) for part, own in zip(parts, counts, strict=True)]
    differing, sure, known = (sum(column) for column in zip(*facts, strict=True))
    raw = np.where(sure > 0, differing / np.maximum(sure, 1.0), np.nan)

    each = [part.slopes(own) for part, own in zip(parts, counts, strict=True)]
    low, high = np.zeros(len(raw)), np.full(len(raw), LONGEST_DISTANCE)
    t, moves = np.clip(np.nan_to_num(raw), 1e-3, 1.0), np.ones(len(raw), np.bool_)
    for _ in range(MOST_NEWTON_STEPS):
        first, second = np.sum([slopes(t) for slopes in each], axis=0)
        low, high = np.where(first > 0, t, low), np.where(first > 0, high, t)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.where(second < 0, t - first / second, np.inf)
        middle = (low + high) / 2
        error = DISTANCE_ERROR * (1.0 + t)
        is_near = np.abs(step - t) <= error
        is_inside = is_near | ((step > low) & (step < high))
        t = np.where(moves, np.where(is_inside, step, middle), t)
        moves &= ~is_near & (high - low > error)
        if not moves.any():
            break
    t = np.where(t <= 2 * DISTANCE_ERROR, 0.0, t)
    t = np.where(t >= LONGEST_DISTANCE * (1 - 2 * DISTANCE_ERROR), LONGEST_DISTANCE, t)
    return np.where(known > 0, t, np.nan), raw


def nj_tree(
    distances: DistanceMatrix | ArrayLike | Any, taxa: Sequence[str] | None = None
) -> PhyloTree:
    """The tree by neighbour joining, unrooted; branches that would be negative have length 0.

    distances  what :func:`mltree.distances` gives; a square array with ``taxa``; a ``DataFrame``
               of pandas, or a ``DistanceMatrix`` of scikit-bio

    Raises:
        InputError: the matrix is not square and symmetric, or has distances that are none; there
            are fewer than three taxa, or two of a name.
    """
    for rows, values in (("taxa", "matrix"), ("ids", "data"), ("index", "values")):
        if hasattr(distances, rows) and hasattr(distances, values):
            taxa = getattr(distances, rows) if taxa is None else taxa
            distances = getattr(distances, values)
            break
    if isinstance(distances, (str, bytes, Path, Mapping)):
        hint = "mltree.distances(alignment) makes them"
        raise InputError("nj_tree takes distances, not an alignment", hint=hint)
    if taxa is None:
        raise InputError("an array has no names", hint="name its rows: taxa=[...]")
    known, matrix = tuple(map(str, taxa)), np.asarray(distances, np.float64)
    if matrix.shape != (len(known), len(known)):
        raise InputError(f"distances of the shape {list(matrix.shape)} for {len(known)} taxa")
    if len(known) < 3 or len(set(known)) < len(known):
        raise InputError("neighbour joining takes three taxa at least, each with a name of its own")
    for one, other in np.argwhere(np.isnan(matrix))[:1]:
        raise InputError(f"there is no distance between {known[one]} and {known[other]}")
    if not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T) or (matrix < 0).any():
        raise InputError("distances must be finite, not negative, and the same both ways")
    order = sorted(range(len(known)), key=known.__getitem__)
    tree = neighbour_joining(matrix[np.ix_(order, order)])
    return PhyloTree(write_newick(tree, [known[n] for n in order], digits=None))
