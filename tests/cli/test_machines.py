"""Machines that nobody prepared: a run goes on with a notice, or ends in one line; it never dies.

Runs are processes of their own, since drivers are told where to keep kernels before they load.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mltree.data.alignments import read_alignment
from mltree.data.patterns import compress
from mltree.device.pocl.linker import SUMS, keep_sum
from mltree.device.pocl.pocl import KERNELS
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.models.grammar import parse_model
from mltree.program.cases import Case
from mltree.program.engine import ReferenceEngine
from mltree.tree.newick import write_newick
from mltree.tree.topology import random_topology

ROOT = Path(__file__).parents[2]
PRIMATES = ROOT / "datasets" / "primates.phy"
MODEL = "HKY{2.5}+FE+G4{0.5}"

TOLD = (
    "HOME",
    "XDG_CACHE_HOME",
    "POCL_CACHE_DIR",
    "CUDA_CACHE_PATH",
    "PYOPENCL_NO_CACHE",
    "TMPDIR",
)
"""What this process was told, its driver has been told, and no other is to inherit."""

Ended = subprocess.CompletedProcess[str]
Start = Callable[..., Ended]


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A tree's file, and its lnL by the reference."""
    patterns = compress(read_alignment(str(PRIMATES)))
    tree = random_topology(patterns.n_tips, np.random.default_rng(1))
    tree.lengths[:] = 0.1
    path = tmp_path_factory.mktemp("tree") / "tree.nwk"
    path.write_text(write_newick(tree, patterns.taxa) + "\n")
    model = parse_model(MODEL, patterns.alphabet).arrays()
    engine = ReferenceEngine(patterns, model.n_categories, (1e-6, 100.0))
    (lnl,) = TreeLikelihood(engine, (1e-6, 100.0)).log_likelihoods([tree], [Case((model,))])
    return path, float(lnl)


POCL = KERNELS["POCL_CACHE_DIR"]
"""The folder of PoCL's programs."""


@pytest.fixture(scope="module")
def start(scored: tuple[Path, float], tmp_path_factory: pytest.TempPathFactory) -> Start:
    """start(limits, command, NAME=value): a run with one kernel, after these shell commands."""

    def start(limits: str = "", *command: str, **environment: str) -> Ended:
        folder = tmp_path_factory.mktemp("run")
        inherited = {name: value for name, value in os.environ.items() if name not in TOLD}
        evaluate = (
            "evaluate", str(PRIMATES), "--tree", str(scored[0]), "--model", MODEL,
            "--no-opt-model", "--no-opt-branches", "--prefix", str(folder / "run"),
        )  # fmt: skip
        arguments = [sys.executable, "-m", "mltree", *(command or evaluate)]
        return subprocess.run(
            ["/bin/sh", "-c", f"{limits}\nexec {shlex.join(arguments)}"],
            cwd=folder,
            env={**inherited, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder), **environment},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=300,
        )

    return start


