"""Small data sets and likelihoods for the tests of the search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from verifier import VerifiedEngine

from mltree.data.alphabet import DNA
from mltree.data.patterns import Patterns
from mltree.likelihood.likelihood import Columns, TreeLikelihood
from mltree.models.eigen import ModelArrays, p_matrices
from mltree.models.grammar import parse_model
from mltree.models.partitioned import Linkage, PartitionModel, alone
from mltree.models.substitution import Model
from mltree.program.cases import Case
from mltree.program.engine import ReferenceEngine
from mltree.tree.topology import Tree, random_topology

BOUNDS = (1e-6, 100.0)

GTR_G2 = "GTR{1.3/3.1/0.7/1.1/4.2/1}+FU{0.3/0.2/0.2/0.3}+G2m{0.6}"
"""What data evolve under, unless a test says otherwise."""

TWO_PARTS = (GTR_G2, "HKY{4}+FU{0.2/0.3/0.3/0.2}+G2m{1.5}")


@dataclass(frozen=True)
class Simulated:
    """A simulated alignment with the tree and model that it came from."""

    patterns: Patterns
    tree: Tree
    model: PartitionModel
    likelihood: TreeLikelihood

    @property
    def under(self) -> Case:
        """What the tree is computed under."""
        return Case(self.model.arrays())


def simulate(tree: Tree, model: Model, sites: int, rng: np.random.Generator) -> np.ndarray:
    """u8 [T, sites] of DNA codes (1, 2, 4, 8), evolved along the tree."""
    arrays = model.arrays()
    category = rng.choice(arrays.rates.size, size=sites, p=arrays.weights)
    states = np.empty((tree.n_nodes, sites), dtype=np.intp)
    states[0] = rng.choice(4, size=sites, p=arrays.frequencies)
    todo = [0]
    while todo:
        half = todo.pop()
        for h in (half,) if half == 0 else tree.siblings(half):
            below = int(tree.twin[h])
            p = p_matrices(arrays, tree.lengths[tree.edge[h]][None])[0]
            cumulative = p[category, states[h // 3]].cumsum(axis=1)
            draw = rng.random((sites, 1))
            states[below // 3] = np.minimum((draw > cumulative).sum(axis=1), 3)
            if below >= 3 * tree.n_tips:
                todo.append(below)
    return np.left_shift(1, states[: tree.n_tips]).astype(np.uint8)


def patterns_of(codes: np.ndarray) -> Patterns:
    columns, index, counts = np.unique(codes, axis=1, return_inverse=True, return_counts=True)
    return Patterns(
        taxa=tuple(f"t{n:02d}" for n in range(len(codes))),
        codes=np.ascontiguousarray(columns),
        weights=counts.astype(np.float64),
        site_pattern=index.ravel().astype(np.int32),
        alphabet=DNA,
    )


def joined(parts: Sequence[Patterns]) -> Patterns:
    """The parts of an alignment, one after the other."""
    ends = np.cumsum([part.n_patterns for part in parts]).tolist()
    starts = [0, *ends[:-1]]
    of_sites = [part.site_pattern + start for part, start in zip(parts, starts, strict=True)]
    return replace(
        parts[0],
        codes=np.concatenate([part.codes for part in parts], axis=1),
        weights=np.concatenate([part.weights for part in parts]),
        site_pattern=np.concatenate(of_sites).astype(np.int32),
        ends=tuple(ends) if len(ends) > 1 else (),
    )


def simulated(patterns: Patterns, tree: Tree, model: PartitionModel) -> Simulated:
    inner = ReferenceEngine(patterns, max(model.categories), BOUNDS)
    engine = VerifiedEngine(inner, patterns.n_tips)
    columns = Columns.of([patterns])
    return Simulated(patterns, tree, model, TreeLikelihood(engine, BOUNDS, columns))


@pytest.fixture(scope="session")
def make_case() -> Callable[..., Simulated]:
    """make_case(tips, sites, seed, model): simulated data on a random tree."""

    def make(n_tips: int = 8, sites: int = 200, seed: int = 1, text: str = GTR_G2) -> Simulated:
        rng = np.random.default_rng(seed)
        tree = random_topology(n_tips, rng)
        tree.lengths[:] = rng.uniform(0.05, 0.3, tree.n_edges)
        model = parse_model(text, DNA)
        patterns = patterns_of(simulate(tree, model, sites, rng))
        return simulated(patterns, tree, alone(model))

    return make


@pytest.fixture(scope="session")
def make_parts() -> Callable[..., Simulated]:
    """make_parts(tips, sites, seed, linkage, texts): an alignment whose parts have models, speeds
    or branch lengths of their own."""

    def make(
        n_tips: int = 8,
        sites: Sequence[int] = (200, 120),
        seed: int = 1,
        linkage: Linkage = Linkage.LINKED,
        texts: Sequence[str] = TWO_PARTS,
    ) -> Simulated:
        rng = np.random.default_rng([seed, len(sites)])
        tree = random_topology(n_tips, rng)
        shares = np.array(sites) / sum(sites)
        scalers = np.ones(len(sites))
        if linkage == Linkage.SCALED:
            scalers = np.exp(rng.normal(size=len(sites)))
            scalers /= scalers @ shares
        own = len(sites) if linkage == Linkage.UNLINKED else 1
        lengths = np.broadcast_to(
            rng.uniform(0.05, 0.3, (own, tree.n_edges)), (len(sites), tree.n_edges)
        )
        models = [parse_model(text, DNA) for text in texts]
        evolved = [
            Tree(tree.twin, tree.edge, scaler * of_part, n_tips)
            for scaler, of_part in zip(scalers, lengths, strict=True)
        ]
        parts = [
            patterns_of(simulate(of_part, model, size, rng))
            for of_part, model, size in zip(evolved, models, sites, strict=True)
        ]
        names = tuple(f"part{n + 1}" for n in range(len(sites)))
        whole = PartitionModel(tuple(models), names, linkage, scalers, shares)
        tree.lengths = lengths.copy() if linkage == Linkage.UNLINKED else lengths[0].copy()
        return simulated(joined(parts), tree, whole)

    return make


@pytest.fixture(scope="session")
def part_alone() -> Callable[[Simulated, int], Simulated]:
    """part_alone(data, part): a part as an alignment of its own, with its tree and its model."""

    def cut(data: Simulated, part: int) -> Simulated:
        span, patterns, tree = data.patterns.parts[part], data.patterns, data.tree
        own = replace(
            patterns,
            codes=np.ascontiguousarray(patterns.codes[:, span]),
            weights=patterns.weights[span],
            site_pattern=np.arange(span.stop - span.start, dtype=np.int32),
            ends=(),
        )
        lengths = np.broadcast_to(tree.lengths, (data.model.n_parts, tree.n_edges))[part]
        scaled = Tree(tree.twin, tree.edge, data.model.scalers[part] * lengths, tree.n_tips)
        return simulated(own, scaled, alone(data.model.models[part]))

    return cut


@pytest.fixture(scope="session")
def textbook_lnls() -> Callable[[Patterns, Tree, Sequence[ModelArrays]], np.ndarray]:
    """textbook_lnls(patterns, tree, models): f64[parts], by Felsenstein's pruning from tip 0, one
    recursive call a node, without scaling."""

    def lnls(patterns: Patterns, tree: Tree, models: Sequence[ModelArrays]) -> np.ndarray:
        every = np.broadcast_to(tree.lengths, (len(models), tree.n_edges))
        return np.array(
            [
                patterns.weights[span] @ np.log(of_sites(patterns, span, tree, lengths, arrays))
                for span, lengths, arrays in zip(patterns.parts, every, models, strict=True)
            ]
        )

    def of_sites(
        patterns: Patterns, span: slice, tree: Tree, lengths: np.ndarray, arrays: ModelArrays
    ) -> np.ndarray:
        p = p_matrices(arrays, lengths)

        def below(half: int) -> np.ndarray:
            if half // 3 < tree.n_tips:
                vector = patterns.alphabet.tip_table[patterns.codes[half // 3, span]]
                return np.repeat(vector[:, None, :], arrays.n_categories, axis=1)
            first, second = (across(int(side)) for side in tree.siblings(half))
            return first * second

        def across(half: int) -> np.ndarray:
            return np.einsum("kij,lkj->lki", p[tree.edge[half]], below(int(tree.twin[half])))

        both = below(0) * across(0)
        return np.einsum("k,i,lki->l", arrays.weights, arrays.frequencies, both)

    return lnls


@pytest.fixture(scope="session")
def case(make_case: Callable[..., Simulated]) -> Simulated:
    return make_case()


@pytest.fixture(scope="session")
def make_rugged() -> Callable[..., Patterns]:
    """make_rugged(tips, sites, histories, seed): columns that evolved along different trees.

    As after recombination: no tree fits, and many lie on tops of their own. ``inner``: times which
    inner branches are as long.
    """

    def make(n_tips: int, sites: int, histories: int, seed: int, *, inner: float = 1.0) -> Patterns:
        rng = np.random.default_rng(seed)
        model = parse_model("JC", DNA)
        parts = []
        for _ in range(histories):
            tree = random_topology(n_tips, rng)
            tree.lengths[:] = rng.exponential(0.1, tree.n_edges) + 1e-4
            tree.lengths[tree.inner_edges] *= inner
            parts.append(simulate(tree, model, sites // histories, rng))
        return patterns_of(np.concatenate(parts, axis=1))

    return make
