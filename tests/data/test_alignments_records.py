"""NEXUS, Clustal and Stockholm: what is written in every dialect is read back, or refused."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from mltree.data.alignments import read_alignment
from mltree.data.patterns import compress
from mltree.report.tables import warning_lines
from mltree.runs.problem import summarise
from mltree.system.errors import InputError

ROOT = Path(__file__).parents[2]

DNA, PROTEIN = "ACGTRYKMSWBDHVN", "ARNDCQEGHILKMFPSTWYVX"

Rows = dict[str, str]


def random_rows(rng: random.Random, letters: str) -> Rows:
    """Four to nine taxa with gaps and unknowns; the first columns have every plain letter."""
    taxa = [f"{rng.choice(['t', 'Homo', 'x.y', 'a/1-30'])}_{n}" for n in range(rng.randint(4, 9))]
    sites = rng.randint(1, 150)
    weights = [20 if letter in "ACGTL" else 1 for letter in letters]
    return {
        taxon: "".join(
            rng.choices([*letters, "-", "?"], [*weights, 10, 3], k=sites)
        ) for taxon in taxa
    }  # fmt: skip


def cut(text: str, widths: Sequence[int]) -> list[str]:
    """A row in pieces of these widths; the last takes what is left."""
    pieces, start = [], 0
    for width in widths:
        pieces.append(text[start : start + width])
        start += width
    return [*pieces, text[start:]]


def some_widths(rng: random.Random, rows: Rows) -> list[int]:
    sites = len(next(iter(rows.values())))
    widths: list[int] = []
    while sum(widths) + 10 < sites and rng.random() < 0.8:
        widths.append(rng.randint(1, 10))
    return widths


def spaced(rng: random.Random, text: str) -> str:
    return "".join(letter + (" " if rng.random() < 0.1 else "") for letter in text).strip()


def write_nexus(rng: random.Random, rows: Rows, protein: bool) -> str:
    gap, missing = rng.choice(["-", "~"]), rng.choice(["?", "#"])
    shown = {taxon: row.replace("-", gap).replace("?", missing) for taxon, row in rows.items()}
    first = next(iter(shown.values()))
    match = rng.choice(["", ".", "="])
    if match:
        others = {
            taxon: "".join(match if a == b else a for a, b in zip(row, first, strict=True))
            for taxon, row in shown.items()
        }
        shown = {**others, next(iter(shown)): first}
    is_interleaved = rng.random() < 0.5
    quoted = {taxon: f"'{taxon}'" if rng.random() < 0.3 else taxon for taxon in shown}
    widths = some_widths(rng, rows)
    lines = []
    if is_interleaved:
        for number in range(len(widths) + 1):
            pieces = ((quoted[taxon], cut(row, widths)[number]) for taxon, row in shown.items())
            lines += [f"  {name} {spaced(rng, piece)} [{number}]" for name, piece in pieces] + [""]
    else:
        for taxon, row in shown.items():
            head, *rest = cut(row, widths)
            lines += [f"{quoted[taxon]}\t{head}", *(f"   {spaced(rng, piece)}" for piece in rest)]
    kinds = ["protein"] if protein else ["dna", "RNA", "Nucleotide"]
    words = [
        f"datatype={rng.choice(kinds)}", f"gap={gap}", f"MISSING = {missing}",
        *([f"matchchar={match}"] if match else []),
        *(["interleave" + rng.choice(["", "=yes"])] if is_interleaved else []),
    ]  # fmt: skip
    rng.shuffle(words)
    sites = len(first)
    begin = rng.choice(["begin data", "BEGIN CHARACTERS", "Begin Data"])
    return "\n".join(
        [
            "#NEXUS [written by a test; [nested] ]",
            "begin taxa; dimensions ntax=" + str(len(rows)) + "; taxlabels x; end;",
            f"{begin};",
            f"  dimensions ntax={len(rows)} nchar={sites};",
            f"  format {' '.join(words)};",
            "  matrix",
            *lines,
            "  ;",
            "end;",
            "begin trees; tree one = [&U] (a,b,('c;d',e)); end;",
        ]
    )


def write_clustal(rng: random.Random, rows: Rows, protein: bool) -> str:
    widths, counted = some_widths(rng, rows), rng.random() < 0.5
    lines = [rng.choice(["CLUSTAL W (1.83) multiple sequence alignment", "MUSCLE (3.8)"]), ""]
    so_far = dict.fromkeys(rows, 0)
    for number in range(len(widths) + 1):
        for taxon, row in rows.items():
            piece = cut(row, widths)[number]
            so_far[taxon] += len(piece.replace("-", ""))
            lines.append(f"{taxon:<20}{piece}" + (f" {so_far[taxon]}" if counted else ""))
        lines += [" " * 20 + rng.choice(["", "**:. *", "*"]), ""]
    return "\n".join(lines)


def write_stockholm(rng: random.Random, rows: Rows, protein: bool) -> str:
    widths = some_widths(rng, rows)
    lines = ["# STOCKHOLM 1.0", "#=GF ID test"]
    for number in range(len(widths) + 1):
        for taxon, row in rows.items():
            piece = cut(row, widths)[number]
            if rng.random() < 0.3:
                piece = piece.replace("-", ".")
            lines.append(f"{taxon} {piece}")
            lines += ["#=GR x SS HHH"] if rng.random() < 0.2 else []
        lines += ["#=GC SS_cons HHH", ""]
    return "\n".join([*lines, "//"])


WRITERS: dict[str, Callable[[random.Random, Rows, bool], str]] = {
    "NEXUS": write_nexus,
    "Clustal": write_clustal,
    "Stockholm": write_stockholm,
}


@pytest.mark.cases(20, 2000)
@pytest.mark.parametrize("layout", WRITERS)
def test_what_is_written_is_read_back(tmp_path: Path, layout: str, case: int) -> None:
    rng = random.Random(case)
    is_protein = rng.random() < 0.5
    rows = random_rows(rng, PROTEIN if is_protein else DNA)
    text = WRITERS[layout](rng, rows, is_protein)
    if rng.random() < 0.3:
        text = text.replace("\n", "\r\n")
    (tmp_path / "x").write_bytes(text.encode())
    found = read_alignment(tmp_path / "x", "AA" if is_protein else "DNA")
    assert found.file_format.startswith(layout)
    assert found.names == tuple(rows)
    expected = np.array([list(row.encode()) for row in rows.values()], np.uint8)
    assert (found.characters == expected).all()


@pytest.mark.cases(4, 400)
@pytest.mark.parametrize("layout", WRITERS)
def test_damaged_files_are_read_or_refused_in_a_line(
    tmp_path: Path, layout: str, case: int, mutated: Callable[[bytes, random.Random], bytes]
) -> None:
    rng = random.Random(case)
    for _ in range(50):
        text = WRITERS[layout](rng, random_rows(rng, DNA), False).encode()
        (tmp_path / "x").write_bytes(mutated(text, rng))
        try:
            found = read_alignment(tmp_path / "x")
        except InputError as error:
            assert "\n" not in error.message  # noqa: PT017
        else:
            assert found.n_taxa >= 4


NEXUS = """#NEXUS
begin data;
dimensions ntax=4 nchar=6;
format datatype=dna;
matrix
a ACGTAC
b ACGTTC
c ACTTAC
d GCTTAC
;
end;
"""

STANDARD = """#NEXUS
begin data;
dimensions ntax=4 nchar=6;
format datatype=standard;
matrix
a 012210
b 012211
c 110210
d 112210
;
end;
"""

CLUSTAL = "CLUSTAL 2.1\n\na ACGTAC 6\nb ACGTTC 6\nc ACTTAC 6\nd GCTTAC 6\n  **.\n"

STOCKHOLM = "# STOCKHOLM 1.0\na ACGTAC\nb ACGTTC\nc ACTTAC\nd GCTTAC\n//\n"

REFUSED = {
    "no matrix": (NEXUS.split("matrix", maxsplit=1)[0] + "end;\n", "no DATA or CHARACTERS block"),
    "no semicolon": (NEXUS.split(";\nend", maxsplit=1)[0], "line 5: no ';' ends this command"),
    "open comment": (NEXUS.replace("matrix", "[ matrix"), "line 5: no ']' ends this comment"),
    "number of taxa": (NEXUS.replace("ntax=4", "ntax=5"), "NTAX is 5, but the MATRIX has 4"),
    "number of sites": (NEXUS.replace("nchar=6", "nchar=5"), "taxon a has 6 sites, but NCHAR is 5"),
    "no sites": (NEXUS.replace("nchar=6", ""), "no DIMENSIONS with NCHAR"),
    "odd number": (NEXUS.replace("nchar=6", "nchar=x"), "NCHAR is not a number"),
    "mixed": (NEXUS.replace("=dna", "=mixed"), "DATATYPE=mixed is not read (DNA,"),
    "equate": (NEXUS.replace("=dna", "=dna equate='x=A'"), "EQUATE in FORMAT is not read"),
    "tokens": (NEXUS.replace("=dna", "=dna tokens"), "TOKENS in FORMAT is not read"),
    "right labels": (NEXUS.replace("=dna", "=dna labels=right"), "LABELS=right in FORMAT is not"),
    "unknown word": (NEXUS.replace("=dna", "=dna upsidedown"), "UPSIDEDOWN in FORMAT is not read"),
    "odd interleave": (NEXUS.replace("=dna", "=dna interleave=maybe"), "INTERLEAVE=maybe in"),
    "case": (STANDARD.replace("=standard", "=standard respectcase"), "RESPECTCASE without SYMBOLS"),
    "case first": (STANDARD.replace("datatype", "respectcase datatype"), "RESPECTCASE without"),
    "odd symbols": (
        STANDARD.replace("=standard", '=standard symbols="1 2 3"'),
        "line 6: '0' is not one of SYMBOLS",
    ),
    "eliminate": (NEXUS.replace("matrix", "eliminate 2-3;\nmatrix"), "line 5: ELIMINATE is not"),
    "zap": (NEXUS.replace("matrix", "zap 2-3; matrix"), "ZAP is not supported (remove"),
    "options": (NEXUS.replace("matrix", "options gapmode=newstate; matrix"), "gapmode=newstate"),
    "exset": (NEXUS + "begin assumptions; exset * x = 2-3; end;", "line 12: EXSET *, which is in"),
    "wtset": (NEXUS + "begin assumptions; wtset* w = 2: 1-3, 1: 4-6; end;", "WTSET *, which is in"),
    "many weights": (
        f"{NEXUS}begin assumptions; wtset * w = {'1 : 1   ' * 60} 2 : 2; end;", "WTSET *, which is"
    ),
    "exset of a word": (NEXUS + "begin sets; exset * x = all; end;", "EXSET *, which is in force"),
    "vector": (NEXUS + "begin assumptions; wtset * w (vector) = 1 1 2 1 1 1; end;", "WTSET *"),
    "typeset": (NEXUS + "begin assumptions; typeset * t = ord: 1-3; end;", "TYPESET *, which"),
    "deftype": (NEXUS + "begin assumptions; options deftype=ord; end;", "deftype=ord is not"),
    "exclude": (NEXUS + "begin paup; exclude 2-3; end;", "EXCLUDE is not supported"),
    "delete": (NEXUS + "begin mrbayes; delete a; end;", "DELETE is not supported"),
    "ctype": (NEXUS + "begin mrbayes; ctype ordered: 1 2; end;", "CTYPE is not supported"),
    "long gap": (NEXUS.replace("=dna", "=dna gap=--"), "GAP is to be one character"),
    "hidden blocks": (
        NEXUS.replace("b ACGTTC", "a ACGTTC"),
        "line 7: taxon a comes a second time (an interleaved",
    ),
    "open quote": (NEXUS.replace("c ACT", "'c ACT"), "line 8: a quoted name does not end"),
    "two alignments": (NEXUS + NEXUS[7:], "another alignment begins"),
    "first row matches": (
        NEXUS.replace("=dna", "=dna matchchar=.").replace("a ACG", "a A.G"),
        "the first row has the MATCHCHAR itself",
    ),
    "odd set": (
        NEXUS.replace("=dna", "=protein").replace("a ACGTAC", "a {AC}CGTAC"),
        "line 6: taxon a, site 1: the set {AC} is not an AA",
    ),
    "a record within": (NEXUS.replace("a ACG", "a >CG"), "line 6: '>' where a sequence is"),
    "wrong count": (CLUSTAL.replace("TTC 6", "TTC 7"), "line 4: the count says 7, but the row"),
    "third word": (CLUSTAL.replace("TTC 6", "TTC 6 6"), "line 4: not a name, a sequence"),
    "a lost row": (
        CLUSTAL + "a A\nb A\nc A\n", "line 10: the last block has no d (is it truncated?)"
    ),
    "another order": (CLUSTAL + "a A\nc A\nb A\nd A\n", "line 9: c where b is expected"),
    "no end": (STOCKHOLM[:-3], "the alignment does not end with // (is it truncated?)"),
    "a second one": (STOCKHOLM * 2, "line 7: another alignment begins"),
    "odd row": (STOCKHOLM.replace("b ACGTTC", "b ACG TTC"), "line 3: neither a name and"),
    "ragged": (STOCKHOLM.replace("b ACGTTC", "b ACGTT"), "line 3: taxon b has 5 sites, but"),
    "character": (CLUSTAL.replace("b ACGTTC 6", "b A!GTTC"), "line 4: taxon b, site 2"),
    "nothing": ("CLUSTAL\n", "no sequences"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(tmp_path: Path, case: str) -> None:
    text, expected = REFUSED[case]
    (tmp_path / "x").write_text(text)
    with pytest.raises(InputError) as refused:
        read_alignment(tmp_path / "x")
    hint = f" ({refused.value.hint})" if refused.value.hint else ""
    assert expected in refused.value.message + hint


def test_sets_of_nucleotides_are_letters(tmp_path: Path) -> None:
    text = NEXUS.replace("a ACGTAC", "a {AG}(c t){ACGT}{U}AC").replace("begin data", "BEGIN data")
    (tmp_path / "x").write_text(text)
    alignment = read_alignment(tmp_path / "x")
    codes = alignment.alphabet.encode(alignment.characters)
    assert bytes(alignment.alphabet.decode(codes)[0]) == b"RY-TAC"


def test_names_in_quotes_keep_their_blanks_as_newick_has_them(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(NEXUS.replace("a ACG", "'Homo  sapiens' ACG"))
    assert read_alignment(tmp_path / "x").names[0] == "Homo_sapiens"


def test_nexus_says_what_the_data_are(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(NEXUS.replace("=dna", "=protein"))
    assert read_alignment(tmp_path / "x").alphabet.name == "AA"
    assert read_alignment(tmp_path / "x", "DNA").alphabet.name == "DNA"


@pytest.mark.parametrize(
    "words",
    [
        "notokens tokens=no transpose=no labels=left labels items=states",
        "statesformat=statespresent",
        'symbols = "acgt" respectcase interleave=no',
        "items=(states)",
    ],
)
def test_words_of_format_that_change_nothing(tmp_path: Path, words: str) -> None:
    (tmp_path / "x").write_text(NEXUS.replace("=dna", f"=dna {words}"))
    assert read_alignment(tmp_path / "x").n_sites == 6


@pytest.mark.parametrize("symbols", ["0 1 2", "012345", "0~2", "0~9 A~F", ""])
def test_symbols_in_the_order_that_they_have_here(tmp_path: Path, symbols: str) -> None:
    (tmp_path / "x").write_text(STANDARD.replace("=standard", f'=standard symbols="{symbols}"'))
    assert read_alignment(tmp_path / "x").alphabet.name == "MULTI3"


HARMLESS = """begin assumptions;
  options deftype=unord polytcount=minsteps gapmode=missing;
  exset * untitled = ;
  exset x = 2-3;
  wtset * untitled = 1: 1-6;
  wtset * w (vector) = 1 1 1 1 1 1;
  wtset w = 2: 1-3;
  typeset * untitled = unord: 1-6;
  typeset t = ord: 1-6;
