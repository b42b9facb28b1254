"""Help: all commands by group, and of each an example that works."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from shutil import copy

import pytest
import typer
from typer.testing import Result

from mltree.cli.help import COMMANDS
from mltree.cli.main import app, main
from mltree.device import layout_choice
from mltree.device.discovery import DeviceInfo
from mltree.device.layout_choice import Calibration, DataKind, LayoutChoice

Run = Callable[..., Result]

DATASETS = Path(__file__).parents[2] / "datasets"

NAMES = [str(name) for name in typer.main.get_command(app).commands]  # type: ignore[attr-defined]

MODEL = "HKY{1/12.7}+FC+G4m{0.364}, noname = 1-898\n"

EXAMPLE = re.compile(r"^Example:\n  mltree (.*)$", re.MULTILINE)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder with what a search, and another one, leave."""
    trees = (DATASETS / "primates.bootstraps").read_text().splitlines()
    (tmp_path / "datasets").mkdir()
    samples = [path.name for path in DATASETS.glob("primates.run?.?")]
    others = ("serial.phy", "serial.nwk", "habitats.tsv", "habitats.nwk")
    for name in ("primates.phy", "primates.bootstraps", "frogs.phy", *others, *samples):
        copy(DATASETS / name, tmp_path / "datasets")
    (tmp_path / "primates.mltree.bestTree").write_text(trees[0] + "\n")
    (tmp_path / "primates.mltree.bestModel").write_text(MODEL)
    (tmp_path / "rivals.nwk").write_text("\n".join(trees[:10]) + "\n")
    return tmp_path


def measured(device: DeviceInfo, tell: Callable[[str], None]) -> Calibration:
    """What tests of the measurement itself measure."""
    sizes = range(len(layout_choice.SIZES) + 1)
    kinds = [DataKind(4, layout_choice.CATEGORIES, not device.has_fp64, size) for size in sizes]
    found = Calibration(1.25e10, {kind.key: LayoutChoice(16, 1) for kind in kinds})
    layout_choice.save(device, found)
    return found


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few models, devices as measured, and few samples: those would take most of the time."""
    monkeypatch.setattr("mltree.analyses.check.calibrate", measured)
    monkeypatch.setattr("mltree.runs.model_choice.matrices", lambda *_: ("HKY+FC", "GTR+FC"))
    monkeypatch.setattr("mltree.runs.model_choice.REFERENCE_RATES", ("+G4",))
    monkeypatch.setattr("mltree.runs.model_choice.free_rates", lambda _: "+G4")
    monkeypatch.setattr("mltree.analyses.sample.FIRST_CHECK", 40)
    for name, bound in (("LEAST_ESS", 20.0), ("MOST_RHAT", 1.5), ("MOST_ASDSF", 0.2)):
        monkeypatch.setattr(f"mltree.sampling.diagnostics.{name}", bound)


# test_run.py runs that of `run`, and looks at all that it does.
@pytest.mark.parametrize("name", sorted({*NAMES} - {"run"}))
def test_the_example_of_help_works(name: str, run: Run, results: Path) -> None:
    (line,) = EXAMPLE.findall(run(name, "--help").stdout)
    example = shlex.split(line)
    assert example[0] == name
    if name == "search":
        for path in results.glob("primates.mltree.*"):
            path.unlink()
    result = run(*example)
    assert result.exit_code == 0, result.output
    assert result.stdout
    for path in re.findall(r"^Wrote (\S+)$", result.stdout, re.MULTILINE):
        assert (results / path).exists(), path


def test_every_command_is_in_one_group(run: Run) -> None:
    grouped = [name for names in COMMANDS.values() for name in names]
    assert sorted(grouped) == sorted(NAMES)
    text = run("--help").stdout
    headings = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    assert headings == [*COMMANDS, "Options"]
    shown = re.findall(r"^  ([a-z]+)  ", text, re.MULTILINE)
    assert shown == grouped


@pytest.mark.parametrize("name", ["search", "evaluate", "check"])
@pytest.mark.parametrize("config", ["", "threads = 1\n"])
def test_a_command_alone_is_what_it_is_among_all(
    name: str,
    config: str,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = run(name, "--help").stdout.replace("Usage: root", "Usage: mltree")
    count = len(app.registered_commands)
    monkeypatch.setattr(app, "registered_commands", app.registered_commands)
    monkeypatch.setattr("sys.argv", ["mltree", name, "--help"])
    if config:  # which is looked through for the options of every command
        Path("mltree.toml").write_text(config)
    with pytest.raises(SystemExit, match="0"):
        main()
    assert capsys.readouterr().out == whole
    assert len(app.registered_commands) == (count if config else 1)
