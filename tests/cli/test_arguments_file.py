"""Options from files, variables and the command line, the stronger one last."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mltree.cli.arguments import defaults, find, has_file, without_option
from mltree.cli.main import app
from mltree.system.errors import InputError

DATASETS = Path(__file__).parents[2] / "datasets"

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    runner = CliRunner()
    return lambda *arguments, **env: runner.invoke(app, list(arguments), env=env)


@pytest.fixture
def model(run: Run) -> Callable[..., str]:
    """The model that ``check`` takes, with these further arguments and variables."""

    def checked(*arguments: str, **env: str) -> str:
        result = run("check", str(DATASETS / "primates.phy"), "--json", *arguments, **env)
        assert result.exit_code == 0, result.output
        *_, last = result.stdout.splitlines()
        return str(json.loads(last)["model"]).partition("{")[0].partition("+")[0]

    return checked


def test_what_is_stronger_wins(model: Callable[..., str]) -> None:
    assert model() == "GTR"
    Path("mltree.toml").write_text('model = "JC"\n')
    assert model() == "JC"
    Path("mltree.toml").write_text('model = "JC"\n[check]\nmodel = "K80"\n[search]\nseed = 3\n')
    assert model() == "K80"
    assert model(MLTREE_MODEL="F81") == "F81"
    assert model("--model", "HKY", MLTREE_MODEL="F81") == "HKY"


def test_the_first_file_is_read_and_no_other(model: Callable[..., str], tmp_path: Path) -> None:
    users = tmp_path / "config" / "mltree" / "mltree.toml"
    users.parent.mkdir(parents=True)
    users.write_text('model = "JC"\n')
    assert model() == "JC"
    Path("mltree.toml").write_text('model = "K80"\n')
    assert model() == "K80"
    Path("named.toml").write_text('model = "F81"\n')
    assert model(MLTREE_CONFIG="named.toml") == "F81"
    Path("typed.toml").write_text("")
    assert model("--config", "typed.toml", MLTREE_CONFIG="named.toml") == "GTR"


def test_the_log_says_where_options_are_from(run: Run) -> None:
    Path("mltree.toml").write_text('preset = "fast"\n[search]\nmoves = "nni"\n')
    alignment = str(DATASETS / "primates.phy")
    result = run("search", alignment, "--prefix", "x", MLTREE_SEED="7")
    assert result.exit_code == 0, result.output
    log = Path("x.mltree.log").read_text()
    for line in (
        "preset = fast (file)", "moves = nni (file)", "seed = 7 (environment)",
        "precision = double", "prefix = x.mltree (typed)", "model = GTR+FC+G4m",
    ):  # fmt: skip
        assert f"\nOption:   {line}\n" in log


BAD = {
    "no TOML": ("model = \n", "mltree.toml: not TOML: "),
    "no option": ("modell = 'JC'\n", "mltree.toml: modell is not an option of any command"),
    "another's option": (
        "[rf]\nmodel = 'JC'\n",
        "model is not an option of mltree rf",
    ),
    "no command": ("[serch]\nmodel = 'JC'\n", "mltree.toml: [serch] is not a command (search,"),
    "no table": ("search = 3\n", "search is not an option of any command"),
    "no switch": ("redo = 'yes'\n", "mltree.toml: redo must be true or false"),
    "a switch": ("model = true\n", "mltree.toml: model must be a string or a number"),
    "a list": ("model = ['JC']\n", "mltree.toml: model must be a string or a number"),
    "help": ("help = true\n", "mltree.toml: help is not an option of any command"),
    "no text": (b"\xff", "mltree.toml: not TOML"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_one_line(run: Run, case: str) -> None:
    text, expected = BAD[case]
    Path("mltree.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    result = run("check", "a.phy")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("mltree: ")
    assert expected in line


def test_a_named_file_must_be_there(run: Run, tmp_path: Path) -> None:
    for arguments in (("--config", "none.toml", "devices"), ("devices", "--config=none.toml")):
        result = run(*arguments)
        assert (result.exit_code, "none.toml: no such file" in result.stderr) == (2, True)
    assert "--config needs the name of a file" in run("devices", "--config").stderr
    with pytest.raises(InputError, match="no such file"):
        find(None, {"MLTREE_CONFIG": "none.toml"})
    assert find(None, {"XDG_CONFIG_HOME": str(tmp_path)}) is None


@pytest.mark.parametrize(
    ("line", "given", "rest"),
    [
        ("search a --config x --redo", "x", "search a --redo"),
        ("--config=x search a", "x", "search a"),
        ("search a", None, "search a"),
        ("search -- --config", None, "search -- --config"),
    ],
)
def test_the_option_stands_anywhere(line: str, given: str | None, rest: str) -> None:
    assert without_option(line.split()) == (given, rest.split())


def test_a_file_that_may_have_a_say_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nowhere = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert not has_file(["search", "a.phy"], nowhere)
    assert has_file(["search", "--config=x"], nowhere)
    assert has_file([], {**nowhere, "MLTREE_CONFIG": "x"})
    (tmp_path / "mltree.toml").touch()
    assert has_file([], nowhere)


@pytest.mark.parametrize("quiet", ["", "quiet = true\n"])
def test_what_a_file_asks_for_is_told(run: Run, quiet: str) -> None:
    """Anybody may have put one into a shared folder."""
    alignment = str(DATASETS / "primates.phy")
    Path("mltree.toml").write_text(f"{quiet}redo = true\n[convert]\nout = 'x.fa'\n")
    result = run("convert", alignment)
    assert result.exit_code == 0, result.output
    for words in ("note: options from mltree.toml: ", "out = x.fa", "redo = true"):
        assert words in result.stderr
    assert "note" not in run("convert", alignment, "--quiet").stderr, "quiet is typed"
    result = run("check", alignment, "--json")
    assert ("Notice" in result.stdout) == bool(quiet), "check has but this option of these"


def test_variables_that_may_cost_a_file_are_told(run: Run) -> None:
    alignment = str(DATASETS / "primates.phy")
    result = run("convert", alignment, MLTREE_OUT="x.fa", MLTREE_REDO="1", MLTREE_DATA_TYPE="dna")
    assert result.exit_code == 0, result.output
    (note,) = (line for line in result.stderr.splitlines() if "note" in line)
    assert "options from the environment: " in note
    assert "MLTREE_OUT = x.fa" in note
    assert "MLTREE_REDO = true" in note
    assert "DATA_TYPE" not in note
    assert "note" not in run("convert", alignment, "-o", "y.fa").stderr


def test_a_file_that_is_no_file_is_told(run: Run) -> None:
    Path("mltree.toml").mkdir()
    result = run("check", str(DATASETS / "primates.phy"))
    assert (result.exit_code, "mltree.toml: Is a directory" in result.stderr) == (2, True)


def test_brackets_within_brackets_are_no_toml(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text("threads = " + "[" * 10_000 + "]" * 10_000)
    with pytest.raises(InputError, match="not TOML: brackets within brackets"):
        defaults(path, {"search": {"threads": False}})
