"""The same bits whatever instructions the libraries underneath make use of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]


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
    """Kernels for instructions that the processor lacks would end the process."""
    information = Path("/proc/cpuinfo")
    flags = information.read_text().split() if information.exists() else []
    needed = {"Prescott": "pni", "Sandybridge": "avx", "Haswell": "avx2", "SkylakeX": "avx512f"}
    results = [
        result_of(tmp_path, OPENBLAS_CORETYPE=kernel)
        for kernel, flag in needed.items()
        if flag in flags
    ]
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    results.append(result_of(tmp_path, NPY_DISABLE_CPU_FEATURES=" ".join(found)))
    assert len(set(results)) == 1
