"""``python -m bench.hard``: searches of small hard alignments, whose landscapes have many maxima.

Families of simulated alignments (22 to 47 taxa, :data:`FAMILIES`) are searched under variants of
the presets (:data:`VARIANTS`) and, where they are found, by IQ-TREE 2 and RAxML 8, one core each.
Printed for each: alignments, how many ended more than 0.1 and more than 1 below the best lnL of
all, the sum of what they lack, CPU seconds, on how many alignments half as many again as IQ-TREE's,
and the worst alignments. A family, a number and a seed make the same alignment anywhere.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mltree.analyses.simulate import letters, sites
from mltree.data.alphabet import BINARY, DNA, PROTEIN, Alphabet
from mltree.fit.settings import PerturbationSettings, SearchSettings, preset
from mltree.models.grammar import parse_model
from mltree.runs.engines import Resources, Workload, open_engines
from mltree.runs.problem import load_problem
from mltree.runs.trees import fit_topology, prepare_search, read_tree
from mltree.system.arrays import UInt8
from mltree.system.events import ignore
from mltree.tree.moves import nni
from mltree.tree.newick import read_newick
from mltree.tree.topology import Tree, uniform_tree, yule_tree

__all__ = ["FAMILIES", "VARIANTS", "main"]

SHORT, FAR = 0.1, 1.0
"""lnL below the best from which a search counts as short, and as far off."""

MOST_CPU = 1.5
"""CPU time over IQ-TREE's from which a search counts as dear."""

ALONE = {"MLTREE_THREADS": "1", "POCL_MAX_PTHREAD_COUNT": "1", "OMP_NUM_THREADS": "1"}


def _tree(rng: np.random.Generator, taxa: int, mean: float) -> Tree:
    kind = uniform_tree if rng.random() < 0.5 else yule_tree
    return kind(taxa, mean, rng)


def _short_inside(rng: np.random.Generator, taxa: int) -> list[Tree]:
    tree = _tree(rng, taxa, 0.05)
    inner = tree.inner_edges
    tree.lengths[inner] = rng.exponential(0.004, len(inner))
    return [tree]


def _mixed(rng: np.random.Generator, taxa: int) -> list[Tree]:
    tree = _tree(rng, taxa, 0.1)
    tree.lengths[:] = rng.lognormal(-3.2, 1.6, tree.n_edges)
    return [tree]


def _caterpillar(rng: np.random.Generator, taxa: int) -> list[Tree]:
    """A tree of cherries at the ends of a chain: the most unlike a balanced one."""
    first, *others = map(str, rng.permutation(taxa))
    text = first
    for tip in others:
        text = f"({text},{tip})"
    tree, _ = read_newick(text + ";", list(map(str, range(taxa))))
    tree.lengths[:] = rng.exponential(0.06, tree.n_edges)
    return [tree]


def _recombined(rng: np.random.Generator, taxa: int) -> list[Tree]:
    return [_tree(rng, taxa, 0.1), _tree(rng, taxa, 0.1)]


def _interchanged(rng: np.random.Generator, taxa: int) -> list[Tree]:
    tree = _tree(rng, taxa, 0.1)
    other = tree.copy()
    for _ in range(6):
        nni(other, int(rng.choice(other.inner_edges)), int(rng.integers(2)))
    return [tree, other]


class Family(NamedTuple):
    """Alignments that are hard for one reason."""

    trees: Callable[[np.random.Generator, int], list[Tree]]
    """The trees that evolve a share of the sites each, from a generator and the taxa."""
    sites: tuple[int, int]
    """Fewest and most sites."""
    alphabet: Alphabet = DNA
    alpha: float | None = None
    """Shape of the rates among sites; 0.3 to 1.2 where None."""
    gaps: tuple[float, float] = (0.0, 0.0)
    """Least and largest share of gaps, a stretch a taxon."""


def _plain(mean: float) -> Callable[[np.random.Generator, int], list[Tree]]:
    return lambda rng, taxa: [_tree(rng, taxa, mean)]


FAMILIES = {
    "few sites vary": Family(_plain(0.12), (100, 260), alpha=0.1),
    "short inside": Family(_short_inside, (120, 420)),
    "two trees": Family(_recombined, (400, 700)),
    "two near trees": Family(_interchanged, (400, 700)),
    "binary": Family(_plain(0.15), (90, 170), BINARY),
    "long and short": Family(_mixed, (120, 420)),
    "gaps": Family(_plain(0.08), (300, 800), gaps=(0.4, 0.85)),
    "saturated": Family(_plain(0.6), (200, 500)),
    "caterpillar": Family(_caterpillar, (120, 420)),
    "protein": Family(_plain(0.15), (60, 160), PROTEIN),
}

