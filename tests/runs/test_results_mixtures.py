"""LnLs of mixtures, and of sites with frequencies of their own, against pruning with SciPy's expm.

Nothing is shared with what is tested but the tables of published matrices.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import expm

import mltree
from mltree.models.empirical import protein_model
from mltree.models.substitution import PAIRED, paired_mixture, profile_mixture

ACIDS = "ARNDCQEGHILKMFPSTWYV"
RATES = (0.2, 0.7, 2.1)
"""Of three categories, mean 1, one third each."""

FREE = "+R3{0.2/0.7/2.1}{0.3333333333333333/0.3333333333333333/0.3333333333333333}"

Node = str | list[tuple[Any, float]]


def random_tree(taxa: list[str], rng: np.random.Generator) -> Node:
    nodes: list[Node] = list(taxa)
    while len(nodes) > 3:
        pair = [nodes.pop(rng.integers(len(nodes))) for _ in range(2)]
        nodes.append([(node, float(rng.exponential(0.3)) + 1e-3) for node in pair])
    return [(node, float(rng.exponential(0.3)) + 1e-3) for node in nodes]


def newick(node: Node) -> str:
    if isinstance(node, str):
        return node
    return f"({','.join(f'{newick(child)}:{length!r}' for child, length in node)})"


def generator(rates: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
    """Q of f64[190] exchangeabilities, with one substitution per unit of time."""
    q = np.zeros((20, 20))
    q[np.triu_indices(20, 1)] = rates
    q = (q + q.T) * frequencies
    q -= np.diag(q.sum(axis=1))
    return np.asarray(q / -(frequencies @ np.diag(q)))


def tip(letter: str) -> np.ndarray:
    return np.ones(20) if letter == "-" else np.array([float(letter == one) for one in ACIDS])


def below(node: Node, column: dict[str, str], q: np.ndarray) -> np.ndarray:
    """P(what is seen below | state of the node)."""
    if isinstance(node, str):
        return tip(column[node])
    parts = [expm(q * length) @ below(child, column, q) for child, length in node]
    return np.asarray(np.prod(parts, axis=0))


def likelihood(
    node: Node,
    column: dict[str, str],
    q: np.ndarray,
    frequencies: np.ndarray,
    rates: tuple[float, ...] = RATES,
) -> float:
    """Of a column, the mean over rates."""
    return float(np.mean([frequencies @ below(node, column, q * rate) for rate in rates]))


def random_data(case: int, sites: int = 6) -> tuple[Node, dict[str, str], np.random.Generator]:
    rng = np.random.default_rng([case, 7])
    taxa = [f"t{n}" for n in range(int(rng.integers(4, 8)))]
    tree = random_tree(taxa, rng)
    columns = rng.choice(list(ACIDS), (sites, 1)).repeat(len(taxa), axis=1)
    noise = rng.random(columns.shape) < rng.choice([0.1, 0.6], (sites, 1))
    columns = np.where(noise, rng.choice([*ACIDS, "-"], columns.shape), columns)
    columns[-1] = columns[0]  # a column that occurs twice
    return tree, {taxon: "".join(columns[:, n]) for n, taxon in enumerate(taxa)}, rng


def columns_of(rows: dict[str, str]) -> list[dict[str, str]]:
    sites = len(next(iter(rows.values())))
    return [{taxon: row[n] for taxon, row in rows.items()} for n in range(sites)]


def lnl_of(rows: dict[str, str], tree: Node, model: str, **options: Any) -> float:
    found = mltree.evaluate(
        rows, newick(tree) + ";", model, data_type="protein", optimise_model=False,
        optimise_branches=False, **options,
    )  # fmt: skip
    return found.lnl


@pytest.mark.cases(2, 40)
@pytest.mark.parametrize("device", ["reference", None])
def test_sites_with_frequencies_of_their_own(tmp_path: Path, case: int, device: str | None) -> None:
    tree, rows, rng = random_data(case)
    frequencies = rng.dirichlet(np.full(20, rng.choice([0.1, 1.0])), 6) + 1e-6
    frequencies /= frequencies.sum(axis=1, keepdims=True)
    path = tmp_path / "x.sitefreq"
    lines = [f"{n} {' '.join(map(repr, row))}" for n, row in enumerate(frequencies.tolist(), 1)]
    path.write_text("\n".join(lines[::-1]) + "\n")
    exchangeabilities = protein_model("LG").exchangeabilities
    expected = sum(
        np.log(likelihood(tree, column, generator(exchangeabilities, own), own))
        for column, own in zip(columns_of(rows), frequencies, strict=True)
    )
    lnl = lnl_of(rows, tree, "LG" + FREE, device=device, site_frequencies=path)
    assert lnl == pytest.approx(expected, abs=1e-7)


@pytest.mark.cases(1, 40)
def test_profiles(case: int) -> None:
    tree, rows, _ = random_data(case, sites=3)
    mixture, lg = profile_mixture("C10"), protein_model("LG").exchangeabilities
    matrices = [generator(lg, own) for own in mixture.frequencies]
    expected = sum(
        np.log(
            sum(
                weight * likelihood(tree, column, q, own)
                for weight, q, own in zip(
                    mixture.weights, matrices, mixture.frequencies, strict=True
                )
            )
        )
        for column in columns_of(rows)
    )
    assert lnl_of(rows, tree, "LG+C10" + FREE) == pytest.approx(expected, abs=1e-7)


@pytest.mark.cases(1, 40)
@pytest.mark.parametrize("name", PAIRED)
def test_paired_matrices(name: str, case: int) -> None:
    tree, rows, rng = random_data(case, sites=4)
    speeds, weights = np.sort(rng.gamma(1.0, size=4)) + 0.01, rng.dirichlet(np.full(4, 3.0))
    speeds /= weights @ speeds
    tables = paired_mixture(name).tables
    each = list(zip(weights, speeds, tables.exchangeabilities, tables.frequencies, strict=True))
    expected = sum(
        np.log(
            sum(
                weight * likelihood(tree, column, generator(rates, own), own, (speed,))
                for weight, speed, rates, own in each
            )
        )
        for column in columns_of(rows)
    )
    values = "".join("{" + "/".join(map(repr, v.tolist())) + "}" for v in (speeds, weights))
    assert lnl_of(rows, tree, f"{name}+R4{values}") == pytest.approx(expected, abs=1e-7)


@pytest.mark.cases(1, 40)
def test_mixed_models(case: int) -> None:
    tree, rows, rng = random_data(case)
    names = ["LG", "WAG", "JTT"]
    weights, speeds = rng.dirichlet(np.full(3, 3.0)), rng.gamma(2.0, size=3) + 0.05
    text = ",".join(
        f"{name}:{speed!r}:{weight!r}"
        for name, speed, weight in zip(names, speeds.tolist(), weights.tolist(), strict=True)
    )
    relative = speeds / (weights @ speeds)
    models = [protein_model(name) for name in names]
    expected = sum(
        np.log(
            sum(
                weight * likelihood(tree, column, speed * generator(*own), own[1])
                for weight, speed, own in zip(weights, relative, models, strict=True)
            )
        )
        for column in columns_of(rows)
    )
    assert lnl_of(rows, tree, f"MIX{{{text}}}{FREE}") == pytest.approx(expected, abs=1e-7)
