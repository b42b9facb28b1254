"""Bad input: exit code 2 and one line that says what is wrong, where, and what to do."""

import bz2
import errno
import gzip
import lzma
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Run = Callable[..., Result]

GOOD = ">a\nACGTAC\n>b\nACGTTC\n>c\nACTTAC\n>d\nGCTTAC\n"
TREE = "((a:0.1,b:0.1):0.1,c:0.1,d:0.1);"

PROTEIN = ">a\nMKVLEF\n>b\nMKVLEF\n>c\nMKILEF\n>d\nMRILEF\n"

TWO_MEANINGS = """5 20
MACACAMVLA MKLVAAREMK
ARNDCQEGHI
MACACAFASC MKLVAAREMK
ARNDCQEGHL
MACACASYLV MKLVAAREMK
ARNDCQEGHV
SAIMIRISCI MKLVAAREMK
ARNDCQEGHA
LEMVRCATTA MKLVAAREMK
ARNDCQEGHC
"""

BAD_ALIGNMENTS = {
    "empty file": (b"", "empty"),
    "binary file": (bytes(range(256)) * 8, "aln"),
    "truncated gzip": (gzip.compress(GOOD.encode() * 50)[:60], "aln"),
    "two meanings": (TWO_MEANINGS.encode(), "S (sequential) or I"),
    "FASTA below a header": (b"4 6\n" + GOOD.encode(), "FASTA record"),
    "neither format": (b"hello\n", "PHYLIP"),
    "NEXUS": (b"#NEXUS\nbegin data;\n", "no DATA or CHARACTERS block"),
    "ragged rows": (GOOD.replace("GCTTAC", "GCTTA").encode(), "taxon d"),
    "too few rows": (b"5 6\na ACGTAC\nb ACGTTC\nc ACTTAC\nd GCTTAC\n", "5"),
    "wrong site count": (b"4 7\na ACGTAC\nb ACGTTC\nc ACTTAC\nd GCTTAC\n", "7"),
    "duplicate names": (GOOD.replace(">d", ">a").encode(), "taxon a occurs twice"),
    "empty name": (GOOD.replace(">d", ">").encode(), "no name"),
    "two taxa": (GOOD.split(">c", maxsplit=1)[0].encode(), "2 taxa"),
    "no sites": (b">a\n>b\n>c\n>d\n", "no sites"),
    "unknown character": (GOOD.replace("GCTTAC", "GC!TAC").encode(), "site 3"),
}

BAD_TREES = {
    "missing taxon": ("(a:0.1,b:0.1,c:0.1);", "d"),
    "extra taxon": ("((a:0.1,b:0.1):0.1,c:0.1,(d:0.1,e:0.1):0.1);", "e"),
    "duplicate taxon": ("((a:0.1,b:0.1):0.1,c:0.1,(d:0.1,a:0.1):0.1);", "a"),
    "negative length": ("((a:0.1,b:-0.1):0.1,c:0.1,d:0.1);", "-0.1"),
    "unbalanced": ("((a:0.1,b:0.1):0.1,c:0.1,d:0.1;", "parentheses"),
    "no tree": ("\n", "no tree"),
    "digits with a line between": ("((a:1_0,b:1):1,c:1,d:1);", "1_0"),
    "digits of another script": ("((a:٣,b:1):1,c:1,d:1);", "not a number"),
    "two lengths at a node": ("((a:1:2,b:1):1,c:1,d:1);", "two branch lengths at a node"),
    "two lengths behind a name in quotes": ("(('a':1 :2,b:1):1,c:1,d:1);", "two branch lengths"),
    "lengths whose sum overflows": ("((a:1,b:1):1e308,(c:1,d:1):1e308);", "longer than"),
}

BAD_MODELS = {
    "GTRR+G4": "GTR",
    "REV": "GTR",
    "LG+G4": "proteins",
    "GTR+G0": "categories",
    "GTR{1/2}": "exchangeabilities",
    "GTR+FU{0.5/0.5/0.5/0.5}": "sum to 1",
    "GTR+Q": "+Q",
    "GTR+G4{0.5": "brace",
    "GTR+G4{-1}": "alpha",
    "": "model",
    "GTR+G4{1_0}": "expected numbers",
    "GTR+G" + "9" * 5000: "cannot read",
    "GTR+G٣": "cannot read",
    "none.bestModel": "none.bestModel: no such file",
    "x" * 300: "unknown model",
    "folder/" + "x" * 300: "no such file",
    "./" + "x" * 300: "File name too long",
    "/dev/zero": "is a device",
    ".": "is a directory",
}


