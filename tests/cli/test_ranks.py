"""Runs of several ranks, which MPI launches or mltree starts: the bits of one process, and ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

import launches
import pytest
from launches import (
    MLTREE,
    alone,
    assert_same,
    goes_on_without_a_rank,
    make_alignment,
    mpiexec,
    ran,
    wait_for_the_end_of,
    watched,
)

from mltree.device import layout_choice
from mltree.device.discovery import choose_device
from mltree.device.layout_choice import (
    CATEGORIES,
    Calibration,
    DataKind,
    LayoutChoice,
    block_widths,
    rule_layout,
)

ROOT = Path(__file__).parents[2]
PRIMATES = str(ROOT / "datasets" / "primates.phy")

QUICK = ("--model", "JC", "--preset", "fast", "--moves", "nni", "--prefix", "x")

LOCI = ("search", "loci", *QUICK)

BOOTSTRAP = (
    "bootstrap", PRIMATES, "--model", "HKY+G2", "--replicates", "5", "--moves", "nni",
    "--prefix", "x",
)  # fmt: skip

Launch: TypeAlias = Callable[..., list[str]]
"""The command that runs one of mltree's as so many ranks."""


def launched(
    folder: Path, *ranks: tuple[str, ...], options: tuple[tuple[str, ...], ...] = ()
) -> subprocess.CompletedProcess[str]:
    """mltree as ranks of MPI, a command each, with options of the launcher for each."""
    command = [mpiexec()]
    for n, arguments in enumerate(ranks):
        own = options[n] if options else ()
        command += [":"] * (n > 0) + ["-n", "1", *own, *MLTREE, *arguments]
    return ran(folder, command)


def make_loci(folder: Path, count: int) -> None:
    """Alignments, and a file that is none."""
    folder.mkdir(parents=True)
    for n in range(count):
        make_alignment(folder / f"locus{n}.fa", 6 + n)
    (folder / "README").write_text("No locus.\n")


@pytest.fixture(params=["mpi", "started"])
def launch(request: pytest.FixtureRequest) -> Launch:
    """Both ways in which a run gets ranks."""
    return partial(launches.launch, request.param)


@pytest.fixture(scope="module", autouse=True)
def _measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Layouts were measured here, by a process with all CPUs, that the rules would not choose."""
    folder, device = tmp_path_factory.mktemp("cache"), choose_device(None)
    rule = rule_layout(device, 4, 16, CATEGORIES, 1)
    other = next(width for width in block_widths(device) if width != rule.vw)
    little = DataKind(4, CATEGORIES, single=not device.has_fp64, size=0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(layout_choice, "cache_folder", lambda: folder / "mltree")
        layout_choice.save(device, Calibration(None, {little.key: LayoutChoice(other, 1)}))
        patched.setenv("XDG_CACHE_HOME", str(folder))
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``loci`` and the results of one process."""
    folder = tmp_path_factory.mktemp("whole")
    make_loci(folder / "loci", 7)
    alone(folder, *LOCI)
    return folder


@pytest.fixture
def loci(whole: Path, tmp_path: Path) -> Path:
    """A folder with the same ``loci``."""
    (tmp_path / "loci").symlink_to(whole / "loci")
    return tmp_path


def test_loci_have_the_bits_of_one_process(launch: Launch, whole: Path, loci: Path) -> None:
    result = ran(loci, launch(LOCI, 3))
    assert result.returncode == 0, result.stderr
    assert_same(loci, whole, "bestTrees", "lociTable")
    assert result.stderr.count("README  skipped") == 1
    assert "note: 3 ranks: 0 is process" in (loci / "x.mltree.log").read_text()
    again = ran(loci, launch(LOCI, 2))
    assert again.returncode == 0
    assert "has 7 loci" in again.stderr
    assert_same(loci, whole, "bestTrees", "lociTable")


def test_ranks_take_the_layouts_of_the_first(whole: Path, loci: Path, tmp_path: Path) -> None:
    """The others have fewer CPUs than a lone process, and nothing was measured where they are."""
    elsewhere = "-env", "XDG_CACHE_HOME", str(tmp_path / "empty")
    result = launched(loci, LOCI, LOCI, LOCI, options=((), elsewhere, elsewhere))
    assert result.returncode == 0, result.stderr
    (head, *found), (known, *others) = (
        (folder / "x.mltree.loci").read_text().splitlines() for folder in (loci, whole)
    )
    assert (head, sorted(found)) == (known, sorted(others))
    assert '"layouts": {"' in head