@pytest.fixture(scope="module")
def cold(start: Start, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """A cache folder, and how the run ended that filled it: without a linker on its PATH."""
    folder = tmp_path_factory.mktemp("cold")
    return folder, start(XDG_CACHE_HOME=str(folder), PATH=str(folder / "nothing"))


@pytest.fixture
def warm(cold: tuple[Path, Ended]) -> str:
    """XDG_CACHE_HOME with the kernel in it."""
    return str(cold[0])


@pytest.fixture
def is_right(scored: tuple[Path, float]) -> Callable[[Ended], bool]:
    def is_right(run: Ended) -> bool:
        """Whether a run found the reference's lnL; shows what it said where it did not."""
        said = [x for x in run.stdout.splitlines() if x.startswith("Final log-likelihood")]
        assert run.returncode == 0, (run.returncode, run.stderr)
        return [float(x.split()[-1]) for x in said] == [pytest.approx(scored[1], abs=1e-3)]

    return is_right


Right = Callable[[Ended], bool]


def is_refused(run: Ended, words: str) -> bool:
    """Whether a run ended in one line with these words, and exit code 2."""
    *_, line = run.stderr.splitlines()
    return run.returncode == 2 and line.startswith("mltree: ") and words in line


def test_without_a_linker(cold: tuple[Path, Ended], is_right: Right) -> None:
    folder, run = cold
    assert is_right(run)
    assert "kernels are compiled" not in run.stderr
    assert list((folder / "mltree" / POCL).rglob("*.so"))
    assert (folder / "mltree").stat().st_mode & 0o777 == 0o700


HEADERS = 64 + 5 * 56
"""Bytes of an ELF file that tell of its length: the loader refuses a shorter one."""


def plant(warm: str, folder: Path) -> None:
    """Kernels of PoCL's own names, with their sums, that end whoever loads them."""
    shutil.copytree(Path(warm) / "mltree" / POCL, folder, dirs_exist_ok=True)
    libraries = list(folder.rglob("*.so"))
    assert libraries
    for library in libraries:
        content = library.read_bytes()
        library.write_bytes(content[:HEADERS].ljust(len(content), b"\xcc"))
        keep_sum(folder, library.read_bytes())


def test_planted_kernels_are_dangerous(start: Start, warm: str, tmp_path: Path) -> None:
    """Else the next test would show nothing."""
    shutil.copytree(Path(warm) / "mltree", tmp_path / "mltree")
    plant(warm, tmp_path / "mltree" / POCL)
    assert start(XDG_CACHE_HOME=str(tmp_path)).returncode != 0


def test_damaged_kernels_are_compiled_again(
    start: Start, warm: str, tmp_path: Path, is_right: Right
) -> None:
    shutil.copytree(Path(warm) / "mltree", tmp_path / "mltree")
    plant(warm, tmp_path / "mltree" / POCL)
    shutil.rmtree(tmp_path / "mltree" / POCL / SUMS)
    assert is_right(start(XDG_CACHE_HOME=str(tmp_path)))


def test_kernels_that_others_planted_are_not_run(
    start: Start, warm: str, tmp_path: Path, is_right: Right
) -> None:
    plant(warm, tmp_path / "pocl" / "kcache")  # where PoCL looks if it finds no home
    plant(warm, tmp_path / "mltree" / POCL)
    (tmp_path / "mltree").chmod(0o777)
    run = start(XDG_CACHE_HOME=str(tmp_path), HOME=str(tmp_path / "home"), TMPDIR=str(tmp_path))
    assert is_right(run)
    assert f"note: others may write to {tmp_path / 'mltree'}: kernels are compiled" in run.stderr


def test_no_home(start: Start, tmp_path: Path, is_right: Right) -> None:
    home = tmp_path / "home"
    run = start(HOME=str(home), TMPDIR=str(tmp_path))
    assert is_right(run)
    assert f"note: the home folder {home} is not there" in run.stderr
    assert not list(tmp_path.iterdir()), "no home is made, and the run's folder goes with it"


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ("ulimit -v 420000", "no OpenCL device can be used: the process may map 410 MiB"),
        ("ulimit -v 700000", "the process may map 683 MiB of memory (ulimit -v)"),
        ("ulimit -f 100", "no folder can keep compiled kernels"),
    ],
)
def test_limits_are_named(start: Start, warm: str, limits: str, words: str) -> None:
    assert is_refused(start(limits, XDG_CACHE_HOME=warm, MLTREE_THREADS="2"), words)


@pytest.mark.parametrize("command", ["check", "evaluate", "search"])
@pytest.mark.parametrize("limit", [100_000, 204_800])
def test_no_memory_for_numpy_is_one_line(start: Start, command: str, limit: int) -> None:
    more = ("--tree", "none.nwk") if command == "evaluate" else ()
    limits = f"ulimit -v {limit}"
    run = start(limits, command, str(PRIMATES), *more, MLTREE_THREADS="2")
    assert (run.returncode, run.stdout, len(run.stderr.splitlines())) == (2, "", 1)
    assert is_refused(
        run, f"the process may map {limit >> 10} MiB of memory (ulimit -v), and needs"
    )
    assert start(limits, command, "--help").returncode == 0


THREADLESS = """
import sys, threading
left, really = int(sys.argv.pop(1)), threading.Thread.start
def start(thread):
    global left
    left -= 1
    if left < 0:
        raise RuntimeError("can't start new thread")
    really(thread)
threading.Thread.start = start
from mltree.__main__ import main
main()
"""
"""mltree where the system starts so many threads only (``ulimit -u``, which root has not)."""


