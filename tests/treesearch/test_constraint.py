"""Forbidden regrafts against trees that really make the move; constraint trees from Newick."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

from mltree.data.alignments import Alignment
from mltree.data.alphabet import DNA
from mltree.data.patterns import compress
from mltree.fit.settings import PerturbationSettings
from mltree.system.errors import InputError
from mltree.tree.moves import spr
from mltree.tree.parsimony import parsimony_score, parsimony_trees
from mltree.tree.splits import same_topology
from mltree.tree.topology import random_topology
from mltree.treesearch.checkpoint import CandidateTree
from mltree.treesearch.constraint import (
    Constraint,
    constrained_start,
    read_constraint,
    tips_behind_edges,
)
from mltree.treesearch.search_context import perturbed_copies
from mltree.treesearch.spr import Neighbourhood

TAXA = tuple("abcdefghij")
TEXT = "((a,b,(c,d)),(e,f),g,h);"


def members(constraint: Constraint) -> set[frozenset[str]]:
    return {frozenset(TAXA[t] for t in np.flatnonzero(side)) for side in constraint.one}


def test_reads_the_groups_of_a_tree_with_polytomies() -> None:
    constraint = read_constraint(TEXT, TAXA)
    assert members(constraint) == {
        frozenset("efgh"),  # the side without the first taxon
        frozenset("cd"),
        frozenset("ef"),
    }
    assert not (constraint.one | constraint.other)[:, [8, 9]].any()


def test_labels_lengths_and_roots_change_nothing() -> None:
    other = read_constraint("(((a:1,b:2)90:1,(d,c)'x y':1):1,((f,e)x:0.5,(g,h)));", TAXA)
    assert members(other) >= members(read_constraint(TEXT, TAXA))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("((a,b),(c,z));", "'z'.*not in the alignment"),
        ("((a,b),(c,a));", "'a'.*twice"),
        ("(a,b,c,d);", "groups no taxa"),
        ("a;", "groups no taxa"),
        ("();", "a tip without a name"),
        ("((),());", "a tip without a name"),
        ("((a,b),(c,));", "a tip without a name"),
        ("((a,b),(:1,d));", "a tip without a name"),
        (" ;", "a tip without a name"),
        ("((a,b),c,d);\n((e,f),g,h);", "line 2: a second constraint tree"),
        ("((a,b):1_0,c,d);", "'1_0' is not a number"),
        ("((a,b):,c,d);", "no branch length"),
        ("none.nwk", "none.nwk: no such file"),
        ("((a,b),(c,d);", "parenth|does not end"),
    ],
)
def test_refuses_what_it_cannot_use(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_constraint(text, TAXA)


@pytest.mark.cases(10, 500)
def test_mutated_constraints_are_constraints_or_input_errors(
    case: int, mutated: Callable[[bytes, random.Random], bytes]
) -> None:
    rng = random.Random(case)
    for _ in range(20):
        text = mutated(TEXT.encode(), rng).decode("utf-8", "replace") + ";"
        with suppress(InputError):
            constraint = read_constraint(text, TAXA)
            assert (constraint.one.sum(axis=1) > 1).all()
            assert (constraint.other.sum(axis=1) > 1).all()
            assert not (constraint.one & constraint.other).any()


@pytest.mark.parametrize("seed", range(5))
def test_starts_satisfy_the_constraint(seed: int) -> None:
    constraint = read_constraint(TEXT, TAXA)
    tree = constrained_start(constraint, np.random.default_rng(seed))
    tree.validate()
    assert constraint.satisfied(tree)


@pytest.mark.cases(10, 200)
def test_trees_by_parsimony_satisfy_the_constraint_and_score_as_without_it(case: int) -> None:
    rng = np.random.default_rng(case)
    characters = rng.choice(np.frombuffer(b"ACGT-", np.uint8), (len(TAXA), 40))
    patterns = compress(Alignment(TAXA, characters, "random", DNA))
    constraint = read_constraint(TEXT, TAXA)
    most = (patterns.n_sites, 10**9)[case % 2]
    sites = constraint.parsimony_sites([patterns], most).packed()
    assert sites.word_weights.max() * constraint.n_splits < 2**31
    trees = parsimony_trees(sites, 2, rng)
    assert all(constraint.satisfied(tree) for tree in trees)
    others = constraint.or_drawn([*trees, random_topology(len(TAXA), rng)], [rng] * 3)
    assert all(constraint.satisfied(tree) for tree in others)
    assert others[:2] == trees
    scores = [parsimony_score(tree, patterns) for tree in trees]
    assert [parsimony_score(tree, sites) for tree in trees] == scores
    assert min(scores) <= parsimony_score(constrained_start(constraint, rng), patterns)


@pytest.mark.parametrize("seed", range(3))
def test_forbids_exactly_the_moves_that_break_a_split(seed: int) -> None:
    constraint = read_constraint(TEXT, TAXA)
    tree = constrained_start(constraint, np.random.default_rng(seed))
    found = Neighbourhood(tree)
    found.extend(25)
    forbidden = constraint.forbidden(tree, found.prunes)
    answers = []
    for c in range(found.size):
        moved = tree.copy()
        spr(moved, int(found.prune[c]), int(found.target[c]))
        answers.append(forbidden[found.number[c], tree.edge[found.target[c]]])
        assert answers[-1] == (not constraint.satisfied(moved))
    assert 0 < sum(answers) < found.size


def test_perturbation_keeps_every_split() -> None:
    constraint = read_constraint(TEXT, TAXA)
    tree = constrained_start(constraint, np.random.default_rng(1))
    tree.lengths[tree.inner_edges[::2]] = 1e-6
    settings = PerturbationSettings(copies=20)
    copies = perturbed_copies(
        CandidateTree(tree, 0.0, "start"), settings, 0.5, np.random.default_rng(2), constraint
    )
    assert all(constraint.satisfied(copy.tree) for copy in copies)


@pytest.mark.cases(5, 60)
def test_copies_that_are_resolved_anew_keep_every_split(case: int) -> None:
    """Where pooled trees differ, whose own splits need not be the constraint's."""
    rng = np.random.default_rng(case)
    constraint = read_constraint(TEXT, TAXA)
    tree = constrained_start(constraint, rng)
    unlike = [random_topology(tree.n_tips, rng) for _ in range(3)]
    settings = PerturbationSettings(copies=10, resolves=True)
    best = CandidateTree(tree, 0.0, "start")
    copies = perturbed_copies(best, settings, 0.5, rng, constraint, unlike)
    assert all(constraint.satisfied(copy.tree) for copy in copies)
    assert any(not same_topology(copy.tree, tree) for copy in copies)


def test_a_tree_satisfies_its_own_splits_only() -> None:
    rng = np.random.default_rng(8)
    tree, other = random_topology(12, rng), random_topology(12, rng)
    sides = tips_behind_edges(tree)[tree.inner_edges]
    constraint = Constraint(sides, ~sides)
    assert constraint.satisfied(tree)
    assert not constraint.satisfied(other)
