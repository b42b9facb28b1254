"""The worked example of CONTRIBUTING adds an operation, in as few files as it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

MOST_FILES = 4

FOLDERS = ("mltree", "opencl", "tests", "datasets")


def test_an_operation_is_added_in_few_files(tmp_path: Path) -> None:
    (example,) = re.findall(
        r"```diff\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert len(re.findall(r"^\+\+\+ b/", example, re.MULTILINE)) <= MOST_FILES
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__py*"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    subprocess.run(["git", "apply", "-"], input=example, text=True, check=True, cwd=tmp_path)
    (test,) = (ROOT.joinpath(name) for name in re.findall(r"^\+\+\+ b/(tests/\S+)", example, re.M))
    for command in (
        ["tests/contract_header.py"],
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "reference or native",
         str(test.relative_to(ROOT))],
    ):  # fmt: skip
        done = subprocess.run(
            [sys.executable, *command],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