@pytest.mark.parametrize(
    ("count", "arguments"),
    [
        (0, ["--help"]),
        (0, ["check", str(PRIMATES)]),
        (2, ["check", str(PRIMATES)]),
        (2, ["search", str(PRIMATES), "--prefix", "x"]),
        (5, ["search", str(PRIMATES), "--prefix", "x"]),
    ],
)
def test_no_thread_is_one_line(count: int, arguments: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", THREADLESS, str(count), *arguments]
    environment = {**os.environ, "MLTREE_THREADS": "2", "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in run.stderr
    assert is_refused(run, "the system refuses to start threads (ulimit -u")


def test_the_reference_needs_none_of_it(start: Start) -> None:
    run = start(
        "ulimit -v 420000; ulimit -f 100", "check", str(PRIMATES), "--device", "reference",
        MLTREE_THREADS="2", XDG_CACHE_HOME="/proc", HOME="/proc", TMPDIR="/proc", PATH="",
    )  # fmt: skip
    assert run.returncode == 0
    assert all(line.startswith("[00:") for line in run.stderr.splitlines())


@pytest.mark.parametrize(
    ("limits", "environment"),
    [
        ("exec <&-", {"LC_ALL": "C"}),
        ("ulimit -n 64", {"LC_ALL": "xx_XX.none", "PYTHONUTF8": "0"}),
    ],
    ids=["closed stdin", "few files"],
)
def test_what_does_not_matter(
    start: Start, warm: str, limits: str, environment: dict[str, str], is_right: Right
) -> None:
    assert is_right(start(limits, XDG_CACHE_HOME=warm, **environment))


def test_a_damaged_calibration_is_told(start: Start, warm: str, is_right: Right) -> None:
    (file,) = Path(warm).glob("mltree/calibration-*.json")
    whole = file.read_text()
    file.write_text("[" * 100_000)
    try:
        run = start(XDG_CACHE_HOME=warm)
    finally:
        file.write_text(whole)
    assert is_right(run)
    assert f"note: {file} is damaged" in run.stderr


FOLDERS: dict[str, Callable[[Path], str]] = {
    "none": lambda path: str(path / "none"),
    "process": lambda _: "/proc",
    "empty": lambda _: "",
    "relative": lambda _: "here",
    "file": lambda path: str(_file(path)),
    "open": lambda path: str(_folder(path, 0o777)),
    "another's": lambda path: str(_folder(path, 0o755)),
    "new": lambda path: str(path / "new"),
    "ö b": lambda path: str(path / "ö b\n"),
}


def _file(path: Path) -> Path:
    (path / "file").touch()
    return path / "file"


def _folder(path: Path, mode: int) -> Path:
    folder = path / oct(mode)
    (folder / "mltree").mkdir(parents=True, exist_ok=True)
    (folder / "mltree").chmod(mode)
    if mode == 0o755 and os.geteuid() == 0:
        os.chown(folder / "mltree", 4321, 4321)
    return folder


@pytest.mark.cases(1, 60)
def test_any_mixture_ends_well(
    case: int, start: Start, warm: str, tmp_path: Path, is_right: Right
) -> None:
    rng = random.Random(case)
    names = ("HOME", "XDG_CACHE_HOME", "POCL_CACHE_DIR", "TMPDIR", "CUDA_CACHE_PATH")
    environment = {
        name: FOLDERS[rng.choice(list(FOLDERS))](tmp_path) for name in names if rng.random() < 0.5
    }
    environment.setdefault("HOME", str(tmp_path))
    if rng.random() < 0.3:
        environment["XDG_CACHE_HOME"] = warm
    environment["PATH"] = rng.choice(["", str(tmp_path / "bin"), os.environ["PATH"]])
    environment["LC_ALL"] = rng.choice(["C", "C.UTF-8", "none"])
    limits = rng.choice(["", "", f"ulimit -v {rng.randrange(300_000, 2_000_000)}", "ulimit -f 500"])
    run = start(f"{limits}\n{rng.choice(['', 'exec <&-'])}", **environment)
    assert "Traceback" not in run.stderr
    assert run.returncode in {0, 2}, (environment, limits, run.stderr)
    assert is_right(run) if run.returncode == 0 else is_refused(run, "")
