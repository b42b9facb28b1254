"""Other programs, found on PATH or named by ``--rival NAME=FILE``, run as their users run them.

Each gets the same alignment, the same fixed starting tree and an equal model; all else is its own
default. FastTree has no equal model (its CAT approximation guides the search) and is marked so.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PROGRAMS", "Job", "NotRun", "Program", "Rival", "find_rivals"]

VERSION_TIMEOUT = 20.0
"""Seconds for a program to say its version."""


class NotRun(Exception):
    """The program cannot do the job: no equal model, or not on so many threads."""


@dataclass(frozen=True)
class Job:
    """What a rival is given: everything lies in its own working folder."""

    folder: Path
    alignment: Path
    start: Path
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


def _raxml(job: Job) -> list[str]:
    """RAxML without a word about threads."""
    return ["-s", str(job.alignment), "-t", str(job.start), *_model(job, "raxml"),
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
    return ["--search", "--msa", str(job.alignment), "--model", job.model, "--tree",
            str(job.start), "--prefix", "bench", "--seed", str(job.seed),
            "--threads", str(job.threads)]  # fmt: skip


def _iqtree(job: Job) -> list[str]:
    return ["-s", str(job.alignment), "-t", str(job.start), *_model(job, "iqtree"),
            "-seed", str(job.seed), "-T", str(job.threads), "--prefix", "bench"]  # fmt: skip


def _phyml(job: Job) -> list[str]:
    if job.threads > 1:
        raise NotRun("PhyML searches one tree on one thread")
    return ["-i", job.alignment.name, "-u", str(job.start), *_model(job, "phyml"), "-o", "tlr",
            "-s", "SPR", "-b", "0", "--r_seed", str(job.seed), "--quiet",
            "--no_memory_check"]  # fmt: skip


def _fasttree(job: Job) -> list[str]:
    if job.threads > 1:
        raise NotRun("FastTree is run on one thread")
    return [*_model(job, "fasttree"), "-seed", str(job.seed), "-intree", str(job.start),
            "-out", "bench.nwk", str(job.alignment.with_suffix(".fasta"))]  # fmt: skip


PROGRAMS = (
    Program("raxml", "RAxML", ("raxmlHPC-AVX2", "raxmlHPC-AVX"), ("-v",), r"RAxML version (\S+)",
            _raxml_sequential, "RAxML_bestTree.bench"),
    Program("raxml-threads", "RAxML",
            ("raxmlHPC-PTHREADS-AVX2", "raxmlHPC-PTHREADS-AVX", "raxmlHPC-PTHREADS", "raxmlHPC"),
            ("-v",), r"RAxML version (\S+)", _raxml_threads, "RAxML_bestTree.bench",
            build="PTHREADS"),
    Program("raxml-ng", "RAxML-NG", ("raxml-ng",), ("--version",), r"RAxML-NG v\. ?(\S+)",
            _raxml_ng, "bench.raxml.bestTree"),
    Program("iqtree", "IQ-TREE", ("iqtree3", "iqtree2", "iqtree"), ("--version",),
            r"version (\S+)", _iqtree, "bench.treefile"),
    Program("phyml", "PhyML", ("phyml",), ("--version",), r"(\d+\.\d+\.\d+)", _phyml,
            "alignment.phy_phyml_tree.txt", (("PHYMLMPI", "no"),)),
    Program("fasttree", "FastTree", ("fasttree", "FastTree"), ("-help",), r"FastTree (\d[\d.]+\d)",
            _fasttree, "bench.nwk", note="its own CAT approximation guides the search"),
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