BAD_PARTS = {
    # lines of the file, of an alignment of 6 sites: what is said
    "GTR, x = 1-4\nGTR, y = 4-6": "parts, line 2: parts x and y overlap, first at site 4",
    "GTR, x = 1-3\nGTR, y = 5-6": "parts: in no part: site 4",
    "GTR, x = 1-3\nGTR, y = 4-9": "line 2: part y goes to site 9, but the alignment has 6",
    "GTR, x = 0-3\nGTR, y = 4-6": "line 1: the sites 0-3 begin at 0",
    "GTR, x = 1-3\nGTR, y = 6-4": "line 2: the sites 6-4 run backwards",
    "GTR, x =\nGTR, y = 1-6": "line 1: part x has no sites",
    "GTX, x = 1-3\nGTR, y = 4-6": "line 1: part x: unknown model 'GTX'; the nearest known is GTR",
    "GTR, x = 1-3\nMFP, y = 4-6": "line 2: part y: MFP is not a model (to have one chosen",
    "GTR, x = 1-4\nGTR, x = 5-6": "line 2: two parts are called x (the first on line 1)",
}

TRIANGLE = "\n".join("1 " * n for n in range(1, 20))
EVEN = "0.05 " * 20

BAD_MATRICES = {
    "of 19 states": ("\n".join("1 " * n for n in range(1, 19)) + "0.05 " * 19, "190 numbers"),
    "a whole square": ("1 " * 400 + EVEN, "begins with 420 numbers"),
    "negative": (f"{TRIANGLE.replace('1', '-1', 1)}\n{EVEN}", "no negative"),
    "negative frequency": (f"{TRIANGLE}\n-0.05 0.15 {'0.05 ' * 18}", "no negative"),
    "frequencies of 1.2": (f"{TRIANGLE}\n{'0.06 ' * 20}", "must sum to 1, not 1.2"),
}


