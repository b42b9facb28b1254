"""Engines and random problems that the tests of the likelihood share.

A test that takes ``open_engine`` runs on the reference and on every OpenCL device that is found,
in several layouts; one that takes ``open_device`` runs on the devices only. Nothing here knows
which devices there are.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from simulated import (  # noqa: F401
    case,
    make_case,
    make_parts,
    make_rugged,
    part_alone,
    textbook_lnls,
)
from verifier import VerifiedEngine

from mltree.data.alphabet import DNA, PROTEIN, Alphabet
from mltree.data.patterns import Patterns
from mltree.device.discovery import DeviceInfo, find_devices
from mltree.device.layout import Layout, gpu_layout
from mltree.device.layout_choice import choose_layout
from mltree.device.session import Session
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.models.eigen import ModelArrays, decompose, random_reversible, site_systems
from mltree.models.rates import gamma_rates
from mltree.program.cases import Case
from mltree.program.engine import Engine, ReferenceEngine
from mltree.tree.topology import Tree, random_topology

os.environ.setdefault("DONT_USE_MPI", "1")
"""For cogent3, whose import waits for ever where MPICH is installed and no launcher has begun."""

FUZZING = "MLTREE_FUZZ" in os.environ
"""Set by ``make fuzz``: tests of random cases run their long versions."""

TURNS = count(1)
"""Numbers of the tests of this process."""

settings.register_profile("mltree", deadline=None)
settings.register_profile("fuzz", deadline=None, max_examples=2000)
settings.load_profile("fuzz" if FUZZING else "mltree")
"""No test is timed: the machines that run them are shared."""

BOUNDS = (1e-6, 100.0)
"""Expected substitutions per site: the defaults of a search."""

DEVICES = find_devices()

LAYOUT_PATTERNS = 1024
"""Layouts are chosen for as many patterns, whatever a test has, so that few builds serve all."""

CPU_SHAPES = ("vw1", "native")
GPU_SHAPES = ("native", "wide")
"""RAxML's AVX layout; what a run picks for little data; and for much. (A work-item for every lane
is no layout for a CPU: PoCL compiles it for minutes.)"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``@pytest.mark.cases(short, long)``: the argument ``case`` takes so many seeds."""
    marker = metafunc.definition.get_closest_marker("cases")
    if marker is not None:
        short, long = marker.args
        metafunc.parametrize("case", range(long if FUZZING else short))


