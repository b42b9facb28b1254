"""lnL and its derivatives as a function, against an independent pruning with SciPy's expm."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import expm

import mltree
from mltree.runs.problem import read_model
from mltree.system.errors import InputError
from mltree.tree.clades import read_written

STATES = "ACGT"


def sequences_of(rng: random.Random, taxa: int, sites: int) -> dict[str, str]:
    rows = ["".join(rng.choices(STATES, k=sites))]
    while len(rows) < taxa:
        parent = rng.choice(rows)
        rows.append("".join(rng.choice(STATES + "-") if rng.random() < 0.2 else x for x in parent))
    return {f"t{n}": row for n, row in enumerate(rows)}


def tree_of(rng: random.Random, names: list[str]) -> str:
    """Names joined at random, two by two or by more; three or more at the top."""
    parts = [f"{name}:{rng.uniform(0.02, 0.6):.4f}" for name in names]
    top = rng.choice([3, 3, 4, 6])
    while len(parts) > top:
        rng.shuffle(parts)
        joined = ",".join(parts.pop() for _ in range(rng.choice([2, 2, 3])))
        parts.append(f"({joined}):{rng.uniform(0.02, 0.4):.4f}")
    return f"({','.join(parts)});"


def pruned(sequences: dict[str, str], newick: str, model: str) -> float:
    """lnL by Felsenstein's pruning from the root of the text, a site and category at a time."""
    parsed = read_model(model)
    pi = np.asarray(parsed.frequencies)
    q = np.zeros((4, 4))
    q[np.triu_indices(4, 1)] = parsed.rates
    q = (q + q.T) * pi
    np.fill_diagonal(q, -q.sum(axis=1))
    q /= -(pi @ np.diag(q))
    arrays = parsed.arrays()
    (tree, *_) = read_written(newick)
    like = np.zeros(len(next(iter(sequences.values()))))
    for rate, weight in zip(arrays.rates, arrays.weights, strict=True):

        def below(node: int, rate: float = rate) -> np.ndarray:
            if tree.children[node]:
                product = np.ones((1, 4))
                for child in tree.children[node]:
                    product = product * (below(child) @ expm(q * rate * tree.lengths[child]).T)
                return product
            row = sequences[tree.labels[node]]
            return np.array([[1.0 if x in (s, "-") else 0.0 for s in STATES] for x in row])

        like += weight * (below(0) @ pi)
    return float(np.log(like).sum())


MODELS = ("JC", "HKY{3}+FU{0.2/0.3/0.1/0.4}+G3{0.7}", "GTR{1/2/0.5/0.8/3/1}+FU{0.1/0.4/0.3/0.2}")
FREE = ("JC", "K80+FO", "GTR+FE+I+G2")


@pytest.mark.cases(3, 60)
def test_lnl_is_that_of_an_independent_pruning(case: int) -> None:
    rng = random.Random(case)
    sequences = sequences_of(rng, rng.randint(4, 8), rng.randint(5, 40))
    newick, model = tree_of(rng, list(sequences)), MODELS[case % 3]
    likelihood = mltree.Likelihood(sequences, newick, model, device="reference")
    wanted = pruned(sequences, newick, model)
    assert likelihood.lnl() == pytest.approx(wanted, rel=1e-10)
    assert likelihood.site_lnl().sum() == pytest.approx(wanted, rel=1e-10)
    x = likelihood.x * 1.5
    x[likelihood.n_branches :] = likelihood.x[likelihood.n_branches :]
    assert likelihood.lnl(x) == pytest.approx(
        pruned(sequences, likelihood.tree(x).newick, model), rel=1e-10
    )


@pytest.mark.cases(3, 60)
def test_derivatives_are_those_of_an_independent_pruning(case: int) -> None:
    """Of lnL as a function of what ``tree(x)`` and ``model(x)`` say, by differences."""
    rng = random.Random(1000 + case)
    sequences = sequences_of(rng, rng.randint(4, 5), 8)
    newick = tree_of(rng, list(sequences))
    likelihood = mltree.Likelihood(sequences, newick, FREE[case % 3], device="reference")
    x = likelihood.x.copy()
    slopes, curves = likelihood.gradient(x), likelihood.hessian(x)
    b = likelihood.n_branches
    assert curves == pytest.approx(curves.T)

    def lnl(x: np.ndarray) -> float:
        return pruned(sequences, likelihood.tree(x).newick, _exactly(likelihood, x))

    def moved(*steps: tuple[int, float]) -> np.ndarray:
        y = x.copy()
        for k, by in steps:
            y[k] += by
        return y

    h = 1e-3
    for k in range(x.size):
        found = (lnl(moved((k, h))) - lnl(moved((k, -h)))) / (2 * h)
        assert slopes[k] == pytest.approx(found, rel=1e-3, abs=1e-3), likelihood.names[k]
    pairs = [(0, 1), (0, 0), (b - 1, x.size - 1), (x.size - 1, x.size - 1), (b, x.size - 1)]
    for k, j in [pair for pair in pairs if max(pair) < x.size]:
        corners = [(s, t, lnl(moved((k, s * h), (j, t * h)))) for s in (1, -1) for t in (1, -1)]
        found = sum(s * t * value for s, t, value in corners) / (4 * h * h)
        assert curves[k, j] == pytest.approx(found, rel=1e-2, abs=1e-2), (k, j)


