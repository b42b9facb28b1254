"""Alignments and starting trees: shipped, simulated into a cache folder, or given by the user."""

from __future__ import annotations

import hashlib
import lzma
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from bench.provenance import ROOT
from mltree.data.alignments import Alignment, read_alignment
from mltree.data.patterns import compress
from mltree.models.names import default_model_name
from mltree.tree.newick import write_newick
from mltree.tree.parsimony import packed, stepwise_additions
from mltree.tree.topology import random_topology

__all__ = ["PAPER_MODEL", "PAPER_SIZES", "Dataset", "Source", "sha256"]

PAPER_SIZES = tuple(1024 << power for power in range(9))
"""Patterns of the PLL paper's Table I: 1,024 to 262,144."""

PAPER_MODEL = "JC+G4"
PAPER_TRUTH = "JC+G4{0.8}"
"""What its sites evolve under."""
PAPER_TAXA = 15
PAPER_SEED = 1

_DNA = "GTR{1/3/1/1/4/1}+FU{0.3/0.2/0.2/0.3}+G4{0.5}"

SIMULATED = {
    "sim200x2000": ["--taxa", "200", "--sites", "2000", "--model",
                    _DNA],
    "sim2000x1250": ["--taxa", "2000", "--sites", "1250", "--model",
                     _DNA],
    "sim1000x1000": ["--taxa", "1000", "--sites", "1000", "--model",
                     _DNA],
    "sim50x2000lg": ["--taxa", "50", "--sites", "2000", "--model", "LG+G4{0.7}"],
    "sim24x400lg": ["--taxa", "24", "--sites", "400", "--mean-length", "0.1",
                    "--model", "LG+G4{0.7}"],
    "sim24x500": ["--taxa", "24", "--sites", "500", "--mean-length", "0.1", "--model", _DNA],
    "sim27x1949": ["--taxa", "27", "--sites", "1949", "--mean-length", "0.03", "--model", "JC"],
    "sim50x600": ["--taxa", "50", "--sites", "600", "--mean-length", "0.006", "--model", _DNA],
    "sim71x300": ["--taxa", "71", "--sites", "300", "--random-tree", "yule",
                  "--mean-length", "0.05", "--model", _DNA],
    "sim123x700": ["--taxa", "123", "--sites", "700", "--random-tree", "yule",
                   "--mean-length", "0.03", "--model", _DNA],
    "sim150x1000": ["--taxa", "150", "--sites", "1000", "--mean-length", "0.1", "--model", _DNA],
    "sim200x500": ["--taxa", "200", "--sites", "500", "--mean-length", "0.02", "--model", _DNA],
}  # fmt: skip
"""Alignments that anyone can make again: options of ``mltree simulate``."""


@dataclass(frozen=True)
class Dataset:
    """An alignment, the model for it and the tree that every contender starts from."""

    name: str
    alignment: Path
    model: str
    """RAxML-NG's notation."""
    start: Path | None
    """Newick; None where each program makes starting trees of its own."""
    origin: str
    """``shipped``, ``simulated`` or ``given``."""