def assert_one_line(result: Result, *expected: str) -> None:
    """Exit code 2, a last line on standard error with these words, nothing on standard output."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    *progress, line = result.stderr.splitlines()
    assert line.startswith("mltree: ")
    assert all(text.startswith("[00:") for text in progress), result.stderr
    for words in expected:
        assert words in line, result.stderr


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.fa"
    path.write_text(GOOD)
    return path


@pytest.mark.parametrize("case", BAD_ALIGNMENTS)
@pytest.mark.parametrize("command", ["search", "check"])
def test_bad_alignments(run: Run, tmp_path: Path, command: str, case: str) -> None:
    content, expected = BAD_ALIGNMENTS[case]
    path = tmp_path / "aln"
    path.write_bytes(content)
    assert_one_line(run(command, path), "aln", expected)


def test_a_missing_alignment(run: Run) -> None:
    assert_one_line(run("search", "nowhere.phy"), "nowhere.phy")


def test_a_folder_instead_of_an_alignment(run: Run, tmp_path: Path) -> None:
    assert_one_line(run("search", tmp_path), str(tmp_path))


@pytest.mark.parametrize("command", [("search",), ("evaluate", "--tree", TREE)])
def test_a_sequence_of_gaps(run: Run, good: Path, command: tuple[str, ...]) -> None:
    good.write_text(GOOD.replace("GCTTAC", "--N?--").replace("ACTTAC", "------"))
    result = run(*command, good)
    assert_one_line(result, f"{good}: c, d are all gaps and cannot be placed (remove them")
    assert "nothing but gaps in the taxa c, d" in run("check", good).output


@pytest.mark.parametrize("folder", [".", "..", "/"])
@pytest.mark.parametrize("command", [("evaluate", "--tree", "x"), ("check",)])
def test_a_folder_that_has_no_name(run: Run, command: tuple[str, ...], folder: str) -> None:
    assert_one_line(run(*command, folder), "is a directory")


def test_a_folder_without_loci(run: Run) -> None:
    assert_one_line(run("search", "."), "there is no alignment in it")


def test_endless_input(run: Run, good: Path) -> None:
    for arguments in (
        ("search", "/dev/zero"),
        ("check", "/dev/zero"),
        ("evaluate", good, "--tree", "/dev/zero"),
        ("search", good, "--tree", "/dev/zero"),
        ("search", good, "--constraint", "/dev/zero"),
        ("search", good, "--model", "/dev/zero"),
    ):
        assert_one_line(run(*arguments), "/dev/zero: is a device")


def test_names_that_are_no_text(run: Run, good: Path, tmp_path: Path) -> None:
    name = os.fsdecode(b"bad\xff.phy")
    good.with_name(name).write_text(GOOD)
    for arguments in (
        ("search", name),
        ("check", name),
        ("search", good, "--tree", name),
        ("search", good, "--constraint", name),
        ("search", good, "--model", name),
    ):
        assert_one_line(run(*arguments), r"bad\udcff.phy: not UTF-8 text")


def test_names_that_are_too_long(run: Run, good: Path) -> None:
    name = "x" * 300
    for arguments in (
        ("search", name),
        ("check", name),
        ("search", good, "--tree", name),
        ("search", good, "--constraint", name),
    ):
        assert_one_line(run(*arguments), "File name too long")


@pytest.mark.parametrize("name", ["[x].nwk", "(x).nwk", "(a,b).nwk", "none.nwk"])
@pytest.mark.parametrize("option", ["--tree", "--constraint"])
def test_a_tree_file_that_is_not_there(run: Run, good: Path, option: str, name: str) -> None:
    assert_one_line(run("search", good, option, name), f"{name}: no such file")


@pytest.mark.parametrize("text", ["();", "((),());", "((a,b),c,d);((a,c),b,d);"])
def test_bad_constraints(run: Run, good: Path, text: str) -> None:
    assert_one_line(run("search", good, "--constraint", text), "line 1")


@pytest.mark.parametrize("size", ["9" * 400, "1_0G", "٣G", "nan"])
def test_absurd_sizes_of_memory(run: Run, good: Path, size: str) -> None:
    assert_one_line(run("search", good, "--memory-limit", size), "not a memory size")


def test_a_stop_codon_in_dna(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "stop.fa"
    path.write_text(">a\nACGTA\n>b\nACGTT\n>c\nACG*A\n>d\nAGGTA\n")
    assert_one_line(run("search", path), "'*' is not a DNA character", "--data-type protein")
    assert_one_line(run("search", path, "--model", "GTR+G4"), "'*' is not a DNA character")
    assert run("check", path, "--data-type", "protein").exit_code == 0


def test_what_is_no_codon(run: Run, good: Path, tmp_path: Path) -> None:
    path = tmp_path / "stop.fa"
    path.write_text(">a\nACGTAC\n>b\nACGTTC\n>c\nACGTGA\n>d\nAGGTAC\n")
    told = (
        "taxon c, codon 2 (from site 4): TGA is a stop codon",
        "--mask-stops",
        "--data-type codon:CODE",
    )
    assert_one_line(run("search", path, "--data-type", "codon"), "stop.fa", "line 6", *told)
    assert_one_line(run("search", path, "--model", "GY+F3X4"), *told)
    path.write_text(">a\nACGTA\n>b\nACGTT\n>c\nACGTA\n>d\nAGGTA\n")
    told = "5 nucleotides, not a multiple of three"
    assert_one_line(run("check", path, "--data-type", "codon:2"), told)


def test_protein_given_as_dna(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "protein.fa"
    path.write_text(PROTEIN)
    assert_one_line(run("search", path, "--model", "GTR+G4"), "nucleotides", "AA", "LG+G4")


@pytest.mark.parametrize("case", BAD_TREES)
@pytest.mark.parametrize("command", ["search", "evaluate", "compare"])
def test_bad_trees(run: Run, good: Path, tmp_path: Path, command: str, case: str) -> None:
    text, expected = BAD_TREES[case]
    path = tmp_path / "bad.nwk"
    path.write_text(text)
    assert_one_line(run(command, good, "--tree", path), "bad.nwk", expected)


def test_a_tree_that_is_no_file_and_no_start(run: Run, good: Path) -> None:
    assert_one_line(run("search", good, "--tree", "parsimony"), "parsimony")


@pytest.mark.parametrize("spec", ["pars{0}", "rand{100000}", "pars{999999999}"])
def test_absurd_numbers_of_starts(run: Run, good: Path, spec: str) -> None:
    assert_one_line(run("search", good, "--tree", spec), spec)


@pytest.mark.parametrize("model", BAD_MODELS)
def test_bad_models(run: Run, good: Path, model: str) -> None:
    assert_one_line(run("check", good, "--model", model), BAD_MODELS[model])


@pytest.mark.parametrize("option", ["--model", "--partitions"])
@pytest.mark.parametrize("lines", BAD_PARTS)
def test_bad_parts(run: Run, good: Path, lines: str, option: str) -> None:
    Path("parts").write_text(lines)
    assert_one_line(run("check", good, option, "parts"), BAD_PARTS[lines])


def test_a_taxon_without_data_in_any_part(run: Run, good: Path) -> None:
    good.write_text(GOOD.replace("GCTTAC", "---TAC"))
    Path("parts").write_text("#nexus\nbegin sets;\ncharset x = 1-3;\nend;\n")
    result = run("search", good, "--model", "GTR", "--partitions", "parts")
    assert_one_line(result, "parts: taxon d has no data in any part (it cannot be placed")


@pytest.mark.parametrize("name", ["own.dat", "PROTGTR{own.dat}+G4"])
@pytest.mark.parametrize("case", BAD_MATRICES)
def test_bad_matrices(run: Run, good: Path, case: str, name: str) -> None:
    text, expected = BAD_MATRICES[case]
    good.write_text(PROTEIN)
    Path("own.dat").write_text(text)
    assert_one_line(run("check", good, "--model", name), "mltree: own.dat: ", expected)


@pytest.mark.parametrize("name", ["MFP", "TEST", "TESTNEW"])
def test_a_choice_of_models_is_told_where_it_is(run: Run, good: Path, name: str) -> None:
    assert_one_line(run("search", good, "--model", name), f"--model {name} is", "--model auto")


def test_a_model_file_with_several_lines(run: Run, good: Path, tmp_path: Path) -> None:
    path = tmp_path / "two.bestModel"
    path.write_text("GTR+G4\nHKY+G4\n")
    assert_one_line(run("search", good, "--model", path), "two.bestModel", "as a part")


def test_an_unknown_device(run: Run, good: Path) -> None:
    assert_one_line(run("search", good, "--device", "abacus"), "abacus", "(device 0 is ")


def test_a_folder_for_the_outputs_that_is_not_there(run: Run, good: Path) -> None:
    assert_one_line(run("search", good, "--prefix", "no/such/folder/x"), "no/such/folder")


def test_misspelt_names_bring_to_mind_the_right_ones(run: Run, tmp_path: Path) -> None:
    path, tree = tmp_path / "apes.fa", tmp_path / "tree.nwk"
    path.write_text(GOOD.replace(">a", ">Homo_sapiens").replace(">b", ">Gorilla"))
    tree.write_text(TREE.replace("a:", "Homo_sapiens:").replace("b:", "Gorila:"))
    assert_one_line(run("check", tmp_path / "apse.fa"), "no such file (did you mean apes.fa?)")
    assert_one_line(run("check", tmp_path / "tree.fasta"), "no such file (check the path)")
    nowhere = tmp_path / "none" / "apes.fa"
    assert_one_line(run("check", nowhere), f"(there is no folder {nowhere.parent})")
    meant = "(did you mean Gorilla?)"
    assert_one_line(run("evaluate", path, "--tree", tree), "'Gorila' is in the tree but", meant)
    assert_one_line(run("search", path, "--constraint", tree), "'Gorila' is in the cons", meant)
    outgroup = "--outgroup", "Homo"
    meant = "(did you mean Homo_sapiens?)"
    assert_one_line(run("search", path, *outgroup), "outgroup: 'Homo' is not in the", meant)
    assert_one_line(run("draw", tree, "-o", "x.svg", *outgroup), "has no taxon 'Homo'", meant)


def test_a_file_is_no_command(run: Run, good: Path) -> None:
    assert_one_line(run(good), "is a file, not a command (to build its tree: mltree run ")


def test_contradicting_switches(run: Run, good: Path) -> None:
    assert_one_line(run("search", good, "--quiet", "--verbose"), "--quiet")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search"], "see root search --help)"),
        (["search", "a", "--modle"], "no such option: --modle (possible options: --model"),
        (["searhc"], "no such command 'searhc' (did you mean 'search'? See root --help)"),
        (["search", "a", "b"], "many alignments need a name (give --prefix; a, b are taken for"),
        (["search", "a", "b", "c", "d"], "(give --prefix; a, b, c ... are taken for alignments)"),
        (["check", "a", "b"], "unexpected extra argument(s) (b) ("),
        (
            ["search", "a", "--model"],
            "option '--model' requires an argument (see root search --help)",
        ),
        (["search", "a", "--preset", "quick"], "'--preset': 'quick' is not one of 'fast',"),
        (["search", "a", "--seed", "x"], "'x' is not a whole number"),
        (["search", "a", "--seed", "٣"], "'٣' is not a whole number"),
        (["search", "a", "--seed", "1_0"], "'1_0' is not a whole number"),
        (["search", "a", "--vw", "²"], "'²' is not a whole number"),
        (["search", "a", "--threads", "0"], "at least one thread is needed"),
        (["search", "a", "--threads", "100000"], "at most 4,096 threads are possible"),
        (["search", "a", "--ranks", "100000"], "at most 4,096 processes are possible"),
        (["search", "a", "--collapse", "1_0"], "'1_0' is not a number"),
        (["search", "a", "--collapse", "nan"], "'nan' is not a number"),
        (["search", "a", "--collapse", "-1"], "'-1' is not a branch length"),
        (["bootstop", "a", "--cutoff", "3"], "'3' is not between 0 and 1"),
        (["check", "a", "--data-type", "codons"], "unknown data type 'codons' (dna, protein,"),
        (["check", "a", "--data-type", "codon:7"], "'7' is not a genetic code (NCBI's, by number"),
    ],
)
def test_usage_errors(run: Run, arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("mltree: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_bad_variable_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLTREE_SEED", "x")
    assert "MLTREE_SEED" in run("search", "a").stderr


def test_nothing_is_written_when_the_input_is_bad(run: Run, good: Path, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    assert_one_line(run("search", good, "--model", "nonsense"), "NONSENSE")
    assert set(tmp_path.iterdir()) == before


EARLY = {
    "outgroup": ("search --outgroup a,Nobody", "'Nobody' is not in the alignment"),
    "outgroup of run": ("run --outgroup Nobody", "'Nobody' is not in the alignment"),
    "starts": ("search --tree nope.nwk", "nope.nwk: no such file"),
    "starts of others": ("search --tree others.nwk", "others.nwk"),
    "constraint": ("search --constraint nope.nwk", "nope.nwk: no such file"),
    "constraint of others": ("search --constraint others.nwk", "others.nwk"),
    "unfit start": (
        "search --constraint ab.nwk --tree ac.nwk",
        "starting tree user 1 does not fit the constraint tree",
    ),
    "parts": ("search --partitions nope.part", "nope.part: no such file"),
    "merge": ("run --merge", "merge"),
    "tree": ("model --tree others.nwk", "others.nwk"),
    "bootstrap's constraint": ("bootstrap --constraint others.nwk", "others.nwk"),
    "bootstrap's tree": ("bootstrap --tree others.nwk", "others.nwk"),
}


@pytest.mark.parametrize("case", EARLY)
def test_all_input_is_read_before_anything_is_computed(
    run: Run, good: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """A choice of models may take hours."""

    def compute(*_: object, **__: object) -> None:
        raise AssertionError("computes")

    for place in (
        "mltree.analyses.model_selection.scheme_of",
        "mltree.analyses.search.prepare_search",
        "mltree.analyses.bootstrap.prepare_bootstrap",
    ):
        monkeypatch.setattr(place, compute)
    Path("others.nwk").write_text("((a,b),c,e);")
    Path("ab.nwk").write_text("((a,b),c,d);")
    Path("ac.nwk").write_text("((a,c),b,d);")
    command, *options = EARLY[case][0].split()
    more = ["--model", "auto"] if command == "search" else []
    assert_one_line(run(command, good, *more, *options), EARLY[case][1])


@pytest.mark.parametrize("options", ["--tree others.nwk", "--site-freq --tree t.nwk"])
def test_a_guide_tree_is_used_when_all_else_is_fine(
    run: Run, good: Path, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    def compute(*_: object, **__: object) -> None:
        raise AssertionError("computes")

    monkeypatch.setattr("mltree.runs.site_frequencies.fit_topology", compute)
    Path("p.fa").write_text(PROTEIN)
    Path("t.nwk").write_text(TREE)
    Path("others.nwk").write_text("((a,b),c,e);")
    result = run(
        "evaluate", "p.fa", "--model", "LG+C10+G4", "--guide-tree", "t.nwk", *options.split()
    )
    assert_one_line(result, "others.nwk" if "others" in options else "has no classes")


REFUSED = {
    "gaps": ((), ">d\nGCTTAC", ">d\n------", "d is all gaps and cannot be placed"),
    "model": (("--model", "LG"), "", "", "LG is for proteins"),
    "device": (("--device", "no such device"), "", "", "no device matches"),
    "parts' device": (
        ("--partitions", "parts", "--device", "none such"),
        "",
        "",
        "no device matches",
    ),
    "empty parts": (("--partitions", "parts"), ">d\nGCTTAC", ">d\n------", "d"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("command", ["check", "search"])
def test_check_refuses_what_a_search_refuses(run: Run, good: Path, case: str, command: str) -> None:
    options, old, new, message = REFUSED[case]
    Path("parts").write_text("JC, one = 1-3\nJC, two = 4-6\n")
    good.write_text(good.read_text().replace(old, new))
    result = run(command, good, *options)
    assert result.exit_code == 2, result.output
    assert message in result.stderr.splitlines()[-1]
    shows = case == "gaps" and command == "check"  # all that can be shown, before
    assert ("Informative" in result.stdout) == shows


@pytest.mark.parametrize("model", ["GTR+PSR", "auto"])
def test_check_takes_what_a_search_takes(run: Run, good: Path, model: str) -> None:
    assert run("check", good, "--model", model).exit_code == 0


def test_a_pipe_that_nobody_writes_is_not_waited_for(
    run: Run, good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mltree.data.source.PATIENCE", 0.05)
    os.mkfifo("pipe")
    Path("t.nwk").write_text(TREE)
    for arguments in (
        ("check", "pipe"), ("search", good, "--tree", "pipe"), ("check", good, "--model", "pipe"),
        ("search", good, "--partitions", "pipe"), ("draw", "pipe", "-o", "x.svg"),
        ("convert", "pipe", "-o", "x.phy"), ("support", "t.nwk", "--trees", "pipe"),
    ):  # fmt: skip
        assert_one_line(run(*arguments), "pipe: is a pipe that nobody writes to")
    assert_one_line(run("--config", "pipe", "check", good), "pipe is a pipe, not a file")
    assert_one_line(run("draw", "t.nwk", "-o", "pipe.svg", "--config=pipe"), "pipe is a pipe")


def test_a_pipe_is_read_once_somebody_writes(run: Run, good: Path) -> None:
    """Late, and in pieces."""
    os.mkfifo("pipe")

    def write() -> None:
        time.sleep(0.2)
        with Path("pipe").open("w") as pipe:
            for piece in (GOOD[:9], GOOD[9:]):
                time.sleep(0.2)
                pipe.write(piece)
                pipe.flush()

    writer = threading.Thread(target=write)
    writer.start()
    result = run("check", "pipe")
    writer.join()
    assert result.exit_code == 0, result.stderr
    assert "Taxa         4" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("search,", "ALIGNMENT..."), ("search,good.fa,", "ALIGNMENT..."), ("check,", "ALIGNMENT"),
        ("search,good.fa,--constraint,", "--constraint"), ("search,good.fa,-p,", "--prefix"),
        ("search,good.fa,-t,", "--tree"), ("run,good.fa,--outgroup,", "--outgroup"),
        ("report,", "PREFIX"), ("rf,t.nwk,--reference,", "--reference"),
        ("simulate,--model,JC,-n,9,--taxa,9,-o,x.fa,--true-tree,", "--true-tree"),
    ],
)  # fmt: skip
def test_nothing_is_no_value(run: Run, good: Path, arguments: str, name: str) -> None:
    """Such as "$TREE" where a script has not set it: a search of "" took the whole folder."""
    assert_one_line(run(*arguments.split(",")), f"mltree: {name} is empty")
    assert [path.name for path in Path().iterdir()] == ["good.fa"]


@pytest.mark.parametrize("case", ["two lengths at a node", "lengths whose sum overflows"])
def test_trees_that_are_only_shown_are_looked_at_too(run: Run, tmp_path: Path, case: str) -> None:
    text, expected = BAD_TREES[case]
    (tmp_path / "t.nwk").write_text(text)
    (tmp_path / "x.mltree.bestTree").write_text(text)
    for arguments in (
        ("draw", "t.nwk", "-o", "t.svg"),
        ("draw", "t.nwk", "-o", "t.svg", "--layout", "circular"),
        ("convert", "t.nwk", "-o", "t.nex"),
        ("convert", "t.nwk", "-o", "t.auspice.json"),
        ("convert", "t.nwk", "-o", "t.itol.txt"),
        ("report", "x"),
        ("rf", "t.nwk", "--reference", "t.nwk", "--weighted"),
        ("consensus", "t.nwk"),
    ):
        assert_one_line(run(*arguments), expected)


def test_prefixes_and_files_of_options_that_no_file_can_be(
    run: Run, good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "x" * 300
    assert_one_line(run("run", good, "--prefix", name), "File name too long")
    assert_one_line(run("search", good, "--prefix", name), "File name too long")
    assert_one_line(run("--config", name, "check", good), "no such file")
    monkeypatch.setenv("XDG_CONFIG_HOME", name)
    assert run("check", good).exit_code == 0
    monkeypatch.setenv("MLTREE_CONFIG", name)
    assert_one_line(run("check", good), "no such file")


@pytest.mark.parametrize("code", [errno.ENAMETOOLONG, errno.ELOOP])
def test_names_that_the_system_refuses_anywhere(
    run: Run, good: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code), "x" * 300)

    monkeypatch.setattr("mltree.analyses.check.run_check", fail)
    assert_one_line(run("check", good), f"mltree: {'x' * 60}...: {os.strerror(code)}")


@pytest.mark.parametrize("told", ["", "Unable to allocate 9.1 TiB"])
def test_no_memory_left_is_one_line(
    run: Run, good: Path, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError(*filter(None, [told]))

    monkeypatch.setattr("mltree.analyses.check.run_check", fail)
    line = f"out of memory: {told} (smaller" if told else "out of memory (smaller data"
    assert_one_line(run("check", good), line)
    assert '"code": 2' in run("check", good, "--json").stdout


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_file_that_unpacks_to_more_than_the_memory(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    (tmp_path / "x").write_bytes(pack(GOOD.encode()) + pack(bytes(1 << 26)))
    monkeypatch.setattr("mltree.data.source.host_memory", lambda: 1 << 26)
    assert_one_line(run("check", "x"), "x: unpacks to more than 32 MiB, which")


def test_escape_codes_in_names_do_not_reach_the_terminal(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a\x1b[31mb.fa").write_text(GOOD)
    (tmp_path / "t.nwk").write_text(TREE)
    missing = run("check", "no\x1b[2J.fa")
    assert_one_line(missing, r"no\x1b[2J.fa: no such file")
    options = ("--tree", "t.nwk", "-m", "JC", "--no-opt-branches", "--prefix", "p\x1b[2J")
    scored = run("evaluate", "a\x1b[31mb.fa", *options)
    assert scored.exit_code == 0, scored.output
    assert r"a\x1b[31mb.fa" in scored.output
    log = (tmp_path / "p\x1b[2J.mltree.evalLog").read_text()
    for text in (missing.output, scored.output, log):
        assert "\x1b" not in text


def test_loci_have_names_that_a_table_can_hold(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "loci"
    folder.mkdir()
    for name in ("a.fa", "b\tc.fa"):
        (folder / name).write_text(GOOD)
    assert_one_line(run("search", "loci", "--prefix", "x"), "a locus cannot have that name")
