"""Chains shared out: the same bits on any devices and ranks; parts of unlike data beside others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from conftest import DEVICES, layout_of
from launches import Beside

from mltree.data.alphabet import BINARY, DNA, PROTEIN, Alphabet
from mltree.data.codons import codon_alphabet
from mltree.data.patterns import Ascertainment, Correction, Patterns, with_unseen
from mltree.device.session import Session
from mltree.likelihood.ascertainment import AscertainedLikelihood
from mltree.likelihood.joint import joined_patterns
from mltree.likelihood.left_out import LeftOut, ascertained_parts
from mltree.likelihood.likelihood import Columns, TreeLikelihood
from mltree.models import eigen, portable
from mltree.models.grammar import parse_model
from mltree.models.partitioned import Linkage, PartitionModel
from mltree.program.cases import Case
from mltree.program.contract import Chain
from mltree.program.engine import ReferenceEngine
from mltree.sampling.model_space import ModelSpace
from mltree.sampling.priors import ExponentialLengths, Priors
from mltree.sampling.sampler import Sampler, SamplerSettings, tree_of
from mltree.sampling.shares import ChainData, ChainShares

BOUNDS = (1e-8, 100.0)
PRIORS = Priors(branch_lengths=ExponentialLengths(8.0))

LEWIS = Ascertainment(Correction.LEWIS)
STAMATAKIS = Ascertainment(Correction.STAMATAKIS, (30.0, 12.0))


def random_patterns(
    tips: int, sites: int, alphabet: Alphabet, rng: np.random.Generator, *of_parts: Ascertainment
) -> Patterns:
    """Distinct columns of random weights; those of a corrected part are variable."""
    certain = alphabet.certain_codes
    root = rng.choice(certain, sites)
    codes = np.where(rng.random((tips, sites)) < 0.3, rng.choice(certain, (tips, sites)), root)
    if of_parts:
        codes = codes[:, (codes != codes[0]).any(axis=0)]
    else:
        codes[0, ::5] = alphabet.gap_code
    codes, weights = np.unique(codes.astype(np.uint8), axis=1, return_counts=True)
    names = tuple(f"t{n}" for n in range(tips))
    places = np.arange(codes.shape[1], dtype=np.int32)
    made = Patterns(names, np.ascontiguousarray(codes), weights * 1.0, places, alphabet)
    return with_unseen(made, of_parts) if of_parts else made


def open_(patterns: Patterns, space: ModelSpace) -> ReferenceEngine:
    return ReferenceEngine(patterns, space.shape[1], BOUNDS, space.shape[0])


def open_device(patterns: Patterns, space: ModelSpace) -> Session:
    systems, categories = space.shape
    layout = layout_of(DEVICES[0], "native", patterns, categories).of(patterns)
    layout = replace(layout, systems=systems, parted=True)
    return Session(DEVICES[0].handle, patterns, layout, BOUNDS)


def total_evidence(
    rng: np.random.Generator, tips: int = 5, about: Ascertainment = LEWIS
) -> tuple[list[Patterns], PartitionModel]:
    """DNA, binary characters that vary, and amino acids."""
    groups = [
        random_patterns(tips, 14, DNA, rng),
        random_patterns(tips, 12, BINARY, rng, about),
        random_patterns(tips, 6, PROTEIN, rng),
    ]
    models = (
        parse_model("GTR{1/2/1.5/0.7/3/1}+FU{0.4/0.3/0.2/0.1}+G2{0.6}", DNA),
        parse_model("BIN+FU{0.3/0.7}", BINARY),
        parse_model("LG+I{0.2}", PROTEIN),
    )
    return groups, PartitionModel(models, ("dna", "binary", "protein"), scalers=np.ones(3))


def sampler_of(
    groups: list[Patterns], model: PartitionModel, devices: int = 1, ranks: Any = None,
    opened: Callable[..., Any] = open_, **settings: Any,
) -> Sampler:  # fmt: skip
    space, patterns, parts = ModelSpace(model, PRIORS), joined_patterns(groups), None
    if found := ascertained_parts(groups):
        parts = LeftOut(found)
    data = ChainData(
        tips=patterns.n_tips,
        space=space,
        weights=patterns.weights,
        left_out=() if parts is None else tuple(parts.columns.tolist()),
    )

    def engines() -> list[ReferenceEngine]:
        return [opened(patterns, space) for _ in range(devices)]

    among = {} if ranks is None else {"ranks": ranks, "elsewhere": engines}
    shape = {"runs": 2, "rungs": 3, "seed": 5, "rests": True, **settings}
    return Sampler(
        ChainShares(engines(), data, **among),
        data,
        PRIORS,
        SamplerSettings(**shape),
        left_out=parts,
    )


@pytest.mark.parametrize("about", [LEWIS, STAMATAKIS], ids=["lewis", "stamatakis"])
@pytest.mark.cases(2, 10)
def test_lnl_is_that_of_each_data_type_alone(case: int, about: Ascertainment) -> None:
    """Corrected, whatever the heat, and whatever numbers of sites left out were drawn last."""
    groups, model = total_evidence(np.random.default_rng(case), 4 + case, about)
    sampler = sampler_of(groups, model, opened=open_device if case else open_)
    for _ in range(2):
        sampler.iterate()
    arrays = model.arrays()
    wanted = np.zeros(len(sampler.words))
    trees = [tree_of(row) for row in sampler.words]
    for group, own in zip(groups, arrays, strict=True):
        engine = ReferenceEngine(group, own.n_categories, BOUNDS)
        engine.load_models([own])
        columns = Columns.of([group])
        likelihood = TreeLikelihood(engine, BOUNDS, columns)
        if group.unseen:
            parts = ascertained_parts([group])
            likelihood = AscertainedLikelihood(engine, BOUNDS, columns, parts)
        wanted += likelihood.log_likelihoods(trees, [Case((own,))] * len(trees))
    np.testing.assert_allclose(sampler.words[:, Chain.LNL], wanted, rtol=1e-10)


@pytest.mark.parametrize(("devices", "ranks"), [(2, 1), (3, 1), (1, 2), (2, 3), (1, 8)])
def test_no_number_of_devices_or_ranks_changes_a_bit(devices: int, ranks: int) -> None:
    groups, model = total_evidence(np.random.default_rng(3), 4)
    models, shares = (parse_model("HKY+G2", DNA), parse_model("BIN+FO", BINARY)), np.full(2, 0.5)
    model = PartitionModel(models, ("a", "b"), Linkage.SCALED, np.ones(2), shares)
    groups = groups[:2]
    alone = sampler_of(groups, model, burn_in=6)
    among = Beside(ranks) if ranks > 1 else None
    shared = sampler_of(groups, model, devices, among, burn_in=6)
    for _ in range(9):
        alone.advance()
        shared.advance()
    one, other = alone.state(), shared.state()
    for name, value in one.items():
        assert np.array_equal(value, other[name], equal_nan=True), name
    assert (alone.points != alone.space.start).any()


def test_dear_models_of_all_devices_are_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eigen systems and series of a launch of codon models, with the bits of one device."""
    found: list[tuple[str, int]] = []

    def counted(formula: Any, *arrays: Any) -> Any:
        found.append((formula.__name__, len(arrays[0])))
        return formula(*arrays)

    monkeypatch.setattr(portable, "on_device", counted)
    alphabet = codon_alphabet()
    rng = np.random.default_rng(6)
    groups = [random_patterns(4, 5, alphabet, rng)]
    model = PartitionModel((parse_model("GY+FE", alphabet),))
    words, systems = [], []
    for devices in (1, 3):
        monkeypatch.setattr(eigen, "_known", {})
        monkeypatch.setattr(eigen, "_known_series", {})
        found.clear()
        sampler = sampler_of(groups, model, devices, rests=False, rungs=2)
        sampler.iterate()
        words.append(sampler.words)
        systems.append([size for name, size in found if name == "jacobi"])
    assert np.array_equal(*words)
    assert sorted(systems[0]) == sorted(systems[1])
    assert ("uniformised", len(words[0])) in found


def test_a_resumed_run_draws_the_same_sites_left_out() -> None:
    groups, model = total_evidence(np.random.default_rng(4), 4)
    model = PartitionModel((parse_model("BIN+FO", BINARY),))
    make = partial(sampler_of, groups[1:2], model, burn_in=5)
    straight, resumed = make(), make()
    for number in range(9):
        straight.advance()
        resumed.advance()
        if number in (1, 6):
            state = resumed.state()
            resumed = make()
            resumed.restore(state)
    one, other = straight.state(), resumed.state()
    for name, value in one.items():
        assert np.array_equal(value, other[name], equal_nan=True), name
