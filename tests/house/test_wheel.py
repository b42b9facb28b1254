"""What `pip install .` installs: the package with its kernels, usable from any folder."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_holds_every_kernel(installed: Path) -> None:
    ours = {path.name for path in (ROOT / "opencl").iterdir() if path.suffix in {".cl", ".h"}}
    assert {path.name for path in (installed / "mltree" / "opencl").iterdir()} >= ours


def test_the_wheel_holds_every_table_and_template(installed: Path) -> None:
    files = (path for path in (ROOT / "mltree").rglob("*") if path.is_file())
    ours = [path.relative_to(ROOT) for path in files if path.suffix not in {".py", ".pyc"}]
    assert "foreign_options.tsv" in {path.name for path in ours}
    assert all((installed / path).is_file() for path in ours)


def test_the_wheel_runs_from_another_folder(installed: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); import mltree; "
        f"assert mltree.__file__.startswith({str(installed)!r}), mltree.__file__; "
        "from mltree.cli.main import main; main()"
    )
    prefix = tmp_path / "run"
    alignment = ROOT / "datasets" / "primates.phy"
    run = subprocess.run(
        [sys.executable, "-c", code, str(installed), "search", str(alignment),
         "--preset", "fast", "--moves", "nni", "--prefix", str(prefix)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "run.mltree.bestTree").read_text().endswith(");\n")
