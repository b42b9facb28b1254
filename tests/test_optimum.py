"""A run's optimum: never below what another optimiser finds, and the same bits everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import OptimizeResult, minimize

from mltree.alignment.alphabet import DNA, PROTEIN, Alphabet
from mltree.alignment.patterns import Patterns
from mltree.events import Event, StoppedShort
from mltree.likelihood.api import Likelihood
from mltree.likelihood.cases import Case
from mltree.model.grammar import parse_model
from mltree.model.parameters import arrays_at, bounds, vector, with_vector
from mltree.model.partitioned import alone
from mltree.model.substitution import Model
from mltree.placement import Resources, place
from mltree.run import evaluate
from mltree.simulation import evolve
from mltree.tree.random_trees import uniform_tree
from mltree.tree.topology import Tree

FUZZING = "MLTREE_FUZZ" in os.environ
ROOT = Path(__file__).parents[1]

BOUNDS = (1e-6, 100.0)
"""Expected substitutions per site."""

TOLERANCE = 0.01
"""lnL that a run may end below the best of the independent starts."""

RIDGE = 0.05
"""The same under free rates, which trade rates and weights along ridges that hardly rise."""

FEWEST_SITES = 200
"""With 100 to 150 sites whose rates differ by four decades, lnL has maxima of its own in branch
lengths (2 of 40 such cases: 0.04 and 0.8 apart), and which one a climb reaches is chance."""

STARTS = 10
PROMISING = STARTS if FUZZING else 2
"""Starts that the independent optimiser follows to the end, after a look at all of them."""

LOOK = 10
"""Iterations of that look."""


@dataclass(frozen=True)
class Task:
    """Data, their tree and the model to be fitted, on an engine."""

    tree: Tree
    model: Model
    likelihood: Likelihood
    text: str


def make_task(tree: Tree, true: Model, fitted: str, sites: int, rng: np.random.Generator) -> Task:
    """Sites that evolve under the true model, to be fitted by another one."""
    patterns = patterns_of(evolve(tree, true.arrays(), sites, rng), true.alphabet)
    model = parse_model(fitted, true.alphabet).with_empirical_frequencies(patterns)
    placement = place(Resources(), patterns, model.arrays().n_categories, BOUNDS)
    return Task(tree, model, placement.likelihood(patterns), f"{fitted}, {tree.n_tips} x {sites}")


def patterns_of(states: np.ndarray, alphabet: Alphabet) -> Patterns:
    """u8 [T, sites] of states as distinct columns."""
    columns, index, counts = np.unique(states, axis=1, return_inverse=True, return_counts=True)
    single = np.flatnonzero(alphabet.tip_table.sum(axis=1) == 1)
    code = single[alphabet.tip_table[single].argmax(axis=1).argsort()]
    return Patterns(
        taxa=tuple(f"t{n}" for n in range(len(states))),
        codes=np.ascontiguousarray(code[columns].astype(np.uint8)),
        weights=counts.astype(np.float64),
        site_pattern=index.ravel().astype(np.int32),
        alphabet=alphabet,
    )


def random_task(seed: int) -> Task:
    """Any model on any data: alpha 0.05 to 100, p to 0.8, rates over four decades, and misfits."""
    rng = np.random.default_rng([seed, 12])
    largest, longest, proteins = (60, 5000, 0.1) if FUZZING else (6, 1000, 0.02)
    taxa = int(np.exp(rng.uniform(np.log(4), np.log(largest + 1))))
    sites = int(np.exp(rng.uniform(np.log(FEWEST_SITES), np.log(longest))))
    tree = uniform_tree(taxa, float(np.exp(rng.uniform(np.log(0.03), np.log(0.5)))), rng)
    invariant, gamma, estimated = (rng.random() < share for share in (0.5, 0.8, 0.4))
    alpha, p = np.exp(rng.uniform(np.log(0.05), np.log(100))), rng.uniform(0.0, 0.8)
    among = f"+IU{{{p}}}" * invariant + f"+G4m{{{alpha}}}" * gamma
    # Every third model lacks what the data have, or has what they lack.
    fits_invariant, fits_gamma = (x != (rng.random() < 0.3) for x in (invariant, gamma))
    fitted = "+I" * fits_invariant + "+G4" * fits_gamma
    if rng.random() < proteins:
        name = rng.choice(["LG", "WAG", "JTT"])
        true = parse_model(f"{name}{among}", PROTEIN)
        small = estimated and taxa < 7
        return make_task(tree, true, f"{name}{'+FO' * small}{fitted}", min(sites, 250), rng)
    rates = "/".join(map(str, 10 ** rng.uniform(-2, 2, 6)))
    frequencies = "/".join(map(str, 0.98 * rng.dirichlet(np.full(4, 1.5)) + 0.005))
    true = parse_model(f"GTR{{{rates}}}+FU{{{frequencies}}}{among}", DNA)
    name = rng.choice(["GTR", "GTR", "HKY", "TN93", "TIM2uf"])
    return make_task(tree, true, f"{name}+F{'CO'[estimated]}{fitted}", sites, rng)


def free_rates_task(seed: int) -> Task:
    """Free rates, beside invariable sites or not, on data with more classes of sites, or fewer."""
    rng = np.random.default_rng([seed, 13])
    largest, longest = (30, 3000) if FUZZING else (6, 600)
    taxa = int(np.exp(rng.uniform(np.log(4), np.log(largest + 1))))
    sites = int(np.exp(rng.uniform(np.log(FEWEST_SITES), np.log(longest))))
    tree = uniform_tree(taxa, float(np.exp(rng.uniform(np.log(0.05), np.log(0.5)))), rng)
    classes = int(rng.integers(2, 6))
    rates = "/".join(map(str, 10 ** rng.uniform(-2, 1, classes)))
    weights = "/".join(map(str, rng.dirichlet(np.full(classes, 2.0))))
    among = f"+R{classes}{{{rates}}}{{{weights}}}" + f"+IU{{{rng.uniform(0, 0.5)}}}" * (
        seed % 3 == 0
    )
    true = parse_model(f"HKY{{1/3}}+FU{{0.3/0.2/0.2/0.3}}{among}", DNA)
    fitted = f"{rng.choice(['HKY+FC', 'JC', 'K80'])}{'+I' * (seed % 2)}+R{2 + seed % 4}"
    return make_task(tree, true, fitted, sites, rng)


class Joint:
    """Minus lnL of model and lengths together, on log scales, with its gradient: for SciPy."""

    def __init__(self, task: Task) -> None:
        self.task = task
        edges = [tuple(np.log(BOUNDS))] * task.tree.n_edges
        self.bounds = [*bounds(task.model), *edges]
        self.parameters = len(self.bounds) - len(edges)

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        task, n = self.task, self.parameters
        tree = Tree(task.tree.twin, task.tree.edge, np.exp(x[n:]), task.tree.n_tips)
        step = 1e-5
        steps = np.concatenate([step * np.eye(n), -step * np.eye(n)])
        cases = [Case((arrays,)) for arrays in arrays_at(task.model, x[:n] + steps)]
        up, down = (
            np.split(task.likelihood.log_likelihoods([tree] * 2 * n, cases), 2) if n else ([], [])
        )
        here = Case((with_vector(task.model, x[:n]).arrays(),))
        lnl, slopes, _ = task.likelihood.derivatives(tree, here)
        gradient = np.append(np.subtract(up, down) / (2 * step), slopes * tree.lengths)
        return -lnl, -gradient

    def climb(self, x: np.ndarray, iterations: int) -> OptimizeResult:
        return minimize(
            self, x, jac=True, method="L-BFGS-B", bounds=self.bounds,
            options={"maxiter": iterations, "maxcor": 20, "ftol": 1e-10},
        )  # fmt: skip

    def random_start(self, rng: np.random.Generator) -> np.ndarray:
        low, high = np.clip(np.array(self.bounds).reshape(-1, 2).T, -4.0, 4.0)
        start = rng.uniform(low, high)
        start[self.parameters :] = np.log(rng.uniform(0.01, 1.0, self.task.tree.n_edges))
        return start


def best_of_random_starts(task: Task, rng: np.random.Generator) -> OptimizeResult:
    joint = Joint(task)
    looks = [joint.climb(joint.random_start(rng), LOOK) for _ in range(STARTS)]
    promising = sorted(looks, key=lambda found: found.fun)[:PROMISING]
    return min((joint.climb(found.x, 1000) for found in promising), key=lambda found: found.fun)


def fit(task: Task) -> tuple[float, Model, list[Event]]:
    """What ``mltree evaluate`` finds from its defaults."""
    tree = task.tree.copy()
    tree.lengths[:] = 0.1
    events: list[Event] = []
    found = evaluate(
        task.likelihood, tree, alone(task.model), events.append,
        optimise_parameters=True, optimise_lengths=True,
    )  # fmt: skip
    return found.lnl, found.model.lone, events


def warnings_in(events: Iterable[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, StoppedShort)]


@pytest.mark.cases(40, 300)
def test_no_random_start_ends_above_the_default_one(case: int) -> None:
    problem = random_task(case)
    lnl, model, events = fit(problem)
    best = best_of_random_starts(problem, np.random.default_rng(case))
    there = with_vector(problem.model, best.x[: len(vector(model))])
    assert lnl > -best.fun - TOLERANCE, f"{problem.text}: {vector(model)}, not {vector(there)}"
    assert not warnings_in(events)


@pytest.mark.cases(4, 200)
def test_no_random_start_ends_above_the_default_one_under_free_rates(case: int) -> None:
    problem = free_rates_task(case)
    lnl, model, _ = fit(problem)
    best = best_of_random_starts(problem, np.random.default_rng(case))
    there = with_vector(problem.model, best.x[: len(vector(model))])
    assert lnl > -best.fun - RIDGE, f"{problem.text}: {vector(model)}, not {vector(there)}"


def look_alike(name: str) -> Task:
    """Simulated data like those on which the optimiser of mltree 0.1 stood still at its start."""
    rng = np.random.default_rng(sum(map(ord, name)))
    among, fitted = {
        "small alpha": ("G4m{0.16}", "GTR+FC+G4"),
        "long rates": ("G4m{0.24}", "GTR+FC+G4"),
        "many invariable": ("IU{0.5}+G4m{2.0}", "GTR+FC+I+G4"),
        "most invariable": ("IU{0.69}+G4m{3.4}", "GTR+FC+I+G4"),
    }[name]
    rates = "0.6/30/0.02/0.9/60/1" if name == "long rates" else "1.5/5/0.6/1.4/5/1"
    true = parse_model(f"GTR{{{rates}}}+FU{{0.35/0.15/0.2/0.3}}+{among}", DNA)
    return make_task(uniform_tree(9, 0.15, rng), true, fitted, 800, rng)


@pytest.mark.parametrize(
    "name", ["small alpha", "long rates", "many invariable", "most invariable"]
)
def test_hard_sets_are_climbed_to_the_top(name: str) -> None:
    problem = look_alike(name)
    lnl, _, events = fit(problem)
    assert lnl > -best_of_random_starts(problem, np.random.default_rng(1)).fun - TOLERANCE
    assert not warnings_in(events)


def result_of(folder: Path, **environment: str) -> bytes:
    """Tree and model that a search writes in its own process."""
    prefix = folder / "-".join(environment.values()).replace(" ", "-")
    arguments = ["search", str(ROOT / "datasets" / "primates.phy"), "--preset", "fast", "--quiet"]
    subprocess.run(
        [sys.executable, "-m", "mltree", *arguments, "--model", "GTR+FO+I+G4", "-p", str(prefix)],
        env={**os.environ, **environment},
        check=True,
    )
    names = (f"{prefix}.mltree.{kind}" for kind in ("bestTree", "bestModel"))
    return b"".join(Path(name).read_bytes() for name in names)


def test_no_kernel_of_blas_or_numpy_changes_a_bit(tmp_path: Path) -> None:
    """OpenBLAS falls back to a kernel that the processor has where it lacks the one asked for."""
    results = [
        result_of(tmp_path, OPENBLAS_CORETYPE=kernel)
        for kernel in ("Prescott", "Sandybridge", "Haswell", "SkylakeX")
    ]
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    results.append(result_of(tmp_path, NPY_DISABLE_CPU_FEATURES=" ".join(found)))
    assert len(set(results)) == 1