@pytest.fixture(autouse=True, scope="session")
def _calibrations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Layouts by the rules, whatever was measured on this machine."""
    folder = tmp_path_factory.mktemp("calibrations")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("mltree.device.layout_choice.cache_folder", lambda: folder / "none")
        yield folder


@pytest.fixture(autouse=True)
def _no_calibrations(_calibrations: Path) -> Iterator[None]:
    """No test leaves the next one measurements."""
    folder = _calibrations / str(next(TURNS))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("mltree.device.layout_choice.cache_folder", lambda: folder)
        yield


@pytest.fixture(autouse=True)
def _same_environment() -> Iterator[None]:
    """No test leaves the next one variables: what ``--threads`` tells drivers, say."""
    before = dict(os.environ)
    yield
    after = dict(os.environ)
    for name in after.keys() - before.keys():
        del os.environ[name]
    os.environ.update({name: text for name, text in before.items() if after.get(name) != text})


@pytest.fixture(scope="session")
def mutated() -> Callable[[bytes, random.Random], bytes]:
    """mutated(text, rng): the text with a few pieces lost, doubled, moved, cut off or replaced."""

    def change(text: bytes, rng: random.Random) -> bytes:
        for _ in range(rng.choice([1, 1, 1, 2, 5])):
            start, end = sorted(rng.randrange(len(text) + 1) for _ in range(2))
            end = min(end, start + rng.choice([1, 1, 3, 10**9]))
            piece = text[start:end]
            instead = rng.choice(
                [b"", piece * 2, piece[::-1], rng.randbytes(rng.randint(1, 3)), rng.choice(TRAPS)]
            )
            text = text[:start] + instead + text[end:]
        return text

    return change


TRAPS = [
    *(bytes([byte]) for byte in b"\n\r\t\0\xff(),:;'\"[]{}+/-.>*0"),
    *(b"  ", b"1e308", b"-1", b"nan", b"1_0", b"9" * 5000, "\u0663".encode(), "\u2028".encode()),
    *(b"4 8\n", b"#NEXUS", b"\x1f\x8b", b"BZh"),
]
"""What parsers stumble over."""


@dataclass(frozen=True)
class Problem:
    """Patterns, with trees and a model for each to score them with."""

    patterns: Patterns
    trees: list[Tree]
    models: list[ModelArrays]

    @property
    def tree(self) -> Tree:
        return self.trees[0]

    @property
    def model(self) -> ModelArrays:
        return self.models[0]

    @property
    def cases(self) -> list[Case]:
        return [Case((model,)) for model in self.models]

    @property
    def case(self) -> Case:
        return self.cases[0]

    @property
    def categories(self) -> int:
        return self.model.n_categories


def layout_of(info: DeviceInfo, shape: str, patterns: Patterns, categories: int) -> Layout:
    alphabet = patterns.alphabet
    size = (alphabet.n_states, alphabet.n_codes, categories)
    if shape == "wide":
        return gpu_layout(*size, 32, False, max(1, min(4, 512 // (32 * categories))))
    return choose_layout(info, *size, LAYOUT_PATTERNS, vw=1 if shape == "vw1" else None)


def engine_names(*, reference: bool) -> list[str]:
    devices = [
        f"{info.index}-{shape}"
        for info in DEVICES
        for shape in (CPU_SHAPES if info.is_cpu else GPU_SHAPES)
        if info.has_fp64
    ]
    return ["reference", *devices] if reference else devices


def opener(name: str) -> Callable[..., Engine]:
    def open_named(patterns: Patterns, categories: int, **options: Any) -> Engine:
        bounds, systems = options.pop("bounds", BOUNDS), options.pop("systems", 1)
        if name == "reference":
            return ReferenceEngine(patterns, categories, bounds, systems)
        index, shape = name.split("-")
        info = DEVICES[int(index)]
        layout = options.pop("layout", None) or layout_of(info, shape, patterns, categories)
        parted = options.pop("parted", False)
        layout = replace(layout, systems=systems, parted=parted).of(patterns)
        return Session(info.handle, patterns, layout, bounds, **options)

    return open_named


@pytest.fixture(scope="session", params=engine_names(reference=True))
def open_engine(request: pytest.FixtureRequest) -> Callable[..., Engine]:
    """open_engine(patterns, categories): the reference, or a device in some layout."""
    return opener(request.param)


@pytest.fixture(scope="session", params=engine_names(reference=False))
def open_device(request: pytest.FixtureRequest) -> Callable[..., Session]:
    """open_device(patterns, categories, **session options): a device in some layout."""
    return opener(request.param)  # type: ignore[return-value]


@pytest.fixture(scope="session", params=[f"{info.index}-native" for info in DEVICES])
def open_native(request: pytest.FixtureRequest) -> Callable[..., Session]:
    """As ``open_device``, in the layout that a run picks: for what no layout changes."""
    return opener(request.param)  # type: ignore[return-value]


@pytest.fixture(scope="session")
def likelihood() -> Callable[..., TreeLikelihood]:
    """likelihood(opener, problem, **session options): the problem's patterns on an engine that
    verifies every program before it runs."""

    def make(open_: Callable[..., Engine], problem: Problem, **options: Any) -> TreeLikelihood:
        bounds = options.get("bounds", BOUNDS)
        engine = open_(problem.patterns, problem.categories, **options)
        return TreeLikelihood(VerifiedEngine(engine, problem.patterns.n_tips), bounds)

    return make


@pytest.fixture(scope="session")
def reference() -> Callable[..., TreeLikelihood]:
    """reference(problem): the problem's patterns on the NumPy reference."""

    def make(problem: Problem, bounds: tuple[float, float] = BOUNDS) -> TreeLikelihood:
        return TreeLikelihood(ReferenceEngine(problem.patterns, problem.categories, bounds), bounds)

    return make


