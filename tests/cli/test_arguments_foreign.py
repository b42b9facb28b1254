"""Other programs' command lines: one line says how they are written here."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from mltree.cli.arguments import CHOSEN_MODEL, TABLE, ForeignOption, foreign_options, translated
from mltree.cli.main import ANALYSES

WITHOUT_DATA = {"-pre"}
"""Lines that name no alignment."""

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from.md").read_text()

NG = "written for RAxML-NG"
IQ = "written for IQ-TREE"

LINES = {
    "--msa a.phy --model GTR+G": (f"--msa is {NG}", "mltree search a.phy --model GTR+G"),
    "--all --msa a.phy --bs-trees 100": (
        f"--all, --msa and --bs-trees 100 are {NG}",
        "mltree search a.phy --bootstrap 100",
    ),
    "search --msa=a.phy --threads auto": (
        f"--msa and --threads auto are {NG}",
        "mltree search a.phy; --threads auto: every CPU",
    ),
    "--evaluate --msa a --tree t": (f"--evaluate and --msa are {NG}", "mltree evaluate a --tree t"),
    "evaluate a --tree pars{10}": (f"--tree pars{{10}} is {NG}", "mltree evaluate a --tree FILE"),
    "search a --tree-constraint c": (f"is {NG}", "mltree search a --constraint c"),
    "search a --data-type AA": (f"--data-type AA is {NG}", "mltree search a --data-type protein"),
    "--rfdist t": (f"--rfdist is {NG}", "mltree rf t"),
    "evaluate a -t t --opt-model off": (f"--opt-model off is {NG}", "a -t t --no-opt-model"),
    "search a --opt-model off": (f"{NG}", "mltree search a; --opt-model off: a search optimises"),
    "-s a.phy": (f"-s a.phy is {IQ}", "mltree search a.phy"),
    "-s a.phy -m MFP+MERGE -Q x": (
        f"-s a.phy, -m MFP+MERGE and -Q are {IQ}",
        "here: mltree search a.phy --model auto --merge --partitions x --brlen unlinked",
    ),
    "-s a.phy -m MFP": (
        f"-s a.phy and -m MFP are {IQ}",
        "search a.phy --model auto",
    ),
    "evaluate a -t t --model TEST": (
        f"--model TEST is {IQ}",
        "mltree evaluate a -t t --model FILE; --model TEST: `mltree model ALIGNMENT` chooses one",
    ),
    "bootstrap a --model MF+MERGE": (f"--model MF+MERGE is {IQ}", "bootstrap a --model FILE; "),
    "search a -m TESTMERGE": (f"-m TESTMERGE is {IQ}", "mltree search a --model auto"),
    "search a -B 1000": (f"-B is {IQ}", "mltree search a --ufboot 1000"),
    "search a -bb 1000": (f"-bb is {IQ}", "mltree search a --ufboot 1000"),
    "search a -alrt 1000": (f"-alrt is {IQ}", "mltree search a --sh-alrt 1000"),
    "search a --alrt 0": (f"--alrt 0 is {IQ}", "mltree search a --alrt"),
    "alrt a -t t --alrt 100": (f"--alrt 100 is {IQ}", "mltree alrt a -t t --replicates 100"),
    "alrt a -t t -alrt 0": (f"-alrt 0 is {IQ}", "mltree alrt a -t t --tests alrt"),
    "alrt a -t t -lbp 50": (f"-lbp 50 is {IQ}", "alrt a -t t --tests lbp --replicates 50"),
    "alrt a -t t -abayes": (f"-abayes is {IQ}", "mltree alrt a -t t --tests abayes"),
    "search a -T 4": (f"-T is {IQ}", "mltree search a --threads 4"),
    "search a -T AUTO": (f"-T AUTO is {IQ}", "mltree search a; -T AUTO: every CPU"),
    "search a -nt 4 -pre x": (f"-nt and -pre are {IQ}", "search a --threads 4 --prefix x"),
    "-s a -te 'my tree'": ("-s a and -te are", "mltree evaluate a --tree 'my tree'"),
    "-pre": ("-pre is", "mltree search --prefix FILE"),
    "search a -n run -N 10": ("-n and -N 10 are written for RAxML", "search a --prefix run --tree"),
    "-s a -b 5 --msa b": ("IQ-TREE and RAxML-NG", "mltree search a b --bootstrap 5"),
    "bootstrap a --bs-trees 100": (f"is {NG}", "mltree bootstrap a --replicates 100"),
    "-s a -z trees -au": (f"-s a, -z and -au are {IQ}", "test a --trees trees --tests au"),
    "-s a -f a": ("-s a and -f a are", "mltree search a"),
    "-s a -f j": ("RAxML", "-f j: no counterpart here"),
    "-f a -x 12 -p 34 -# 100 -s a -n T": (
        "written for RAxML",
        "search a --seed 34 --bootstrap 100 --prefix T; -x 12: one seed is for all",
    ),
    "-s a -b 12 -# 100": ("RAxML", "mltree search a --seed 12 --bootstrap 100"),
    "-f d -p 34 -s a -N 20": ("-N 20", "mltree search a --seed 34 --tree 'pars{20}'"),
    "-f b -t t -z b -m GTRCAT -n T": (
        "written for RAxML",
        "mltree support t --trees b --prefix T; -m: trees need no model",
    ),
    "-f e -s a -t t": ("RAxML", "mltree evaluate a -t t"),
    "-f E -s a": ("RAxML", "mltree search a --preset fast"),
    "-f A -s a -t t": ("RAxML", "mltree ancestral a -t t"),
    "-f r -z b": ("RAxML", "mltree rf b"),
    "-J MRE -z b": ("written for RAxML", "mltree consensus b --type extended"),
    "-s a -p b.nex": (f"-s a and -p are {IQ}", "search a --partitions b.nex --brlen scaled"),
    "search a -p b.nex": (f"-p b.nex is {IQ}", "search a --partitions b.nex --brlen scaled"),
    "-s a -q b.nex": (f"are {IQ}", "mltree search a --partitions b.nex --brlen linked"),
    "-s a -S b.nex": (f"-s a and -S are {IQ}", "search a --partitions b.nex --separate"),
    "-S genes/": (f"-S genes/ is {IQ}", "mltree search genes/"),
    "-s a -t t --gcf b --scf 100": (
        f"are {IQ}",
        "mltree concordance t --alignment a --gene-trees b --quartets 100",
    ),
    "-sup t -t b": (f"-sup and -t are {IQ}", "mltree support t --trees b"),
    "-con -t b": (f"-con and -t are {IQ}", "mltree consensus b"),
    "-s a -n 0": (
        f"-s a and -n 0 are {IQ}",
        "search a --model auto; -n 0: the preset sets how far",
    ),
    "-s a --mset GTR --date d": (
        f"are {IQ}",
        "search a --model-set GTR --dates d --model auto",
    ),
    "evaluate -s a -mset HKY": ("-mset are", "mltree model a --model-set HKY --model auto"),
    "-s a -m MFP+ASC": ("IQ-TREE", "mltree search a --model auto+ASC"),
    "-s a -n T -m ASC_PROTGAMMAAUTO": ("RAxML", "search a --prefix T --model auto+ASC"),
    "-s a -lmap 100": ("IQ-TREE", "-lmap: no likelihood mapping: concordance --quartets"),
    "-s a -p b --symtest": ("IQ-TREE", "mltree check a --partitions b --symmetry"),
    "bootstrap -s a -j 100": ("IQ-TREE", "bootstrap a --replicates 100 --sampling jackknife"),
    "-s a -j 100": ("IQ-TREE", "mltree search a --bootstrap 100 --sampling jackknife"),
    "-s a -J 1000 --jack-prop 0.4": ("IQ-TREE", "a --ufboot 1000 --sampling jackknife"),
    "-s a -keep-ident --undo": (f"are {IQ}", "-keep-ident: identical sequences are searched once"),
    "--support --tree t --bs-trees b --threads 2": (
        f"are {NG}",
        "mltree support t --trees b; --threads: one CPU is enough",
    ),
    "support --tree t --trees b": (f"--tree is {NG}", "mltree support t --trees b"),
    "--bsconverge --bs-trees b": (f"are {NG}", "mltree bootstop b"),
    "--rfdist --tree b": (f"are {NG}", "mltree rf b"),
    "--consense MR --tree b": (f"are {NG}", "mltree consensus b --type majority"),
    "--consense MR75 --tree b": (f"are {NG}", "mltree consensus b; --consense: types are strict,"),
    "--loglh --msa a --tree t": (f"{NG}", "evaluate a --tree t --no-opt-model --no-opt-branches"),
    "--bootstrap --msa a --bs-trees 20": (f"are {NG}", "mltree bootstrap a --replicates 20"),
    "--all --msa a": (f"are {NG}", "mltree search a --bootstrap auto"),
    "-s a -m HKY+G4 -T 2": (
        f"-s a, -T and -m HKY+G4 are {IQ}",
        "mltree search a --threads 2 --model HKY+FC+G4",
    ),
    "search a -m HKY+G4 -T 2": (f"-T is {IQ}", "mltree search a -m HKY+G4 --threads 2"),
    "search a -m HKY+G4 -B 1000 -s b": (f"-m HKY+G4 are {IQ}", "--model HKY+FC+G4"),
    "-s a --model=TIM2+R -st DNA": (f"--model TIM2+R are {IQ}", "--model TIM2uf+FC+R"),
    "-s a -m GTR -st MORPH": (f"are {IQ}", "--data-type multistate --model GTR+FE"),
    "-s a -m LG+F+G4": (f"-s a is {IQ}", "mltree search a -m LG+F+G4"),
    "-s a -m HKY+G -gmedian": (f"-gmedian and -m HKY+G are {IQ}", "--model HKY+FC+G4a"),
    "-s a -te t": (f"are {IQ}", "evaluate a --tree t --model FILE; `mltree model ALIGNMENT`"),
    "-s a -te t -m K80+F": (f"are {IQ}", "mltree evaluate a --tree t --model K80"),
    "-s a -p b.nex -T 2": (
        f"are {IQ}",
        "scaled --threads 2; parts without a model have one chosen",
    ),
    "-s a -n T -p 1 -m GTRGAMMA": ("RAxML", "search a --prefix T --seed 1 --model GTR+FC+G4"),
    "-s a -n T -m GTRGAMMA --HKY85 -u": ("RAxML", "search a --prefix T --model HKY+FC+G4a"),
    "-s a -n T -m GTRCAT -c 10": ("RAxML", "search a --prefix T --model GTR+FC+PSR10"),
    "-s a -n T -m GTRCAT -V": ("RAxML", "search a --prefix T --model GTR+FC"),
    "-s a -n T -m MULTIGAMMA -K MK": ("RAxML", "search a --prefix T --model MK+G4"),
    "-s a -n T -m ASC_BINGAMMA --asc-corr=lewis": ("RAxML", "--model BIN+FC+G4+ASC_LEWIS"),
    "-s a -n T -m GTRCATI": ("RAxML", "search a --prefix T; -m GTRCATI: no counterpart here"),
    "-s a -n T -m PROTGAMMAWAG -q p": ("RAxML", "--model WAG+G4; a protein model of a part is of"),
    "evaluate a -t t -n T -m PROTGAMMAAUTO": ("RAxML", "--model FILE; "),
    "-i a": ("-i a is written for PhyML", "mltree search a --model HKY+FC+G4"),
    "-i a -d aa -q -m WAG -f e -v e -b 100 -s SPR -u t": (
        "written for PhyML",
        "search a --data-type protein --bootstrap 100 --tree t --model WAG+FC+I+G4; -q: formats",
    ),
    "-i a -d nt -m GTR -f m -c 1 -o lr -u t": (
        "written for PhyML",
        "mltree evaluate a --data-type dna --tree t --model GTR+FO",
    ),
    "-i a -m K80 -t 4 -c 8 -a 0.5 --use_median": ("PhyML", "--model 'K80{4}+G8a{0.5}'"),
    "-i a -f 0.3,0.2,0.2,0.3 -v 0.1 -o tlr -b -4 -p": (
        "PhyML",
        "--sh-alrt 1000 --tree pars --model 'HKY+FU{0.3/0.2/0.2/0.3}+I{0.1}+G4'",
    ),
    "-i a -m AB -d aa": ("-m AB", "-m AB: no counterpart here"),
    "--terrace --msa a": (f"are {NG}", "mltree search a; --terrace: no counterpart here"),
}
"""By what is typed: parts of the problem, and of the hint."""


@pytest.mark.parametrize("line", LINES)
def test_it_is_said_in_a_line_how_it_is_written_here(line: str) -> None:
    found = translated(shlex.split(line), ANALYSES)
    assert found is not None
    for text, expected in zip(found, LINES[line], strict=True):
        assert expected in text
        assert "\n" not in text
    assert found[1].startswith("here: mltree ")


@pytest.mark.parametrize("line", LINES)
def test_what_is_shown_is_read_here(line: str) -> None:
    """No option that its command has not, no argument too many, nothing that is missing."""
    from typer.main import get_command

    from mltree.cli.main import app

    _, hint = translated(shlex.split(line), ANALYSES) or ("", "")
    shown, *_ = hint.removeprefix("here: mltree ").split("; ")
    name, *arguments = shlex.split(shown)
    if line in WITHOUT_DATA:
        arguments.insert(0, "a")
    get_command(app).commands[name].make_context(name, arguments)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "line",
    [
        "search a -s 42 -m GTR+G4 -t start.nwk -p x -d 0 -q",
        "search a --tree pars{10},rand{2} --model LG+I+G4 --threads 4",
        "search a --data-type protein --prefix MFP",
        "evaluate a --tree t",
        "search a --bootstrap 100 --model auto",
        "search a --model genes.part --brlen linked",
        "bootstrap a -N 100",
        "bootstrap a -p 12",
        "search a -q -p 12",
        "evaluate a -t t -q",
        "draw t -o t.svg",
        "simulate -n 100 -o s.fasta",
        "test a --trees t",
        "rf trees --reference t",
        "--help",
        "",
    ],
)
def test_what_is_written_for_mltree_is_left_alone(line: str) -> None:
    assert translated(shlex.split(line), ANALYSES) is None


def test_no_option_is_what_it_would_be_replaced_by() -> None:
    """Or a user who does as told is told again."""
    for options in foreign_options().values():
        for option in options:
            words = shlex.split(option.here.replace("{}", "5"))
            said = translated(
                [*([option.command] if option.command else ["search", "a"]), *words], ANALYSES
            )
            assert said is None, option


def test_the_page_has_every_option_and_no_other() -> None:
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    told = {flag for row in rows for flag in re.findall(r"(?:`|, )(-[-\w#]+)", row)}
    own = {"--prefix", "--seed", "--redo", "--outgroup", "--brlen", "--sampling"}
    assert told - own == set(foreign_options())


def test_the_table_is_read_for_options_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mltree.cli.arguments.foreign_options", lambda: 1 / 0)
    assert translated(["search", "a"], ANALYSES) is None


def test_the_table_names_commands_and_columns_that_there_are() -> None:
    header, *_ = TABLE.read_text().splitlines()
    names = [field.removeprefix("is_of_") for field in ForeignOption._fields]
    assert header.split("\t") == ["options", *names]
    for options in foreign_options().values():
        for option in options:
            where = set(option.where.split()) - {"not", "none"}
            assert where | ({option.command} - {""}) <= set(ANALYSES)
            re.compile(option.value)
    assert CHOSEN_MODEL.note in {option.note for option in foreign_options()["--model"]}


def test_the_page_shows_what_is_printed() -> None:
    ((typed, printed),) = re.findall(r"^\$ mltree (.*)\nmltree: (.*)$", PAGE, re.MULTILINE)
    problem, hint = translated(shlex.split(typed), ANALYSES) or ("", "")
    assert printed == f"{problem} ({hint})"
