"""``bench precision``: what ``--precision mixed`` costs in accuracy, and gives in speed.

For growing trees: the lnL of one fixed tree in fp64 and in mixed precision, what a plain fp32 sum
over the same site log-likelihoods would have made of it, and whether a search in mixed precision
ends with the tree of the search in fp64 (Robinson-Foulds distance, and lnL by one judge).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bench.contenders import Contender
from bench.data import Dataset
from bench.judge import Judge
from bench.race import Race
from bench.results import Row, Run
from mltree.fit.settings import SearchSettings
from mltree.program.cases import Case
from mltree.runs.engines import Engines, Workload
from mltree.runs.problem import load_problem
from mltree.tree.newick import read_newick
from mltree.tree.splits import robinson_foulds

__all__ = ["measure", "naive_single_sum", "paired_single_sum"]

Single = np.float32


def measure(
    run: Run,
    datasets: Sequence[Dataset],
    contender: Contender,
    race: Race,
    search_up_to: int,
) -> None:
    """Fill the run with a row per dataset; those of few enough taxa are also searched."""
    for dataset in datasets:
        row = _likelihoods(dataset, contender)
        if row["taxa"] <= search_up_to:
            row |= _searches(dataset, contender, race)
        run.add(row)
        print(
            f"{dataset.name}: mixed - fp64 = {row['mixed_lnl'] - row['double_lnl']:.4f}, "
            f"RF {row.get('robinson_foulds', '-')}",
            flush=True,
        )


def _likelihoods(dataset: Dataset, contender: Contender) -> Row:
    """The start tree's lnL in both precisions, and sums of its site lnLs in fp32."""
    problem = load_problem(str(dataset.alignment), dataset.model, lambda _: None)
    patterns, case = problem.patterns, Case(problem.model.arrays())
    bounds = SearchSettings().branches.bounds(patterns.n_sites)
    tree, _ = read_newick(str(dataset.start), patterns.taxa)
    lnls, sites = {}, {}
    for precision in ("double", "mixed"):
        wanted = replace(contender, precision=precision)
        engines = Engines(
            wanted.resources, Workload.of_patterns(patterns, max(problem.model.categories), bounds)
        )
        likelihood = engines.likelihood
        lnls[precision] = float(likelihood.log_likelihoods([tree], [case])[0])
        sites[precision] = likelihood.site_log_likelihoods(tree, case)
    expanded = sites["double"][patterns.site_pattern]
    return {
        "dataset": dataset.name,
        "taxa": patterns.n_tips,
        "patterns": patterns.n_patterns,
        "sites": patterns.n_sites,
        "double_lnl": lnls["double"],
        "mixed_lnl": lnls["mixed"],
        "worst_site": float(np.abs(sites["mixed"] - sites["double"]).max()),
        "single_sum_error": naive_single_sum(expanded) - float(expanded.sum()),
        "compensated_sum_error": paired_single_sum(expanded) - float(expanded.sum()),
    }


def _searches(dataset: Dataset, contender: Contender, race: Race) -> Row:
    rows = {
        precision: race.mltree(replace(contender, precision=precision), dataset)
        for precision in ("double", "mixed")
    }
    if any(row["status"] != "done" for row in rows.values()):
        return {"status": {precision: row["status"] for precision, row in rows.items()}}
    judge = Judge(dataset, replace(contender, precision="double"))
    taxa = load_problem(str(dataset.alignment), dataset.model, lambda _: None).patterns.taxa
    trees = [read_newick(row["tree"], taxa)[0] for row in rows.values()]
    return {
        "robinson_foulds": robinson_foulds(trees[0], trees[1]),
        "judged_double": judge.lnl(rows["double"]["tree"]),
        "judged_mixed": judge.lnl(rows["mixed"]["tree"]),
        "search_s": {precision: row["search_s"] for precision, row in rows.items()},
    }


def naive_single_sum(values: NDArray[np.float64]) -> float:
    """One fp32 accumulator, one value after the other."""
    return float(np.cumsum(values.astype(Single), dtype=Single)[-1])


def paired_single_sum(values: NDArray[np.float64]) -> float:
    """fp32 with Neumaier's compensation: what the lost digits add up to is added at the end."""
    total, lost = Single(0), Single(0)
    for value in values.astype(Single):
        new = Single(total + value)
        if abs(total) >= abs(value):
            lost = Single(lost + ((total - new) + value))
        else:
            lost = Single(lost + ((value - new) + total))
        total = new
    return float(total) + float(lost)