def alphabet_of(states: int) -> Alphabet:
    if states in {4, 20}:
        return DNA if states == 4 else PROTEIN
    letters = "".join(chr(33 + n) for n in range(states + 2) if chr(33 + n) not in "-?")[:states]
    return Alphabet.of_states(f"{states} states", letters)


def random_codes(
    alphabet: Alphabet, tips: int, patterns: int, rng: np.random.Generator
) -> np.ndarray:
    """u8 [T, L]: columns from invariant to noise, with gaps and ambiguities."""
    single = np.flatnonzero(alphabet.tip_table.sum(axis=1) == 1)
    codes = rng.choice(single, (1, patterns)).repeat(tips, axis=0)
    noise = rng.random((tips, patterns)) < rng.choice([0.0, 0.2, 1.0], patterns)
    codes = np.where(noise, rng.choice(single, codes.shape), codes)
    unsure = rng.random(codes.shape) < 0.05
    codes = np.where(unsure, rng.integers(1, alphabet.n_codes, codes.shape), codes)
    codes = np.where(rng.random(codes.shape) < 0.1, alphabet.gap_code, codes)
    return codes.astype(np.uint8)


def gamma_model(
    states: int, alpha: float, categories: int, invariant: float, rng: np.random.Generator
) -> ModelArrays:
    """Random exchangeabilities under Γ, and +I as one more category where invariant > 0."""
    gammas = categories - (invariant > 0)
    rates = gamma_rates(alpha, gammas, "mean") / (1 - invariant)
    weights = np.full(gammas, (1 - invariant) / gammas)
    if invariant > 0:
        rates, weights = np.append(rates, 0.0), np.append(weights, invariant)
    exchangeabilities = np.exp(rng.normal(size=states * (states - 1) // 2))
    return decompose(exchangeabilities, rng.dirichlet(np.full(states, 5.0)), rates, weights)


@pytest.fixture(scope="session")
def make_problem() -> Callable[..., Problem]:
    """make_problem(tips, patterns, ...): a random one, the same for the same arguments."""

    def make(
        tips: int = 8,
        patterns: int = 40,
        *,
        states: int = 4,
        categories: int = 4,
        trees: int = 1,
        seed: int = 1,
        alpha: float | None = None,
        invariant: float = 0.0,
        own_frequencies: bool = False,
    ) -> Problem:
        rng = np.random.default_rng([seed, tips, patterns, states, categories])
        alphabet = alphabet_of(states)
        data = Patterns(
            taxa=tuple(f"t{tip:04d}" for tip in range(tips)),
            codes=random_codes(alphabet, tips, patterns, rng),
            weights=rng.integers(1, 9, patterns).astype(np.float64),
            site_pattern=np.arange(patterns, dtype=np.int32),
            alphabet=alphabet,
        )
        found = [random_topology(tips, rng) for _ in range(trees)]
        for tree in found:
            tree.lengths[:] = rng.exponential(0.15, tree.n_edges) + 1e-4
        if alpha is None:
            models = [random_reversible(states, rng, categories=categories) for _ in found]
        else:
            models = [gamma_model(states, alpha, categories, invariant, rng) for _ in found]
        if own_frequencies:
            exchangeabilities = np.exp(rng.normal(size=states * (states - 1) // 2))
            frequencies = rng.dirichlet(np.full(states, 0.5), patterns)
            data = replace(data, systems=site_systems(exchangeabilities, frequencies))
        return Problem(data, found, models)

    return make
