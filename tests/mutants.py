"""Mutation testing: of small faults planted one by one, how many do the tests notice?

    make mutants MUTANTS='mltree/tree mltree/treesearch/spr.py --sample 40 --seed 1'

cosmic-ray lists and plants the faults; pytest runs the tests that mirror the faulty package, those
of the faulty module first, until one fails. Everything happens in a copy of this checkout. The
sample is drawn from places in the code, not from faults: an operator with ten replacements weighs
no more than a constant with two. Survivors are printed as differences; each is a missing test, a
constant that only costs time, or a program that does the same as before.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from cosmic_ray.commands import init
from cosmic_ray.modules import find_modules
from cosmic_ray.mutating import MutationVisitor, mutate_and_test
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import use_db
from cosmic_ray.work_item import MutationSpec, WorkItem, WorkResult

ROOT = Path(__file__).parents[1]

COPIED = ("mltree", "opencl", "tests", "datasets", "bench", "pyproject.toml", "README.md")

SELF_CHECKS = {"strict", "frozen"}
"""Arguments by which Python checks the program: without them a right program does the same."""

OPTIONS = "-x -q -p no:cacheprovider -p no:xdist --no-header -o addopts=--import-mode=importlib"
"""Of pytest: quick to fail, and nothing that outlives the run."""

PATIENCE = 4
"""A fault that makes the tests take so many times longer than they do without it is noticed."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Sample, plant, test, report. Exit code 1 if fewer were killed than asked for."""
    options = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy2)(source, copy / name)
        os.chdir(copy)
        os.environ["PYTHONPATH"] = folder
        killed = sum(_tested(path, options.sample, options.seed) for path in options.paths)
    share = killed / (options.sample * len(options.paths))
    raise SystemExit(share < options.at_least)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("paths", nargs="+", type=Path, help="packages or modules, from the root of the checkout")
    add("--sample", type=int, default=40, help="faults for each of the paths")
    add("--seed", type=int, default=1)
    add("--at-least", type=float, default=0.9, help="share to be killed; else the exit code is 1")
    return parser


def _tested(path: Path, sample: int, seed: int) -> int:
    """Plant a sample of faults under a path; print what happens; how many the tests killed."""
    tests = Path("tests", *path.with_suffix("").parts[1:2])
    started = time.monotonic()
    subprocess.run(_command(tests), check=True, shell=True, stdout=subprocess.DEVNULL)
    limit = 60 + PATIENCE * (time.monotonic() - started)
    killed = planted = 0
    for item in _sampled(path, sample, seed):
        (fault,) = item.mutations
        result = mutate_and_test(item.mutations, _command(tests, fault.module_path), limit)
        planted += 1
        killed += result.is_killed
        where = f"{fault.module_path}:{fault.start_pos[0]} {fault.operator_name}"
        _say("killed  " if result.is_killed else "SURVIVED", where, _reason(result))
    _say(f"{path}: {killed} of {planted} killed")
    return killed


def _say(*words: str) -> None:
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


def _command(tests: Path, module: Path | None = None) -> str:
    """Runs a folder of tests up to the first failure, first those that mirror a module."""
    mirrors = sorted(map(str, tests.glob(f"test_{module.stem}*.py"))) if module else []
    # pytest would join a file and its folder into one, in the folder's order.
    first = f"--keep-duplicates {' '.join(mirrors)} " if mirrors else ""
    return f"{sys.executable} -m pytest {OPTIONS} {first}{tests}"


def _sampled(path: Path, sample: int, seed: int) -> list[WorkItem]:
    """So many faults at different places, the same for the same code and seed."""
    with tempfile.TemporaryDirectory() as folder, use_db(Path(folder, "session.sqlite")) as db:
        init(sorted(find_modules([path])), db, {})
        items = db.work_items
    places: dict[tuple[object, ...], list[WorkItem]] = {}
    for item in items:
        (fault,) = item.mutations
        places.setdefault((fault.module_path, fault.start_pos, fault.end_pos), []).append(item)
    rng = random.Random(seed)
    ordered = [places[place] for place in sorted(places)]
    rng.shuffle(ordered)
    chosen: Iterator[WorkItem] = (rng.choice(choices) for choices in ordered)
    return list(islice((item for item in chosen if _changes_the_program(*item.mutations)), sample))


def _changes_the_program(fault: MutationSpec) -> bool:
    """Whether the code differs in more than annotations and checks of itself."""
    before = fault.module_path.read_text(encoding="utf-8")
    operator = get_operator(fault.operator_name)(**fault.operator_args)
    try:
        after = MutationVisitor.mutate_code(before, operator, fault.occurrence)
        return after is not None and _bare(before) != _bare(after)
    except (AttributeError, SyntaxError):  # 8.7: exceptions with a dot; a * among parameters
        return False


def _bare(code: str) -> str:
    tree = _Strip().visit(ast.parse(code))
    return ast.dump(tree)


class _Strip(ast.NodeTransformer):
    """Takes out what does not run, and what only checks."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST | None:
        return None if node.arg in SELF_CHECKS else self.generic_visit(node)


def _reason(result: WorkResult) -> str:
    """What killed a fault, in a few words; the fault itself if nothing did."""
    if not result.is_killed:
        changed = [line for line in (result.diff or "").splitlines() if line[:1] in "+-"]
        return "\n" + "\n".join(line for line in changed if line[:3] not in {"+++", "---"})
    lines = (result.output or "").splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return failed[0] if failed else (lines[-1] if lines else "")


if __name__ == "__main__":
    main()
