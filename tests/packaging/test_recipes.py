"""The recipes of containers and of conda, as far as they can be checked without building them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import mltree

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

sys.path.insert(0, str(Path(__file__).parent))
from follow_readme import commands

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "packaging"

CONDA_NAMES = {"pocl-binary-distribution": "pocl"}
"""What conda-forge calls differently."""


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


@pytest.fixture(scope="module")
def recipe() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((RECIPES / "recipe.yaml").read_text())
    return loaded


def copied_by_docker() -> dict[str, str]:
    """What is copied, and where to."""
    found = {}
    for line in re.findall(r"^COPY (.*)$", (RECIPES / "Dockerfile").read_text(), re.MULTILINE):
        *sources, target = line.split()
        for source in sources:
            found[source] = f"{target}{source}" if target.endswith("/") else target
    return found


def sections() -> dict[str, str]:
    """Apptainer's, without their indents."""
    _, *parts = re.split(r"^%(\w+)\n", (RECIPES / "mltree.def").read_text(), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_containers_hold_what_it_takes_to_install(tmp_path: Path) -> None:
    files = copied_by_docker()
    assert files == dict(line.split() for line in sections()["files"].strip().splitlines())
    for source, target in files.items():
        place = tmp_path / target.removeprefix("/")
        place.parent.mkdir(exist_ok=True)
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        copy(ROOT / source, place)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
        cwd=tmp_path / "src",
        check=True,
        capture_output=True,
    )


def test_docker_is_sent_what_it_copies() -> None:
    ignored = (RECIPES / "Dockerfile.dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == set(copied_by_docker())


def test_containers_have_a_python_that_will_do(project: dict[str, Any]) -> None:
    least = tuple(map(int, project["requires-python"].removeprefix(">=").split(".")))
    for name in ("Dockerfile", "mltree.def"):
        (version,) = re.findall(r"python:(\d+)\.(\d+)-slim", (RECIPES / name).read_text())
        assert tuple(map(int, version)) >= least


def test_both_containers_install_alike() -> None:
    for line in ("pip install --no-cache-dir '/src[draw]'", "pocl-opencl-icd"):
        assert line in (RECIPES / "Dockerfile").read_text()
        assert line in sections()["post"]
    assert sections()["runscript"].strip() == 'exec mltree "$@"'


def test_conda_requires_what_pip_requires(project: dict[str, Any], recipe: dict[str, Any]) -> None:
    wanted = {f"python {project['requires-python']}"}
    for dependency in project["dependencies"]:
        name, version = re.fullmatch(r"([\w-]+)([^;]*)(?:;.*)?", dependency).groups()  # type: ignore[union-attr]
        wanted.add(f"{CONDA_NAMES.get(name, name)} {version}".strip())
    least = recipe["context"]["python_min"]
    found = {line.replace("${{ python_min }}", least) for line in recipe["requirements"]["run"]}
    assert found == wanted


def test_conda_makes_this_version(project: dict[str, Any], recipe: dict[str, Any]) -> None:
    assert recipe["context"]["version"] == mltree.__version__
    assert recipe["about"]["license"] == project["license"]
    ((name, target),) = project["scripts"].items()
    assert recipe["build"]["python"]["entry_points"] == [f"{name} = {target}"]


def test_the_readme_can_be_followed() -> None:
    """Commands are run by test_console.py; follow_readme.py runs all, pip's too."""
    found = commands((ROOT / "README.md").read_text(encoding="utf-8"))
    for command in (
        "python3 -m venv",
        "pip install '.[draw]'",
        "source ",
        "mltree run ",
        "mltree ",
    ):
        assert command in found.pop(0)
    assert not found