@pytest.mark.parametrize(
    ("command", "kinds"),
    [
        (BOOTSTRAP, ("bootstraps", "consensusTreeMR")),
        (("search", PRIMATES, *QUICK, "--bootstrap", "5"),
         ("bootstraps", "support", "bestModel")),
    ],
    ids=["bootstrap", "search"],
)  # fmt: skip
def test_replicates_have_the_bits_of_one_process(
    launch: Launch, tmp_path: Path, command: tuple[str, ...], kinds: tuple[str, ...]
) -> None:
    folders = [tmp_path / name for name in ("alone", "ranks")]
    for folder in folders:
        folder.mkdir()
    result = ran(folders[1], launch(command, 2))
    assert result.returncode == 0, result.stderr
    alone(folders[0], *command)
    assert_same(*folders, *kinds)


SEARCH = ("search", "x.fa", "--model", "HKY+G2", "--tree", "pars{2},rand{1}", "--prefix", "x")


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``x.fa``, which takes some seconds, and the results of one process."""
    folder = tmp_path_factory.mktemp("searched")
    make_alignment(folder / "x.fa", 20, 500)
    alone(folder, *SEARCH)
    return folder


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_search_has_the_bits_of_one_process(
    launch: Launch, searched: Path, tmp_path: Path, ranks: int
) -> None:
    (tmp_path / "x.fa").symlink_to(searched / "x.fa")
    result = ran(tmp_path, launch(SEARCH, ranks))
    assert result.returncode == 0, result.stderr
    assert_same(tmp_path, searched, "startTree", "bestTree", "bestModel")
    events = [(folder / "x.mltree.events").read_text() for folder in (tmp_path, searched)]
    of_ranks, of_one = (re.findall(r'"lnl": (-[0-9.]+)', text) for text in events)
    assert of_ranks == of_one


def test_a_dead_rank_of_a_search_is_named_and_it_goes_on(
    launch: Launch, searched: Path, tmp_path: Path
) -> None:
    (tmp_path / "x.fa").symlink_to(searched / "x.fa")
    goes_on_without_a_rank(tmp_path, launch(SEARCH, 2))
    assert_same(tmp_path, searched, "startTree", "bestTree", "bestModel")


def test_a_bootstrap_ends_when_it_has_converged(launch: Launch, tmp_path: Path) -> None:
    """Whatever ranks are in the middle of is left; the same replicates count."""
    make_loci(tmp_path / "loci", 1)
    command = ("bootstrap", "../loci/locus0.fa", "--model", "JC", "--moves", "nni", "--prefix", "x")
    folders = [tmp_path / name for name in ("alone", "ranks")]
    for folder in folders:
        folder.mkdir()
    result = ran(folders[1], launch(command, 2))
    assert result.returncode == 0, result.stderr
    said = alone(folders[0], *command).stdout
    assert_same(*folders, "bootstraps", "consensusTreeMR")
    assert int(re.findall(r"^(\d+) replicates", said, re.MULTILINE)[0]) < 1000


def test_a_dead_rank_is_named_and_the_run_goes_on(launch: Launch, whole: Path, loci: Path) -> None:
    goes_on_without_a_rank(loci, launch(LOCI, 2))
    assert_same(loci, whole, "bestTrees", "lociTable")


def test_a_dead_rank_of_a_bootstrap_is_named_and_it_goes_on(launch: Launch, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("alone", "ranks")]
    for folder in folders:
        folder.mkdir()
    goes_on_without_a_rank(folders[1], launch(BOOTSTRAP, 2))
    alone(folders[0], *BOOTSTRAP)
    assert_same(*folders, "bootstraps", "consensusTreeMR")


def test_a_signal_ends_all_ranks_and_the_run_goes_on(
    launch: Launch, whole: Path, loci: Path
) -> None:
    """Rank 0 heeds it; the other leaves that to it."""
    command = launch(LOCI, 2)
    numbers, said = watched(loci, command, {1: signal.SIGTERM, 0: signal.SIGTERM})
    assert re.search(r"^mltree: stopped by SIGTERM(: .*)?$", said, re.MULTILINE), said
    wait_for_the_end_of(numbers)
    assert ran(loci, command).returncode == 0
    assert_same(loci, whole, "bestTrees", "lociTable")


def test_ranks_that_were_started_end_with_the_first(whole: Path, loci: Path) -> None:
    command = [*MLTREE, *LOCI, "--ranks", "2"]
    numbers, _ = watched(loci, command, {0: signal.SIGKILL})
    wait_for_the_end_of(numbers)
    assert ran(loci, command).returncode == 0
    assert_same(loci, whole, "bestTrees", "lociTable")


def test_ranks_that_differ_are_one_line(loci: Path) -> None:
    """Other commands, other files, other devices: nothing is begun."""
    search = ("search", "loci", *QUICK[:-1], str(loci / "y"))
    lone = ("search", PRIMATES, *QUICK[:-1], str(loci / "z"))
    make_loci(loci / "other" / "loci", 7)
    with (loci / "other" / "loci" / "locus3.fa").open("a") as file:
        file.write(">more\n" + "A" * 200 + "\n")
    here, there = ("-wdir", str(loci)), ("-wdir", str(loci / "other"))
    basic = ("-env", "POCL_DEVICES", "basic")
    for commands, options, said in (
        ((("check", PRIMATES), ("devices",)), (), "was given another command than rank 0"),
        ((search, search), (here, there), "loci/locus3.fa: is not the file that rank 0 reads"),
        ((search, search), ((), basic), "its devices are not those of rank 0"),
        ((lone, lone), ((), basic), "its devices are not those of rank 0"),
    ):
        result = launched(loci, *commands, options=options)
        assert result.returncode != 0
        complaints = [line for line in result.stderr.splitlines() if line.startswith("mltree: ")]
        (line,) = complaints
        assert line.startswith("mltree: rank 1 (process ")
        assert said in line
        assert "Traceback" not in result.stderr
    assert not (loci / "y.mltree.loci").exists()


def test_a_command_that_shares_nothing_is_done_once(tmp_path: Path) -> None:
    result = launched(tmp_path, *[("check", PRIMATES)] * 2)
    assert result.returncode == 0, result.stderr
    shown = [
        # the process itself, and others that may have compiled kernels since
        re.sub(r"about [\d,]+ MiB,?| [\d,]+ MiB more in other processes", "", text)
        for text in (result.stdout, alone(tmp_path, "check", PRIMATES).stdout)
    ]
    assert shown[0] == shown[1]
    result = launched(tmp_path, *[("check", "none.phy")] * 2)
    assert result.returncode == 2
    assert result.stderr.count("mltree: ") == 1
    command = ("search", PRIMATES, "--model", "GTR+PSR", *QUICK[2:])
    result = launched(tmp_path, *[command] * 2)
    assert "note: rank 0 alone searches under +PSR" in result.stderr
    assert (tmp_path / "x.mltree.bestTree").exists()


def test_ranks_of_a_launcher_start_no_others(tmp_path: Path) -> None:
    result = launched(tmp_path, *[("search", PRIMATES, *QUICK, "--ranks", "2")] * 2)
    assert result.returncode == 2
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("mltree: ")]
    assert line.startswith("mltree: --ranks: a launcher has started ranks already (leave out")


@pytest.mark.parametrize("rank", [0, 1])
def test_without_mpi4py_the_first_rank_says_so(tmp_path: Path, rank: int) -> None:
    (tmp_path / "mpi4py.py").write_text("raise ImportError('no such thing')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", str(ROOT))])
    environment = {**os.environ, "PYTHONPATH": path, "PMI_RANK": str(rank), "PMI_SIZE": "2"}
    result = subprocess.run(
        [sys.executable, "-m", "mltree", "check", PRIMATES],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    said = (
        "mltree: 2 processes were launched, but mpi4py cannot join them: no such thing "
        "(pip install 'mltree[mpi]', which takes the MPI of the launcher)\n"
    )
    assert (result.returncode, result.stderr) == ((2, said) if rank == 0 else (0, ""))


def test_processes_that_mpi_does_not_join(tmp_path: Path) -> None:
    """As under another MPI's launcher."""
    mpiexec()
    environment = {**os.environ, "MV2_COMM_WORLD_RANK": "0", "MV2_COMM_WORLD_SIZE": "3"}
    result = subprocess.run(
        [sys.executable, "-m", "mltree", "check", PRIMATES],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 2
    assert "3 processes were launched, but MPI joins 1 (launch with" in result.stderr