DEFAULT = preset("default")


def _perturbed(fraction: float = DEFAULT.perturbation.fraction) -> SearchSettings:
    """Three times the copies, by random NNIs from parsimony starts."""
    perturbation = replace(DEFAULT.perturbation, fraction=fraction, patience=6, returns=48)
    return replace(DEFAULT, hard_starts=(0, 0), perturbation=perturbation)


EVERY_START = 99
"""An agreement of starts that is never reached."""

NO_CHANCE = 1e-9
"""A chance of better starts that is never so small."""

ONLY_PARSIMONY = replace(DEFAULT, hard_starts=(0, 0))

VARIANTS: dict[str, SearchSettings] = {
    "fast": preset("fast"),
    "default": DEFAULT,
    "thorough": preset("thorough"),
    "no random starts": ONLY_PARSIMONY,
    "all 6 starts": replace(ONLY_PARSIMONY, agreement=EVERY_START, max_survivors=6),
    "4 random": replace(DEFAULT, hard_starts=(2, 4), hard_chance=NO_CHANCE),
    "4 and 8 random": replace(DEFAULT, hard_starts=(4, 8), hard_chance=NO_CHANCE),
    "6 random": replace(DEFAULT, hard_starts=(2, 6), hard_chance=NO_CHANCE),
    "30 random": replace(DEFAULT, hard_chance=NO_CHANCE),
    "three times the copies": _perturbed(),
    "weaker copies": _perturbed(fraction=0.06),
    "stronger copies": _perturbed(fraction=0.3),
    "nothing rejected": replace(DEFAULT, rounds=replace(DEFAULT.rounds, rejection=1e6)),
    "no copies": replace(DEFAULT, perturbation=PerturbationSettings(patience=0)),
}
"""The presets, and what differs from ``default``."""


@dataclass(frozen=True)
class Task:
    """An alignment, and how to search it once."""

    name: str
    path: Path
    model: str
    contender: str
    """A variant, or the path of a program."""
    seed: int
    device: str | None


class Ended(NamedTuple):
    """The end of a search."""

    name: str
    contender: str
    lnl: float
    cpu: float