@dataclass(frozen=True)
class Source:
    """Where alignments are looked for: the given folder, the shipped ones, the simulator."""

    cache: Path
    given: Path | None = None
    seed: int = 1
    start: str = "parsimony"
    """``parsimony``, ``random`` or ``own``: none is given to anybody."""

    def paper(self, size: int) -> Dataset:
        """The PLL paper's workload with so many distinct columns: 15 taxa, JC + gamma.

        All sizes start from one tree, made from the smallest.
        """
        path = self._given_paper(size) or self._simulated_paper(size)
        origin = "simulated" if path.name.startswith("simulated") else "given"
        start = self._given_start("seed15") if origin == "given" else None
        if start is None:
            smallest = self._given_paper(PAPER_SIZES[0]) or self._simulated_paper(PAPER_SIZES[0])
            start = self._made_start(smallest)
        return Dataset(f"paper {size}", path.resolve(), PAPER_MODEL, start, origin)

    def dataset(self, name: str) -> Dataset:
        """An alignment by name, from the first place that has it.

        Raises:
            SystemExit: no place has it.
        """
        for folder, origin in ((self.given, "given"), (ROOT / "datasets", "shipped")):
            if folder is not None and (path := self._stored(folder, name)) is not None:
                return self._complete(name, path, origin)
        if name in SIMULATED:
            path = self.cache / f"{name}-{self.seed}.phy"
            self._simulate(path, [*SIMULATED[name], "--seed", str(self.seed)])
            return self._complete(name, path, "simulated")
        raise SystemExit(f"bench: no alignment {name!r}: give its folder with --data")

    def taxa(self, taxa: int, sites: int = 1000) -> Dataset:
        """A simulated DNA alignment of so many taxa."""
        name = f"sim{taxa}x{sites}"
        path = self.cache / f"{name}-{self.seed}.phy"
        model = _DNA
        options = ["--taxa", str(taxa), "--sites", str(sites), "--model", model]
        self._simulate(path, [*options, "--seed", str(self.seed)])
        return self._complete(name, path, "simulated")

    def _complete(self, name: str, path: Path, origin: str) -> Dataset:
        model = default_model_name(_read(path).alphabet)
        start = self._given_start(name) or self._made_start(path)
        return Dataset(name, path.resolve(), model, start, origin)

    def _stored(self, folder: Path, name: str) -> Path | None:
        """The folder's alignment of that name, unpacked where it is packed."""
        path, packed_path = folder / f"{name}.phy", folder / f"{name}.phy.xz"
        if path.exists() or not packed_path.exists():
            return path if path.exists() else None
        unpacked = self.cache / f"given-{name}.phy"
        if not unpacked.exists():
            self.cache.mkdir(parents=True, exist_ok=True)
            unpacked.write_bytes(lzma.decompress(packed_path.read_bytes()))
        return unpacked

    def _given_paper(self, size: int) -> Path | None:
        """The given file of that size, or the first columns of a longer one."""
        for length in (size, *(s for s in PAPER_SIZES if s > size)) if self.given else ():
            for suffix in (".phy", ".phy.xz"):
                path = Path(self.given or "") / f"seed15_{length}{suffix}"
                if path.exists():
                    return path if (length, suffix) == (size, ".phy") else self._cut(path, size)
        return None

    def _cut(self, path: Path, size: int) -> Path:
        target = self.cache / f"given-seed15_{size}.phy"
        if not target.exists():
            content = path.read_bytes()
            text = (lzma.decompress(content) if path.suffix == ".xz" else content).decode("ascii")
            rows = [line.split() for line in text.splitlines()[1:] if line.strip()]
            lines = [f"{len(rows)} {size}", *(f"{name}  {row[:size]}" for name, row in rows)]
            self.cache.mkdir(parents=True, exist_ok=True)
            target.write_text("\n".join(lines) + "\n")
        return target

    def _simulated_paper(self, size: int) -> Path:
        path = self.cache / f"simulated-paper-{size}.phy"
        options = ["--taxa", str(PAPER_TAXA), "--unique", str(size), "--model", PAPER_TRUTH]
        self._simulate(path, [*options, "--seed", str(PAPER_SEED)])
        return path

    def _simulate(self, path: Path, options: list[str]) -> None:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
            subprocess.run(
                [sys.executable, "-m", "mltree", "simulate", *options, "--quiet", "-o", str(path)],
                env={**os.environ, "PYTHONPATH": paths},
                check=True,
            )

    def _given_start(self, name: str) -> Path | None:
        if self.given is None or self.start == "own":
            return None
        kind = {"parsimony": "pars", "random": "rand"}[self.start]
        path = self.given.resolve() / "start" / f"{name}.{kind}.nwk"
        return path if path.exists() else None

    def _made_start(self, alignment: Path) -> Path | None:
        if self.start == "own":
            return None
        path = self.cache / f"{alignment.stem}.{self.start}-{self.seed}.nwk"
        if not path.exists():
            patterns, rng = compress(_read(alignment)), np.random.default_rng(self.seed)
            if self.start == "parsimony":
                (tree,) = stepwise_additions(packed(patterns), [rng])
            else:
                tree = random_topology(patterns.n_tips, rng)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(write_newick(tree, patterns.taxa) + "\n")
        return path.resolve()


@lru_cache(maxsize=2)
def _read(path: Path) -> Alignment:
    return read_alignment(path)


def sha256(path: Path) -> str:
    """The file's digest, as stored with results."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