end;
begin notes; text taxon=1 text='exclude 2-3'; end;
"""


def test_assumptions_that_change_nothing(tmp_path: Path) -> None:
    """What Mesquite writes in every file, and sets that are not in force."""
    (tmp_path / "x").write_text(NEXUS + HARMLESS)
    assert not read_alignment(tmp_path / "x").has_parts


@pytest.mark.parametrize("command", ["charset a = 1-3;", "charpartition * m = JC: a;"])
def test_a_file_of_parts_of_its_own_is_told_of(tmp_path: Path, command: str) -> None:
    (tmp_path / "x").write_text(f"{NEXUS}begin sets; {command} end;")
    alignment = read_alignment(tmp_path / "x")
    (line, *_) = [
        line for line in warning_lines(summarise(alignment, compress(alignment))) if "own" in line
    ]
    assert line == "the file's own charsets are not used: give it as --partitions too"


def test_comments_beside_quotes_are_comments(tmp_path: Path) -> None:
    text = NEXUS.replace("c ACT", "'c' [its 'name'] ACT").replace("b ACG", "b [x]ACG[y]")
    (tmp_path / "x").write_text(text.replace("matrix", "[don't] title 'a;b'; matrix"))
    found = read_alignment(tmp_path / "x")
    assert found.names[:3] == ("a", "b", "c")
    assert bytes(found.characters[2]) == b"ACTTAC"