def characters(family: Family, rng: np.random.Generator) -> UInt8:
    """u8 [T, sites]: an alignment of a family, as ASCII."""
    taxa, count = int(rng.integers(22, 48)), int(rng.integers(*family.sites))
    alpha = rng.uniform(0.3, 1.2) if family.alpha is None else family.alpha
    trees = family.trees(rng, taxa)
    rates = "/".join(f"{rate:.4f}" for rate in rng.lognormal(0, 0.7, 5))
    frequencies = "/".join(f"{share:.6f}" for share in rng.dirichlet([6] * 4))
    names = {BINARY: "BIN+FU{0.4/0.6}", PROTEIN: "LG"}
    name = names.get(family.alphabet, f"GTR{{{rates}/1}}+FU{{{frequencies}}}")
    model = parse_model(f"{name}+G4m{{{alpha:.4f}}}", family.alphabet).arrays()
    states = [sites(tree, model, count // len(trees), rng) for tree in trees]
    made = letters(np.concatenate(states, axis=1), family.alphabet).copy()
    share = rng.uniform(*family.gaps)
    for row in made if share else ():
        width = int(min(0.97, rng.beta(2, 2) * 2 * share) * len(row))
        row[(np.arange(width) + rng.integers(len(row))) % len(row)] = ord("-")
    return made


MODELS = {BINARY: "BIN+FO+G4", PROTEIN: "LG+G4"}
OF_IQ_TREE = {"BIN+FO+G4": "GTR2+FO+G4", "GTR+FC+G4": "GTR+F+G4", "LG+G4": "LG+G4"}
OF_RAXML = {"BIN+FO+G4": "BINGAMMAX", "GTR+FC+G4": "GTRGAMMA", "LG+G4": "PROTGAMMALG"}


def alignments(
    folder: Path, seed: int, each: int, families: Sequence[str] = tuple(FAMILIES)
) -> Iterator[tuple[str, Path, str]]:
    """Write so many alignments of each family; names, files and models."""
    for number, (name, family) in enumerate(FAMILIES.items()):
        for turn in range(each if name in families else 0):
            rows = characters(family, np.random.default_rng([seed, number, turn]))
            path = folder / f"{name.replace(' ', '_')}_{turn}.phy"
            lines = [f"t{tip:03d} {row.tobytes().decode()}" for tip, row in enumerate(rows)]
            path.write_text("\n".join([f"{len(rows)} {rows.shape[1]}", *lines]) + "\n")
            yield path.stem, path, MODELS.get(family.alphabet, "GTR+FC+G4")


def _ended(task: Task) -> Ended:
    if task.contender in VARIANTS:
        began = time.process_time()
        problem = load_problem(task.path, task.model, ignore)
        resources = Resources(device=task.device)
        search = prepare_search(problem, VARIANTS[task.contender], resources, seed=task.seed)
        lnl = search.run().lnl
        return Ended(task.name, task.contender, lnl, time.process_time() - began)
    return _by_program(task)


def _by_program(task: Task) -> Ended:
    """A program's tree, scored as ours are: models and branch lengths are optimised again."""
    folder = task.path.with_suffix(f".{Path(task.contender).name}")
    folder.mkdir()
    if "raxml" in task.contender.lower():
        name, tree = "RAxML 8", folder / "RAxML_bestTree.of"
        words = ["-m", OF_RAXML[task.model], "-p", task.seed, "-n", "of", "-w", folder, "-T", 1]
    else:
        name, tree = "IQ-TREE", folder / "of.treefile"
        words = ["-m", OF_IQ_TREE[task.model], "-seed", task.seed, "-pre", folder / "of"]
        words += ["-nt", "1", "-quiet"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    command = [task.contender, "-s", task.path, *words]
    subprocess.run([*map(str, command)], check=True, capture_output=True)
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    problem = load_problem(task.path, task.model, ignore)
    engines = open_engines(Resources(device=task.device), Workload.of(problem))
    fitted = fit_topology(
        engines.likelihood, read_tree(str(tree), problem, ignore), problem.model, ignore,
        optimise_parameters=True, optimise_lengths=True,
    )  # fmt: skip
    return Ended(task.name, name, fitted.lnl, cpu)


def _print(
    contender: str, ends: Sequence[Ended], best: dict[str, float], cpus: dict[str, float]
) -> None:
    lacks = sorted(((best[end.name] - end.lnl, end.name) for end in ends), reverse=True)
    short, far = (sum(lack > bound for lack, _ in lacks) for bound in (SHORT, FAR))
    worst = ", ".join(f"{name} {lack:.1f}" for lack, name in lacks[:5] if lack > SHORT)
    total, cpu = sum(lack for lack, _ in lacks), sum(end.cpu for end in ends)
    dear = sum(end.cpu > MOST_CPU * cpus.get(end.name, np.inf) for end in ends)
    numbers = f"{len(ends)} | {short} | {far} | {total:.1f} | {cpu:.0f} | {dear}"
    print(f"| {contender} | {numbers} | {worst} |")


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.hard", description=__doc__)
    add = parser.add_argument
    add("--seed", type=int, default=int(time.time()), help="of the alignments; default: the time")
    add("--each", type=int, default=3, help="alignments of each family")
    add("--families", default=",".join(FAMILIES), help="with commas between")
    add("--only", default=",".join(VARIANTS), help="variants, with commas between")
    add("--processes", type=int, default=os.cpu_count())
    add("--device", help="as mltree's --device")
    add("--iq-tree", default=shutil.which("iqtree2"), help="IQ-TREE; none where empty")
    add("--raxml", default=shutil.which("raxmlHPC"), help="RAxML 8; none where empty")
    options = parser.parse_args(arguments)
    os.environ.update(ALONE)
    families = options.families.split(",")
    contenders = [*filter(None, [options.iq_tree, options.raxml]), *options.only.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        tasks = [
            Task(*one, contender, 1, options.device)
            for contender in contenders
            for one in alignments(Path(folder), options.seed, options.each, families)
        ]
        with get_context("spawn").Pool(options.processes) as pool:
            ends = list(pool.imap_unordered(_ended, tasks))
    best: dict[str, float] = {}
    for end in ends:
        best[end.name] = max(end.lnl, best.get(end.name, -np.inf))
    cpus = {end.name: end.cpu for end in ends if end.contender == "IQ-TREE"}
    print(f"Seed {options.seed}, {options.each} of each family, one core a search\n")
    print("| search | alignments | > 0.1 below the best | > 1 | sum | CPU s | dear | worst |")
    print("|---|---|---|---|---|---|---|---|")
    for contender in dict.fromkeys(end.contender for end in ends):
        _print(contender, [end for end in ends if end.contender == contender], best, cpus)


if __name__ == "__main__":
    main()