def _exactly(likelihood: mltree.Likelihood, x: np.ndarray) -> str:
    """The model at x with all digits: of the parameters, from their own definition."""
    from mltree.models.grammar import format_model
    from mltree.models.parameters import with_vector

    own = likelihood._problem.model.lone
    return format_model(with_vector(own, x[likelihood.n_branches :]), 17)


def test_names_say_which_branch_is_which() -> None:
    names = [f"t{n}" for n in range(6)]
    newick = "(t0:0.01,t1:0.02,((t2:0.03,t3:0.04):0.05,(t4:0.06,t5:0.07):0.08):0.09);"
    data = dict.fromkeys(names, "ACGT")
    likelihood = mltree.Likelihood(data, newick, "GTR+G4", device="reference")
    lengths = dict(zip(likelihood.names, likelihood.x.tolist(), strict=True))
    expected = {"t0": 0.01, "t1": 0.02, "t2": 0.03, "t3": 0.04, "t2,t3": 0.05, "t4": 0.06,
                "t5": 0.07, "t4,t5": 0.08, "t0,t1": 0.09}  # fmt: skip
    assert {name: lengths[name] for name in expected} == pytest.approx(expected)
    assert likelihood.names[-1] == "alpha"
    assert mltree.rf(likelihood.tree(), newick, weighted=True) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("brlen", ["linked", "scaled", "unlinked"])
def test_parts_add_up(brlen: str, tmp_path: Path) -> None:
    rng = random.Random(5)
    sequences = sequences_of(rng, 5, 30)
    newick = tree_of(rng, list(sequences))
    (tmp_path / "parts").write_text("HKY{2}+FE, one = 1-20\nJC, two = 21-30\n")
    likelihood = mltree.Likelihood(
        sequences, newick, str(tmp_path / "parts"), brlen=brlen, device="reference"
    )
    first = {name: row[:20] for name, row in sequences.items()}
    second = {name: row[20:] for name, row in sequences.items()}
    wanted = pruned(first, newick, "HKY{2}+FE") + pruned(second, newick, "JC")
    assert likelihood.lnl() == pytest.approx(wanted, rel=1e-10)
    assert likelihood.n_branches == newick.count(":") * (2 if brlen == "unlinked" else 1)
    scalers = [n for n, name in enumerate(likelihood.names) if name.endswith("scaler")]
    assert len(scalers) == (2 if brlen == "scaled" else 0)
    slopes, x = likelihood.gradient(), likelihood.x
    for k in [0, likelihood.n_branches - 1, x.size - 1]:
        step = np.zeros(x.size)
        step[k] = 1e-4
        found = (likelihood.lnl(x + step) - likelihood.lnl(x - step)) / 2e-4
        assert slopes[k] == pytest.approx(found, rel=1e-4, abs=1e-4)


def test_short_branches_have_derivatives() -> None:
    data = {"a": "ACGTAC", "b": "ACGTAC", "c": "ACCTAG", "d": "ACCTTG"}
    likelihood = mltree.Likelihood(data, "(a:0,b:1e-6,(c:0.1,d:0.2):0.1);", "JC")
    assert np.isfinite(likelihood.gradient()).all()
    assert np.isfinite(likelihood.hessian()).all()


def test_an_interrupt_leaves_it_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"a": "ACGTAC", "b": "ACGTAT", "c": "ACCTAG", "d": "ACCTTG"}
    likelihood = mltree.Likelihood(data, "(a,b,(c,d));", "JC", device="reference")
    wanted = likelihood.lnl()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(likelihood._engine().engine, "run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            likelihood.lnl()
    assert likelihood.lnl() == wanted
    with likelihood:
        assert likelihood.lnl() == wanted
    assert likelihood.lnl() == wanted


def test_vectors_that_do_not_fit() -> None:
    data = {"a": "ACGTAC", "b": "ACGTAT", "c": "ACCTAG", "d": "ACCTTG"}
    likelihood = mltree.Likelihood(data, "(a,b,(c,d));", "JC", device="reference")
    for x, line in (([1.0], "x has 5 elements, not [1]"), ([-1, 1, 1, 1, 1], "not negative"),
                    ([np.nan] * 5, "finite")):  # fmt: skip
        with pytest.raises(InputError, match=re.escape(line)):
            likelihood.lnl(x)


@pytest.mark.cases(2, 20)
def test_the_likelihood_of_a_set_of_states_is_the_sum_over_them(case: int) -> None:
    rng = np.random.default_rng(case)
    rows = rng.integers(0, 4, (6, 30)).astype(str)
    newick = tree_of(random.Random(case), [f"t{n}" for n in range(6)])
    like = {}
    for cell in ("{13}", "(2 0 3)", *"0123"):
        rows[2, 7] = cell
        sequences = {f"t{n}": "".join(row) for n, row in enumerate(rows)}
        used = mltree.Likelihood(sequences, newick, "MULTI4_MK+G4{0.7}", device="reference")
        like[cell] = np.exp(used.site_lnl())
    assert like["{13}"][7] == pytest.approx(like["1"][7] + like["3"][7], rel=1e-9)
    assert like["(2 0 3)"][7] == pytest.approx(sum(like[one][7] for one in "023"), rel=1e-9)
