"""What is said of what cannot be used: messages that no other test reads, and that all are read."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import Result

Run = Callable[..., Result]

ROOT = Path(__file__).parents[2]

ALIGNMENT = ">a\nACGTACCA\n>b\nACGTTCCG\n>c\nACTTACCA\n>d\nGCTTACTA\n"
TREE = "((a:0.1,b:0.1):0.1,c:0.1,d:0.1);\n"
NEXUS = "#NEXUS\nbegin data;\ndimensions ntax=5 nchar=4;\nformat datatype=dna;\nmatrix\n"

CASES = [
    (("search", "a.fa", "--model", "MULTI65_MK"), "a character has 2 to 64 states"),
    (
        ("simulate", "-m", "two.model", "--taxa", "5", "-n", "9", "-o", "x.fa"),
        "two.model: a model file has one model",
    ),
    (("search", "a.fa", "--sh-alrt", "0"), "between 1 and 1,000,000 resamplings are possible"),
    (("search", "a.fa", "--metric", "foo"), "--metric: 'foo' is not one of fbp, tbe"),
    (("search", "a.fa", "--ufboot", "10"), " are possible"),
    (("check", "few.nex"), "NTAX is 5, but the MATRIX has 4 taxa"),
    (("search", "a.fa", "--model", "lg.part"), "model LG is for proteins, but"),
    (
        ("test", "mixed.fa", "--trees", "a.nwk", "--model", "mixed.part"),
        "mixed.part: these tests need data of one type",
    ),
    (("concordance", "a.nwk"), "there is nothing to compare the tree with: give --gene-trees"),
    (("--config", "switch.toml", "search", "a.fa"), "redo must be true or false"),
    (("--config", "list.toml", "search", "a.fa"), "seed must be a string or a number"),
    (("search", "a.fa", "--model", "auto", "--prefix", "old"), "models were chosen with --merge"),
]

ERRORS = {"InputError", "ModelError", "DeviceError"}

RUN_OF_WORDS = (3, 2)
"""So many words of a message, one after the other, are enough to recognise it in a test..."""

LEAST = 9
"""...if they have so many characters."""


@pytest.fixture
def folder(run: Run) -> Path:
    """The files that the cases name, where commands run."""
    letters = "ACGTACGTACGTACGTACGTACGTACGTACGT"
    for name, content in {
        "a.fa": "".join(
            f">{taxon}\n{letters[i:]}{letters[:i]}\n" for i, taxon in enumerate("abcd")
        ),
        "a.nwk": TREE,
        "two.model": "JC\nGTR\n",
        "few.nex": NEXUS + "a ACGT\nb ACGT\nc ACGA\nd ACCA\n;\nend;\n",
        "lg.part": "LG, one = 1-32\n",
        "mixed.fa": ">a\nACGT0101\n>b\nACGA0110\n>c\nACCA1101\n>d\nATGT0011\n",
        "mixed.part": "GTR, dna = 1-4\nBIN, traits = 5-8\n",
        "old.mltree.modelTest": '[{"part": "one", "merged": ["a", "b"]}]',
        "switch.toml": '[search]\nredo = "yes"\n',
        "list.toml": "[search]\nseed = [1]\n",
    }.items():
        Path(name).write_text(content)
    return Path()


@pytest.mark.parametrize(("arguments", "message"), CASES)
def test_it_is_told_in_one_line(
    run: Run, folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("mltree: ")]
    assert message in line
    assert "Traceback" not in result.stderr


def messages() -> Iterator[tuple[str, list[str]]]:
    """Where each error is made whose words stand there, and its words between what is filled in."""
    for path in sorted((ROOT / "mltree").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ERRORS and node.args:
                pieces = [
                    part.value
                    for part in getattr(node.args[0], "values", [node.args[0]])
                    if isinstance(part, ast.Constant) and len(part.value.strip()) >= LEAST
                ]
                if pieces:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", pieces


def is_read(pieces: list[str], tests: str) -> bool:
    """Whether a few words in a row of a message stand in a test."""
    for words in (piece.split() for piece in pieces):
        for start in range(len(words)):
            for length in RUN_OF_WORDS:
                few = " ".join(words[start : start + length])
                if len(few) >= LEAST and few in tests:
                    return True
    return False


def test_every_message_is_read_by_a_test() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    unread = [f"{where}: {pieces}" for where, pieces in messages() if not is_read(pieces, tests)]
    assert not unread, "\n".join(unread)
