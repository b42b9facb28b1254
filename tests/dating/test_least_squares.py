"""Least squares dating against the conditions of Karush, Kuhn and Tucker, and SciPy."""

import numpy as np
import pytest
from scipy.optimize import lsq_linear, minimize

from mltree.dating.least_squares import PULL, Bounds, Levels, least_squares
from mltree.tree.clades import WrittenTree


def random_tree(rng, n):
    """A tree of n tips, some nodes with three children."""
    alive, children = list(range(n)), {}
    while len(alive) > 1:
        count = 2 if rng.random() < 0.85 or len(alive) < 3 else 3
        children[n + len(children)] = [alive.pop(rng.integers(len(alive))) for _ in range(count)]
        alive.append(n + len(children) - 1)
    order, parents, pending = [], [], [(alive[0], -1)]
    while pending:
        node, parent = pending.pop()
        pending += [(child, len(order)) for child in children.get(node, ())]
        order.append(node)
        parents.append(parent)
    labels = tuple(f"t{node}" if node < n else "" for node in order)
    return WrittenTree(np.array(parents, np.int32), np.full(len(order), 0.1), labels)


def random_problem(seed):
    rng = np.random.default_rng(seed)
    levels = Levels(random_tree(rng, rng.integers(4, 9)))
    n_nodes, columns = levels.n_nodes, 3
    free_root = bool(rng.random() < 0.4) and (levels.parent[1:] == 0).sum() == 2
    shape = n_nodes, columns
    lengths = np.round(rng.exponential(0.1, shape), 3) * (rng.random(shape) < 0.7)
    weights = rng.uniform(1.0, 50.0, shape)
    lower, upper = np.full(n_nodes, -np.inf), np.full(n_nodes, np.inf)
    tips = levels.tips
    depth = levels.depths(np.ones((n_nodes, 1)))[:, 0]
    lower[tips] = upper[tips] = 2000.0 + depth[tips] + rng.uniform(-1.0, 1.0, len(tips))
    uncertain = rng.random(len(tips)) < 0.2
    lower[tips[uncertain]] -= 0.5
    upper[tips[uncertain]] += 0.5
    if rng.random() < 0.3:
        lower[tips[0]], upper[tips[0]] = -np.inf, np.inf
    if rng.random() < 0.4:
        lower[0], upper[0] = 1998.0, 1999.0
    return levels, lengths, weights, Bounds.of(lower, upper), free_root


class Dense:
    """The problem of one column as matrices: objective zᵀHz/2 + gᵀz, inequalities, equalities."""

    def __init__(self, levels, lengths, weights, bounds, free_root, origin):
        n_nodes = levels.n_nodes
        weights = weights.copy()
        rows, targets, of_rows = [], [], []
        differences = np.zeros((n_nodes, n_nodes + 1))
        for node in range(1, n_nodes):
            differences[node, node] += 1.0
            differences[node, levels.parent[node]] -= 1.0
        plain = range(3, n_nodes) if free_root else range(1, n_nodes)
        for node in plain:
            rows.append(differences[node])
            targets.append(lengths[node])
            of_rows.append(weights[node])
        mean = weights[1:].mean()
        if free_root:
            both = 2.0 / (1.0 / weights[1] + 1.0 / weights[2])
            rows.append(differences[1] + differences[2])
            targets.append(lengths[1] + lengths[2])
            of_rows.append(0.5 * both)
            mean = (weights[3:].sum() + 2.0 * both) / (n_nodes - 1)
        self.least, self.equal = list(differences[1:]), []
        lower, upper = bounds.lower - origin, bounds.upper - origin
        for node in range(n_nodes):
            own = np.zeros(n_nodes + 1)
            own[node] = 1.0
            if bounds.is_known[node]:
                own[-1] = -lower[node]
                self.equal.append(own)
                continue
            if np.isfinite(bounds.preferred[node]):
                own[-1] = -(bounds.preferred[node] - origin)
                rows.append(own)
                targets.append(0.0)
                of_rows.append(PULL * mean)
            for sign, bound in ((1.0, lower[node]), (-1.0, upper[node])):
                if np.isfinite(bound):
                    own = np.zeros(n_nodes + 1)
                    own[node], own[-1] = sign, -sign * bound
                    self.least.append(own)
        matrix, of_rows = np.array(rows), np.array(of_rows)
        self.targets = np.array(targets)
        self.matrix, self.weights = matrix, of_rows
        self.least, self.equal = np.array(self.least), np.array(self.equal).reshape(-1, n_nodes + 1)

    def value(self, z):
        rest = self.targets - self.matrix @ z
        return self.weights @ rest**2

    def slope(self, z):
        return -2.0 * self.matrix.T @ (self.weights * (self.targets - self.matrix @ z))


@pytest.mark.cases(25, 1500)
def test_conditions_of_a_minimum(case):
    levels, lengths, weights, bounds, free_root = random_problem(case)
    fit = least_squares(levels, lengths, weights, bounds, free_root=free_root)
    for column in range(lengths.shape[1]):
        own = lengths[:, column], weights[:, column]
        dense = Dense(levels, *own, bounds, free_root, fit.origin)
        z = np.r_[fit.position[:, column], fit.rate[column]]
        scale = weights.max()
        assert (dense.least @ z).min() > -1e-8
        assert np.abs(dense.equal @ z).max(initial=0.0) < 1e-12
        active = dense.least @ z < 1e-6
        forces = np.c_[dense.least[active].T, dense.equal.T]
        least = np.r_[np.zeros(active.sum()), np.full(len(dense.equal), -np.inf)]
        slope = dense.slope(z) / scale
        found = lsq_linear(forces, slope, (least, np.inf), tol=1e-14)
        assert np.abs(forces @ found.x - slope).max() < 2e-6


@pytest.mark.cases(6, 200)
def test_objective_is_that_of_scipy(case):
    levels, lengths, weights, bounds, free_root = random_problem(case)
    fit = least_squares(levels, lengths, weights, bounds, free_root=free_root)
    dense = Dense(levels, lengths[:, 0], weights[:, 0], bounds, free_root, fit.origin)
    z = np.r_[fit.position[:, 0], fit.rate[0]]
    rules = [{"type": "ineq", "fun": lambda z: dense.least @ z, "jac": lambda _: dense.least}]
    if len(dense.equal):
        rules.append({"type": "eq", "fun": lambda z: dense.equal @ z, "jac": lambda _: dense.equal})
    options = {"maxiter": 2000, "ftol": 1e-14}
    other = minimize(
        dense.value, z + 0.01, jac=dense.slope, constraints=rules, method="SLSQP", options=options
    )
    assert dense.value(z) <= other.fun + 1e-8


def test_clock_without_noise_is_found_exactly():
    rng = np.random.default_rng(1)
    levels = Levels(random_tree(rng, 30))
    dates = levels.depths(rng.exponential(1.0, (levels.n_nodes, 1)))[:, 0] + 1990.0
    lengths = 0.01 * (dates - dates[levels.parent])[:, None]
    known = np.where(levels.is_tip, dates, np.nan)
    bounds = Bounds.of(np.where(np.isnan(known), -np.inf, known),
                       np.where(np.isnan(known), np.inf, known))  # fmt: skip
    fit = least_squares(levels, lengths, np.full(lengths.shape, 100.0), bounds)
    np.testing.assert_allclose(fit.rate, 0.01, rtol=1e-5)
    np.testing.assert_allclose(fit.dates[:, 0], dates, atol=1e-3)
