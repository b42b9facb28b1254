"""Posteriors of random trees against what sets of taxa say of each tree."""

import math
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from mltree.sampling.sampled_trees import with_root, without_root
from mltree.sampling.summaries import (
    Moments,
    Posterior,
    RunSamples,
    SummaryTree,
)
from mltree.supports.consensus import Consensus
from mltree.system.errors import InputError
from mltree.tree.clades import Clades, WrittenTree, read_clades, read_written

Split = frozenset[str]

NAMES = ("a", "b b", "c'c", "(d)", "e,e", "f:1", "g[x]", "h", "i", "j", "k", "ä", "m", "n", "o")


def quoted(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


def grown(taxa: list[str], rng: random.Random, is_rooted: bool) -> str:
    """A random binary tree with lengths; some are zero."""
    parts = list(map(quoted, taxa))
    while len(parts) > (2 if is_rooted else 3):
        rng.shuffle(parts)
        # Few trees, so that topologies repeat.
        pair = [f"{part}:{rng.choice([0, rng.random()])!r}" for part in (parts.pop(), parts.pop())]
        parts.append(f"({','.join(pair)})")
    return f"({','.join(f'{part}:{rng.random()!r}' for part in parts)});"


def sample(
    case: int, is_rooted: bool, n_taxa: int | None = None
) -> tuple[list[RunSamples], list[str]]:
    """Runs of a few topologies each, and the trees of all in their order."""
    rng = random.Random(case)
    taxa = list(NAMES[: n_taxa or rng.randint(4, len(NAMES))])
    n, n_runs = rng.randint(3, 30), rng.randint(1, 4)
    shapes = [grown(taxa, rng, is_rooted) for _ in range(rng.randint(1, 6))]
    runs, texts = [], []
    for number in range(n_runs):
        drawn = [rng.choice(shapes[: rng.randint(1, len(shapes))]) for _ in range(n)]
        texts += drawn
        like = read_clades("(" + ",".join(map(quoted, taxa)) + ");")
        trees = read_clades("\n".join(drawn), like=like)
        values = np.random.default_rng(case + number).normal(size=(n, 2))
        runs.append(RunSamples(f"run{number}", ("x", "y"), values, np.arange(n), trees, is_rooted))
    return runs, texts


def nodes(tree: WrittenTree) -> dict[Split, int]:
    """The inner nodes by their taxa."""
    below: list[set[str]] = [set() for _ in range(tree.n_nodes)]
    for node in reversed(range(tree.n_nodes)):
        if not tree.children[node]:
            below[node].add(tree.labels[node])
        if node:
            below[tree.parent[node]] |= below[node]
    return {frozenset(names): node for node, names in enumerate(below) if tree.children[node]}


def splits(text: str, taxa: tuple[str, ...], is_rooted: bool) -> dict[Split, float]:
    """The clades of a tree, or the sides without the first taxon, and their lengths."""
    (tree,) = read_written(text)
    found: dict[Split, float] = {}
    for names, node in nodes(tree).items():
        side = names
        if not is_rooted and taxa[0] in names:
            side = frozenset(taxa) - names
        most = len(taxa) - (1 if is_rooted else 2)
        if 2 <= len(side) <= most:
            found[side] = found.get(side, 0.0) + float(tree.lengths[node])
    return found


def of_split(posterior: Posterior, split: int) -> Split:
    names = frozenset(posterior.names_of(split))
    if not posterior.is_rooted and posterior.taxa[0] in names:
        return frozenset(posterior.taxa) - names
    return names


ROOTED = pytest.mark.parametrize("is_rooted", [False, True], ids=["unrooted", "rooted"])


@ROOTED
@pytest.mark.cases(15, 400)
def test_frequencies_are_counts_of_sets(case: int, is_rooted: bool) -> None:
    runs, texts = sample(case, is_rooted)
    posterior = Posterior.of(runs, 0.0)
    trees = [splits(text, posterior.taxa, is_rooted) for text in texts]
    n = len(texts) // len(runs)
    assert posterior.is_rooted == is_rooted
    known = {of_split(posterior, split): split for split in range(posterior.splits.n_splits)}
    assert known.keys() == {side for tree in trees for side in tree}
    for side, split in known.items():
        has = np.array([side in tree for tree in trees]).reshape(len(runs), n)
        np.testing.assert_allclose(posterior.frequencies[split], has.mean(axis=1))
        np.testing.assert_array_equal(posterior.indicators(np.array([split]))[0], has)
        places = np.concatenate(posterior.occurrences(split))
        lengths = [tree[side] for tree in trees if side in tree]
        np.testing.assert_allclose(posterior.splits.lengths[places], lengths, rtol=1e-12)
    sums = posterior.tree_lengths.ravel()
    for text, total in zip(texts, sums, strict=True):
        assert total == pytest.approx(float(np.nansum(read_written(text)[0].lengths[1:])))


@ROOTED
@pytest.mark.cases(15, 400)
def test_topologies_are_told_apart(case: int, is_rooted: bool) -> None:
    runs, texts = sample(case, is_rooted)
    posterior = Posterior.of(runs, 0.0)
    keys = [frozenset(splits(text, posterior.taxa, is_rooted)) for text in texts]
    counts = Counter(keys)
    known = posterior.topologies
    assert sorted(counts.values(), reverse=True) == known.counts.tolist()
    for tree, topology in enumerate(known.of_tree):
        assert keys[tree] == keys[known.examples[topology]]
        assert known.counts[topology] == counts[keys[tree]]
    for share in (0.3, 0.5, 0.95, 1.0):
        size = known.credible(share)
        assert known.counts[:size].sum() >= share * len(texts) - 1e-9
        assert size == 1 or known.counts[: size - 1].sum() < share * len(texts)


@ROOTED
@pytest.mark.cases(15, 400)
def test_summary_trees_have_the_splits_that_they_should(case: int, is_rooted: bool) -> None:
    runs, texts = sample(case, is_rooted)
    posterior = Posterior.of(runs, 0.0)
    trees = [splits(text, posterior.taxa, is_rooted) for text in texts]
    counts = Counter(side for tree in trees for side in tree)
    majority = {side for side, count in counts.items() if 2 * count > len(trees)}
    tree = posterior.consensus()
    assert splits(tree.newick(), posterior.taxa, is_rooted).keys() == majority
    extended = splits(posterior.consensus(Consensus.EXTENDED).newick(), posterior.taxa, is_rooted)
    assert majority <= extended.keys()
    scores = [sum(math.log(counts[side] / len(trees)) for side in tree) for tree in trees]
    np.testing.assert_allclose(posterior.credibilities.ravel(), scores, atol=1e-9)
    best = splits(posterior.mcc.newick(), posterior.taxa, is_rooted)
    assert sum(math.log(counts[side] / len(trees)) for side in best) == pytest.approx(max(scores))
    if not is_rooted:
        for side, length in best.items():
            lengths = [tree[side] for tree in trees if side in tree]
            assert length == pytest.approx(np.median(lengths), abs=1e-8)


@pytest.mark.cases(15, 400)
def test_heights_are_distances_from_the_farthest_tip(case: int) -> None:
    runs, texts = sample(case, True)
    posterior = Posterior.of(runs, 0.0)
    known = posterior.heights
    bounds = posterior.splits.bounds
    for number, text in enumerate(texts):
        (tree,) = read_written(text)
        depths = tree.heights
        top = max(depths[tip] for tip in tree.tips)
        assert known.root[number] == pytest.approx(top)
        for tip in tree.tips:
            taxon = posterior.taxa.index(tree.labels[tip])
            assert known.tips[number, taxon] == pytest.approx(top - depths[tip], abs=1e-12)
        of_names = nodes(tree)
        for place in range(bounds[number], bounds[number + 1]):
            names = of_split(posterior, int(posterior.splits.split[place]))
            assert known.clades[place] == pytest.approx(top - depths[of_names[names]], abs=1e-12)


def test_rooted_summaries_are_drawn_by_heights() -> None:
    texts = [
        "((a:1,b:1):2,(c:2,d:2):1);",
        "((a:1,b:1):3,(c:2,d:2):2);",
        "((a:2,b:2):2,(c:1,d:1):3);",
    ]
    trees = read_clades("\n".join(texts))
    posterior = Posterior.of([RunSamples("r", (), np.empty((0, 0)), np.empty(0), trees, True)], 0.0)
    assert posterior.mcc.newick() == "((c:2,d:2):2,(a:1,b:1):3);"
    assert posterior.mcc.root_height == Moments(
        11 / 3, pytest.approx(1 / 3), 3.0, 4.0, 4.0, pytest.approx(math.nan, nan_ok=True)
    )


@ROOTED
@pytest.mark.cases(10, 200)
def test_burn_in_is_as_if_it_had_not_been_sampled(case: int, is_rooted: bool) -> None:
    runs, _ = sample(case, is_rooted)
    n = runs[0].trees.n_trees
    share = random.Random(case).choice([0.1, 0.25, 0.5])
    skipped = int(share * n)
    cut = [
        replace(run, values=run.values[skipped:], generations=run.generations[skipped:],
                trees=run.trees.part(skipped, n))
        for run in runs
    ]  # fmt: skip
    one, other = Posterior.of(runs, share), Posterior.of(cut, 0.0)
    np.testing.assert_array_equal(one.values, other.values)
    np.testing.assert_array_equal(one.generations, other.generations)

    def frequencies(posterior: Posterior) -> dict[Split, list[float]]:
        known = range(posterior.splits.n_splits)
        return {of_split(posterior, at): posterior.frequencies[at].tolist() for at in known}

    assert frequencies(one) == frequencies(other)
    assert one.consensus().newick() == other.consensus().newick()
    np.testing.assert_allclose(one.tree_lengths, other.tree_lengths)
    if is_rooted:
        np.testing.assert_allclose(np.sort(one.heights.clades), np.sort(other.heights.clades))


@ROOTED
@pytest.mark.cases(10, 200)
def test_what_users_ask_for_is_counted(case: int, is_rooted: bool) -> None:
    runs, texts = sample(case, is_rooted, 6)
    posterior = Posterior.of(runs, 0.0)
    trees = [splits(text, posterior.taxa, is_rooted) for text in texts]
    rng = random.Random(case)
    for _ in range(8):
        group = frozenset(rng.sample(posterior.taxa, rng.randint(2, 5 if is_rooted else 4)))
        side = group
        if not is_rooted and posterior.taxa[0] in group:
            side = frozenset(posterior.taxa) - group
        has = posterior.trees_with(posterior.find(posterior.bits_of(group)[None, :]))
        assert has.ravel().tolist() == [side in tree for tree in trees]
    users = [
        rng.choice(texts),
        grown(list(posterior.taxa), rng, is_rooted),
        posterior.consensus().newick(),
    ]
    for text in users:
        tree = read_clades(text, like=posterior.like)
        has = posterior.trees_with(posterior.find(posterior.tree_bits(tree)))
        wanted = splits(text, posterior.taxa, is_rooted).keys()
        assert has.ravel().tolist() == [wanted <= tree.keys() for tree in trees]


@ROOTED
def test_splits_have_two_taxa_on_either_side(is_rooted: bool) -> None:
    posterior = Posterior.of(sample(1, is_rooted, 6)[0], 0.0)
    for group in (["a"], ["zz"], [""], list(posterior.taxa)):
        with pytest.raises(InputError):
            posterior.bits_of(group)
    five = list(posterior.taxa[1:])
    if is_rooted:
        posterior.bits_of(five)
    else:
        with pytest.raises(InputError):
            posterior.bits_of(five)


def test_runs_of_other_lengths_are_cut_to_their_last_samples() -> None:
    runs, _ = sample(2, False, 5)
    longer = runs[0]
    n = longer.trees.n_trees
    shorter = replace(longer, name="other", values=longer.values[2:], trees=longer.trees.part(2, n))
    posterior = Posterior.of([longer, shorter], 0.0)
    assert posterior.values.shape == (2, 2, n - 2)
    np.testing.assert_array_equal(posterior.values[:, 0], posterior.values[:, 1])
    np.testing.assert_array_equal(posterior.frequencies[:, 0], posterior.frequencies[:, 1])
    assert any("the last" in text for text in posterior.notices)


def test_columns_of_one_run_alone_are_left_out() -> None:
    runs, _ = sample(3, False, 5)
    other = replace(runs[0], columns=("x", "z"))
    posterior = Posterior.of([runs[0], other], 0.0)
    assert posterior.columns == ("x",)
    assert "z not in all runs" in " ".join(posterior.notices)
    unlike = replace(other, columns=("u", "v"), trees=None)
    with pytest.raises(InputError, match="no parameter in common, and no trees"):
        Posterior.of([replace(runs[0], trees=None), unlike], 0.0)
    with pytest.raises(InputError, match="some runs have trees, others have none"):
        Posterior.of([runs[0], unlike], 0.0)


def test_values_that_are_not_finite_are_told_of_no_more() -> None:
    runs, _ = sample(3, False, 5)
    runs[0].values[1, 0] = -math.inf
    posterior = Posterior.of(runs, 0.0)
    assert posterior.varying.tolist() == [False, True]
    assert math.isnan(posterior.moments["x"].mean)
    assert not any(verdict.where == "x" for verdict in posterior.verdicts)


def test_nothing_is_left_behind_a_burn_in_of_all() -> None:
    runs, _ = sample(3, False, 5)
    with pytest.raises(InputError, match="no samples are left"):
        Posterior.of(runs, 1.0)


def test_trees_without_lengths_have_none() -> None:
    trees = read_clades("((a,b),(c,d),e);\n((a,c),(b,d),e);\n")
    posterior = Posterior.of(
        [RunSamples("r", (), np.empty((0, 0)), np.empty(0), trees, False)], 0.0
    )
    assert not posterior.has_lengths
    assert ":" not in posterior.mcc.newick()
    assert posterior.n_samples == 2
    assert posterior.splits.n_splits == 4


def test_roots_come_and_go() -> None:
    trees = read_clades("((a:1,b:2):3,c:4);\n(a:1,(b:2,c:3):4);\n")
    back = without_root(with_root(trees))
    assert isinstance(back, Clades)
    assert back.taxa == trees.taxa
    for name in ("order", "tip_lengths", "tree", "first", "last", "lengths"):
        np.testing.assert_array_equal(getattr(back, name), getattr(trees, name))


def test_sound_chains_converge_and_others_do_not() -> None:
    rng = np.random.default_rng(5)
    shapes = ["((a:1,b:1):1,c:1,(d:1,e:1):1);", "((a:1,c:1):1,b:1,(d:1,e:1):1);"]

    def runs(shares: list[float], shift: float = 0.0) -> list[RunSamples]:
        made = []
        for number, share in enumerate(shares):
            text = "\n".join(shapes[at] for at in (rng.random(1000) < share).astype(int))
            values = rng.normal(size=(1000, 1)) + shift * number
            like = read_clades("(a,b,c,d,e);")
            made.append(RunSamples(str(number), ("x",), values, np.arange(1000),
                            read_clades(text, like=like), False))  # fmt: skip
        return made

    sound = Posterior.of(runs([0.3, 0.3]), 0.0)
    assert sound.is_converged, sound.verdicts
    assert len(sound.verdicts) == 8
    shifted = Posterior.of(runs([0.3, 0.3], 1.0), 0.0)
    assert {verdict.rule for verdict in shifted.verdicts if not verdict.is_met} >= {
        "R-hat of parameters", "distributions of parameters between runs"}  # fmt: skip
    apart = Posterior.of(runs([0.2, 0.6]), 0.0)
    failed = {verdict.rule: verdict.where for verdict in apart.verdicts if not verdict.is_met}
    assert failed.keys() >= {"ASDSF", "R-hat of splits", "frequencies of splits between runs"}
    assert set(failed["R-hat of splits"].split(",")) in ({"a", "b"}, {"a", "c"})


def test_few_samples_are_not_converged() -> None:
    trees = read_clades("((a:1,b:1):1,c:1,d:1);\n" * 3)
    run = RunSamples("r", (), np.empty((0, 0)), np.empty(0), trees, False)
    assert not Posterior.of([run], 0.0).is_converged
    assert not Posterior.of([run, run], 0.0).is_converged  # however small the ASDSF
    many = replace(run, trees=read_clades("((a:1,b:1):1,c:1,d:1);\n" * 400))
    assert not Posterior.of([many], 0.0).is_converged
    assert Posterior.of([many, many], 0.0).is_converged


def test_a_bare_tree_has_no_lengths() -> None:
    posterior = Posterior.of(sample(4, True, 5)[0], 0.0)
    bare = SummaryTree.bare(posterior, posterior.splits_of(0))
    assert ":" not in bare.newick({taxon: str(taxon) for taxon in range(5)})


def test_a_run_without_parameters_is_told_of() -> None:
    runs, _ = sample(3, is_rooted=False)
    while len(runs) < 2:
        runs.append(replace(runs[0], name="run1"))
    last = replace(runs[-1], columns=(), values=np.empty((0, 0)), generations=np.empty(0))
    for several in ([*runs[:-1], last], [last, *runs[:-1]]):
        posterior = Posterior.of(several, 0.0)
        assert not posterior.columns
        assert posterior.notices == (
            f"{last.name}: no parameters, so those of other runs are left out",
        )
