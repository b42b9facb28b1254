"""Other programs, found on PATH or named by ``--rival NAME=FILE``, run as their users run them.

Each gets the same alignment, an equal model and, but for searches from the own starts of each, the
same fixed starting tree; all else is its own default. FastTree has no equal model (its CAT
approximation guides the search) and is marked so.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.processes import OUTPUT

__all__ = ["PROGRAMS", "Job", "NotRun", "Program", "Rival", "find_rivals"]

VERSION_TIMEOUT = 20.0
"""Seconds for a program to say its version."""

DIGITS = 6
"""Decimals of a claimed log-likelihood; PhyML prints more than there are."""


class NotRun(Exception):
    """The program cannot do the job: no equal model, or not on so many threads."""


@dataclass(frozen=True)
class Job:
    """What a rival is given: everything lies in its own working folder."""

    folder: Path
    alignment: Path
    start: Path | None
    """The tree to start from; None for the program's own."""
    model: str
    """RAxML-NG's notation."""
    seed: int
    threads: int


@dataclass(frozen=True)
class Program:
    """How one program is called."""

    key: str
    """What ``--rival`` and ``--rivals`` call it."""
    name: str
    executables: tuple[str, ...]
    """Names looked for on PATH, the fastest first."""
    version_arguments: tuple[str, ...]
    version_pattern: str
    arguments: Callable[[Job], list[str]]
    tree: str
    """The result's file name in the working folder."""
    lnl: str
    """What precedes the tree's log-likelihood in what the program prints (regular expression)."""
    environment: tuple[tuple[str, str], ...] = ()
    note: str = ""
    build: str = ""
    """What sets it apart from other builds of the same program."""


@dataclass(frozen=True)
class Rival:
    """A program that is installed here."""

    program: Program
    executable: str
    version: str

    @property
    def title(self) -> str:
        """For tables."""
        build = f" ({self.program.build})" if self.program.build else ""
        return f"{self.program.name} {self.version}{build}"

    def command(self, job: Job) -> list[str]:
        """The command line. Raises: NotRun."""
        return [self.executable, *self.program.arguments(job)]

    def answer(self, folder: Path) -> dict[str, Any]:
        """Its tree, and the log-likelihood that it claims; empty if it has left no tree."""
        tree, printed = folder / self.program.tree, folder / OUTPUT
        if not tree.exists():
            return {}
        claims = re.findall(self.program.lnl + r"(-\d+\.\d+)", printed.read_text(errors="replace"))
        claimed = {"claimed_lnl": round(float(claims[-1]), DIGITS)} if claims else {}
        return {"tree": tree.read_text().strip(), **claimed}


MODELS: dict[str, dict[str, list[str]]] = {
    "JC+G4": {
        "raxml": ["-m", "GTRGAMMA", "--JC69"],
        "iqtree": ["-m", "JC+G4"],
        "phyml": ["-d", "nt", "-m", "JC69", "-c", "4", "-a", "e"],
        "fasttree": ["-nt", "-gamma"],
    },
    "GTR+FC+G4": {
        "raxml": ["-m", "GTRGAMMA"],
        "iqtree": ["-m", "GTR+F+G4"],
        "phyml": ["-d", "nt", "-m", "GTR", "-f", "e", "-c", "4", "-a", "e"],
        "fasttree": ["-nt", "-gtr", "-gamma"],
    },
    "LG+G4": {
        "raxml": ["-m", "PROTGAMMALG"],
        "iqtree": ["-m", "LG+G4"],
        "phyml": ["-d", "aa", "-m", "LG", "-f", "m", "-c", "4", "-a", "e"],
        "fasttree": ["-lg", "-gamma"],
    },
}
"""Equal models, in each program's words."""


def _model(job: Job, program: str) -> list[str]:
    try:
        return MODELS[job.model][program]
    except KeyError:
        raise NotRun(f"{program} has no words for {job.model}") from None


def _start(option: str, job: Job) -> list[str]:
    """The option that names the starting tree, if there is one."""
    return [option, str(job.start)] if job.start else []


def _raxml(job: Job) -> list[str]:
    """RAxML without a word about threads."""
    return ["-s", str(job.alignment), *_start("-t", job), *_model(job, "raxml"),
            "-p", str(job.seed), "-n", "bench", "-w", str(job.folder)]  # fmt: skip


def _raxml_sequential(job: Job) -> list[str]:
    if job.threads > 1:
        raise NotRun("a build without threads")
    return _raxml(job)


def _raxml_threads(job: Job) -> list[str]:
    if job.threads < 2:
        raise NotRun("the threads build takes two at least, whatever -T says")
    return [*_raxml(job), "-T", str(job.threads)]


def _raxml_ng(job: Job) -> list[str]:
    return ["--search", "--msa", str(job.alignment), "--model", job.model,
            *_start("--tree", job), "--prefix", "bench", "--seed", str(job.seed),
            "--threads", str(job.threads)]  # fmt: skip


def _iqtree(job: Job) -> list[str]:
    return ["-s", str(job.alignment), *_start("-t", job), *_model(job, "iqtree"),
            "-seed", str(job.seed), "-T", str(job.threads), "--prefix", "bench"]  # fmt: skip


def _phyml(job: Job) -> list[str]:
    if job.threads > 1:
        raise NotRun("PhyML searches one tree on one thread")
    return ["-i", job.alignment.name, *_start("-u", job), *_model(job, "phyml"), "-o", "tlr",
            "-s", "SPR", "-b", "0", "--r_seed", str(job.seed), "--quiet",
            "--no_memory_check"]  # fmt: skip


def _fasttree(job: Job) -> list[str]:
    if job.threads > 1:
        raise NotRun("FastTree is run on one thread")
    return [*_model(job, "fasttree"), "-seed", str(job.seed), *_start("-intree", job),
            "-out", "bench.nwk", str(job.alignment.with_suffix(".fasta"))]  # fmt: skip


PROGRAMS = (
    Program("raxml", "RAxML", ("raxmlHPC-AVX2", "raxmlHPC-AVX"), ("-v",), r"RAxML version (\S+)",
            _raxml_sequential, "RAxML_bestTree.bench", r"Final GAMMA-based Score of best tree "),
    Program("raxml-threads", "RAxML",
            ("raxmlHPC-PTHREADS-AVX2", "raxmlHPC-PTHREADS-AVX", "raxmlHPC-PTHREADS", "raxmlHPC"),
            ("-v",), r"RAxML version (\S+)", _raxml_threads, "RAxML_bestTree.bench",
            r"Final GAMMA-based Score of best tree ", build="PTHREADS"),
    Program("raxml-ng", "RAxML-NG", ("raxml-ng",), ("--version",), r"RAxML-NG v\. ?(\S+)",
            _raxml_ng, "bench.raxml.bestTree", r"Final LogLikelihood: "),
    Program("iqtree", "IQ-TREE", ("iqtree3", "iqtree2", "iqtree"), ("--version",),
            r"version (\S+)", _iqtree, "bench.treefile", r"BEST SCORE FOUND : "),
    Program("phyml", "PhyML", ("phyml",), ("--version",), r"(\d+\.\d+\.\d+)", _phyml,
            "alignment.phy_phyml_tree.txt", r"Log likelihood of the current tree: ",
            (("PHYMLMPI", "no"),)),
    Program("fasttree", "FastTree", ("fasttree", "FastTree"), ("-help",), r"FastTree (\d[\d.]+\d)",
            _fasttree, "bench.nwk", r"Gamma\(20\) LogLk = ",
            note="its own CAT approximation guides the search"),
)  # fmt: skip
"""Everything that this file knows how to run."""


def find_rivals(named: Sequence[str] = (), only: Sequence[str] | None = None) -> list[Rival]:
    """The programs that are installed, or named as NAME=FILE; ``only`` keeps those listed.

    Raises:
        SystemExit: a named program is unknown or cannot be run.
    """
    files = dict(_named(entry) for entry in named)
    found = []
    for program in PROGRAMS:
        if only is not None and program.key not in only:
            continue
        given = [files[program.key]] if program.key in files else []
        for executable in given or program.executables:
            path = shutil.which(executable)
            if path is not None:
                found.append(Rival(program, path, _version(program, path)))
                break
    return found


def _named(entry: str) -> tuple[str, str]:
    key, equals, file = entry.partition("=")
    keys = [program.key for program in PROGRAMS]
    if not equals or key not in keys or shutil.which(file) is None:
        known = ", ".join(keys)
        raise SystemExit(f"bench: --rival {entry}: NAME=FILE, a program that runs; {known}")
    return key, str(Path(file).resolve())


def _version(program: Program, path: str) -> str:
    try:
        said = subprocess.run(
            [path, *program.version_arguments],
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT,
            check=False,
            stdin=subprocess.DEVNULL,
            env={"PATH": "/usr/bin:/bin", **dict(program.environment)},
        )
    except (OSError, subprocess.TimeoutExpired):
        return "of unknown version"
    match = re.search(program.version_pattern, said.stdout + said.stderr)
    return match.group(1) if match else "of unknown version"
