"""``report``, ``draw``, ``simulate``, ``sitelh`` and ``convert`` as their users see them."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import dendropy
import numpy as np
import pytest
from typer.testing import Result

from mltree.analyses.convert import style_of
from mltree.analyses.options import DrawOptions
from mltree.data.alignments import read_alignment
from mltree.data.patterns import compress
from mltree.system.errors import InputError
from mltree.tree.clades import read_written
from mltree.tree.newick import read_newick, write_newick
from mltree.tree.topology import uniform_tree

Run = Callable[..., Result]

DATASETS = Path(__file__).parents[2] / "datasets"
TREE = (DATASETS / "primates.bootstraps").read_text().splitlines()[0]
MODEL = "HKY{3}+FU{0.3/0.3/0.1/0.3}+G4{0.5}"


def fine(result: Result) -> Result:
    assert result.exit_code == 0, result.output
    return result


def test_a_search_is_drawn(run: Run, tmp_path: Path, primates: str) -> None:
    options = ("--model", "JC", "--preset", "fast", "--device", "reference", "--prefix", "x")
    result = fine(run("search", primates, *options, "--report"))
    assert "Wrote x.mltree.report.html\nOpen x.mltree.report.html" in result.stdout
    page = (tmp_path / "x.mltree.report.html").read_text()
    lnl = json.loads((tmp_path / "x.mltree.json").read_text())["lnl"]
    assert f"{lnl:,.3f}" in page
    for text in ("search done", "12 × 898", "Hylobates", "exchangeabilities of JC", "states per"):
        assert text in page
    events = [json.loads(line) for line in (tmp_path / "x.mltree.events").read_text().splitlines()]
    assert events[0]["event"] == "RunStarted"
    assert "RunFinished" in {event["event"] for event in events}


def test_a_report_takes_what_there_is(run: Run, tmp_path: Path) -> None:
    refused = run("report", "x")
    assert refused.exit_code == 2
    assert "there is no tree of a run at x.mltree.* (is the prefix right?)" in refused.stderr
    assert "(the prefix may be x)" in run("report", "x.mltree.bestTree").stderr
    (tmp_path / "x.mltree.lastTree").write_text("(Homo,Pan,(Gorilla,Pongo)77);")
    fine(run("report", "x"))
    assert "4 taxa" in (tmp_path / "x.mltree.report.html").read_text()
    assert "already exists (--redo" in run("report", "x").stderr
    (tmp_path / "other.nwk").write_text("(Homo,Pan,Gorilla,Pongo,Hylobates);")
    fine(run("report", "x.mltree", "--redo", "--tree", "other.nwk"))
    assert "5 taxa" in (tmp_path / "x.mltree.report.html").read_text()


def test_a_report_as_text_has_all_of_an_analysis(
    run: Run, tmp_path: Path, primates: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mltree.runs.model_choice.matrices", lambda *_: ("HKY+FC", "GTR+FC"))
    options = ("--model", "auto", "--preset", "fast", "--prefix", "x")
    fine(run("search", primates, *options, "--abayes"))
    fine(run("report", "x", "--text"))
    assert "already exists (--redo" in run("report", "x", "--text").stderr
    assert not (tmp_path / "x.mltree.report.html").exists()
    text = (tmp_path / "x.mltree.report.txt").read_text()
    result = json.loads((tmp_path / "x.mltree.json").read_text())
    headings = re.findall(r"^(.+)\n-+$", text, re.MULTILINE)
    assert headings[:6] == ["Alignment", "Model choice", "Model", "Tree", "Supports", "Time"]
    assert headings[-1] == "Methods and citations"
    assert f"Log-likelihood:      {result['lnl']:.4f}\n" in text
    assert f"Model: {result['model']}\n" in text
    assert f"Length:              {result['tree_length']:.6f}" in text
    for words in (
        "12 taxa and 898 sites",
        "Labels: aBayes",
        "/-Gorilla",
        "aBayes:",
        "[1] The mltree",
    ):
        assert words in " ".join(text.split())
    (newick,) = re.findall(r"^\(.*;$", text, re.MULTILINE)
    written, wanted = (
        read_written(one)[0] for one in (newick, result["supports"]["abayes"]["newick"])
    )
    assert written.labels == wanted.labels
    assert np.array_equal(written.lengths, wanted.lengths, equal_nan=True)
    assert "Wrote" not in text
    best = re.search(r"^model .*\n(\S+) ", text, re.MULTILINE)
    assert best is not None
    assert best[1] in text.partition("Best of")[2].splitlines()[0]


def test_a_lost_alignment_is_told(run: Run, tmp_path: Path) -> None:
    loaded = {"event": "AlignmentLoaded", "elapsed": 0.1, "path": "gone/p.phy",
              "file_format": "PHYLIP", "data_type": "DNA", "data_seen": "100% ACGT",
              "taxa": 12, "sites": 898, "patterns": 413, "gap_share": 0.003}  # fmt: skip
    (tmp_path / "x.mltree.events").write_text(json.dumps(loaded) + "\n")
    (tmp_path / "x.mltree.bestTree").write_text(TREE)
    (tmp_path / "x.mltree.bestModel").write_text("GTR{1/2/1/1/2/1}+FC+G4m{0.5}, noname = 1-898\n")
    assert "give its new path with --alignment" in fine(run("report", "x")).output
    page = (tmp_path / "x.mltree.report.html").read_text()
    assert "gone/p.phy" in page
    assert "states per site" not in page
    assert ">frequency</text>" not in page
    fine(run("report", "x", "--redo", "--alignment", DATASETS / "primates.phy"))
    page = (tmp_path / "x.mltree.report.html").read_text()
    assert "states per site" in page
    assert ">frequency</text>" in page, "counted in the alignment"


def test_supports_are_shown_unless_they_are_older_than_the_tree(run: Run, tmp_path: Path) -> None:
    tree, supports = tmp_path / "x.mltree.bestTree", tmp_path / "x.mltree.support"
    supports.write_text("(a,b,(c,d)77);")
    tree.write_text("(a,b,(c,d));")
    os.utime(supports, (1, 1))
    fine(run("report", "x"))
    assert "x.mltree.bestTree" in (tmp_path / "x.mltree.report.html").read_text()
    os.utime(tree, (1, 1))
    fine(run("report", "x", "--redo"))
    assert "x.mltree.support" in (tmp_path / "x.mltree.report.html").read_text()


@pytest.mark.parametrize("ending", ["svg", "png", "pdf", "PNG"])
def test_pictures_are_what_their_names_say(run: Run, tmp_path: Path, ending: str) -> None:
    (tmp_path / "t.nwk").write_text(TREE + "\n" + TREE)
    options = ("--layout", "circular", "--cladogram", "--order=written", "--supports=none")
    result = fine(run("draw", "t.nwk", "-o", f"t.{ending}", *options))
    assert "the first of 2 trees is drawn" in result.output
    content = (tmp_path / f"t.{ending}").read_bytes()
    assert content.startswith({"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF"}[ending.lower()])


def test_pictures_of_no_kind(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.nwk").write_text(TREE)
    for out, message in (("t.gif", "not show the picture format"), ("no/t.svg", "no folder no"),
                         ("t.nwk", "does not show the")):  # fmt: skip
        result = run("draw", "t.nwk", "-o", out)
        assert result.exit_code == 2
        assert message in result.stderr
    fine(run("draw", "t.nwk", "-o", "t.svg"))
    assert "already exists (--redo" in run("draw", "t.nwk", "-o", "t.svg").stderr


def test_pictures_are_of_the_size_that_is_asked_for(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.nwk").write_text(TREE)
    (tmp_path / "clades").write_text("# a comment\nApes=Homo_sapiens,Hylobates\n")
    for width, points in (
        ("174mm", "493.23"),
        ("8.5cm", "240.94"),
        ("6in", "432.00"),
        ("500", "500.00"),
    ):
        fine(run("draw", "t.nwk", "-o", "t.svg", "--redo", "--width", width, "--font-size", "6"))
        assert f'width="{points}pt"' in (tmp_path / "t.svg").read_text()
    options = ("--outgroup", "Lemur_catta,Tarsius_syrichta", "--highlight", "clades",
               "--collapse", "Macaques=M_sylvanus,Macaca_fuscata:#e69f00", "--italic")  # fmt: skip
    fine(run("draw", "t.nwk", "-o", "t.svg", "--redo", *options))
    text = (tmp_path / "t.svg").read_text()
    for words in (">Apes<", ">Macaques (4)<", ">Homo sapiens<", 'font-style="italic"'):
        assert words in text


def test_a_result_tells_what_its_supports_are(run: Run, tmp_path: Path) -> None:
    labelled = ("((a:1,b:1)90.1:1,c:1,d:1);", "((a:1,b:1)90.1/88:1,c:1,d:1);")
    supports = {"sh-alrt": {"metric": "SH-aLRT", "newick": labelled[0]},
                "fbp": {"metric": "FBP", "newick": labelled[1]}}  # fmt: skip
    result = {"tree": "((a:1,b:1):1,c:1,d:1);", "supports": supports}
    (tmp_path / "r.json").write_text(json.dumps(result))
    fine(run("draw", "r.json", "-o", "t.svg"))
    text = (tmp_path / "t.svg").read_text()
    assert ">90.1/88<" in text
    assert "Supports: SH-aLRT / bootstrap" in text
    (tmp_path / "r.json").write_text("{}")
    refused = run("draw", "r.json", "-o", "t.svg", "--redo")
    assert refused.exit_code == 2
    assert "no result with a tree" in refused.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--outgroup", "Nobody"), "the tree has no taxon 'Nobody'"),
        (("--outgroup", "Pan", "--midpoint"), "choose one"),
        (("--width", "0"), "not a length of a picture"),
        (("--width", "20", "--font-size", "9"), "too small"),
        (("--cutoff", "a/b"), "--cutoff: 'a/b'"),
        (("--columns", "0"), "--columns: '0'"),
        (("--supports", "foo"), "--supports: 'foo' is not one of labels, colours, dots, none"),
        (("--support-colours", "70=red"), "'70=red' is not a support and colour"),
        (("--highlight", "Apes="), "names no taxon"),
        (("--collapse", "nofile"), "the tree has no taxon 'nofile'"),
        (("--layout", "unrooted", "--axis", "time"), "no time axis"),
        (("--latest", "2020"), "--latest goes with --axis time"),
        (("--font-size", "0"), "not a font size"),
        (("--dpi", "3"), "3 is not in the range"),
    ],
)
def test_bad_options_of_pictures(
    run: Run, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    (tmp_path / "t.nwk").write_text(TREE)
    refused = run("draw", "t.nwk", "-o", "t.svg", *options)
    assert refused.exit_code == 2
    (line,) = [line for line in refused.stderr.splitlines() if line.startswith("mltree: ")]
    assert message in line
    assert not (tmp_path / "t.svg").exists()


def test_the_same_seed_simulates_the_same_file(run: Run, tmp_path: Path) -> None:
    options = ("--taxa", "9", "--sites", "70", "--model", MODEL)
    for name, seed in (("a.phy.gz", "3"), ("b.phy.gz", "3"), ("c.phy.gz", "4")):
        fine(run("simulate", *options, "-o", name, "--seed", seed, "--true-tree", f"{name}.nwk"))
    a, b, c = ((tmp_path / f"{x}.phy.gz").read_bytes() for x in "abc")
    assert a == b != c
    assert gzip.decompress(a).startswith(b"9 70\n")
    alignment = read_alignment(tmp_path / "a.phy.gz")
    tree, _ = read_newick(tmp_path / "a.phy.gz.nwk", alignment.names)
    assert 0.02 < tree.lengths.mean() < 0.6


def test_a_tree_and_its_models_file_with_gaps(run: Run, tmp_path: Path, primates: str) -> None:
    """As for a parametric bootstrap."""
    (tmp_path / "t.nwk").write_text(TREE)
    (tmp_path / "x.bestModel").write_text(MODEL + ", noname = 1-898\n")
    options = ("--tree", "t.nwk", "--model", "x.bestModel", "--gaps-from", primates)
    fine(run("simulate", *options, "-o", "s.fasta"))
    made, real = read_alignment(tmp_path / "s.fasta"), read_alignment(primates)
    assert sorted(made.names) == sorted(real.names)
    rows = [real.names.index(name) for name in made.names]
    wanted = real.alphabet.encode(real.characters[rows]) == real.alphabet.gap_code
    np.testing.assert_array_equal(made.characters == ord("-"), wanted)
    counts = np.array([(made.characters == ord(state)).mean() for state in "ACGT"])
    assert counts == pytest.approx([0.3, 0.3, 0.1, 0.3], abs=0.08)


def test_codons_are_as_many_as_the_gaps_are_for(run: Run, tmp_path: Path, primates: str) -> None:
    options = ("--taxa", "9", "--model", "GY{0.2/2}+FE", "--gaps-from", primates)
    fine(run("simulate", *options, "-o", "s.fasta"))
    assert read_alignment(tmp_path / "s.fasta").n_sites == read_alignment(primates).n_sites // 3 * 3


def test_frequencies_are_counted_where_asked_for(run: Run, tmp_path: Path, primates: str) -> None:
    (tmp_path / "x.bestModel").write_text("HKY{1/3}+FC+G4m{0.5}, noname = 1-898\n")
    drawn = ("simulate", "--taxa", "9", "--sites", "4000", "-o", "s.fasta")
    fine(run(*drawn, "--model", "x.bestModel", "--frequencies-from", primates))
    made, real = (compress(read_alignment(path)) for path in (tmp_path / "s.fasta", primates))
    np.testing.assert_allclose(made.base_frequencies(), real.base_frequencies(), atol=0.03)
    refused = run(*drawn, "--redo", "--model", "LG+FC", "--frequencies-from", primates)
    assert "model LG is for proteins" in refused.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--sites 9", "--tree or --taxa is missing"),
        ("--taxa 3 --sites 9", "a tree needs at least 4 taxa, not 3"),
        ("--taxa 9", "--sites is missing"),
        ("--taxa 9 --sites 9 --unique 9", "--sites and --unique exclude each other"),
        ("--taxa 9 --tree t.nwk --sites 9", "--taxa is for random trees"),
        ("--taxa 4 --unique 999", "only 256 distinct columns"),
        ("--taxa 9 --sites 9 --model GTR+FC", "frequencies of GTR+FC are not known"),
        ("--taxa 9 --sites 9 --model GTX", "unknown model"),
        ("--taxa 9 --sites 9 --model JC+BU{2}", "+B scales the branches of one of several parts"),
        ("--taxa 9 --sites 9 --model JC+ASC_LEWIS --mean-length 0", "only 0 sites vary"),
        ("--taxa 9 --gaps-from t.nwk --model JC+ASC_LEWIS", "gaps may hide all that varies"),
        ("--taxa 9 --sites 0", "--sites 0: an alignment has at least 1"),
        ("--taxa 9 --unique 0", "--sites 0: an alignment has at least 1"),
        ("--taxa 100000000000 --sites 5", "100,000,000,000 taxa, 5 sites take some"),
        ("--taxa 100000000000 --sites 5 --random-tree yule", "MiB of memory, and there are"),
        ("--taxa 5 --sites 100000000000", "5 taxa, 100,000,000,000 sites take some"),
        ("--taxa 5 --unique 100000000000", "MiB of memory, and there are"),
        ("--tree t.nwk --sites 1000000000000", "1,000,000,000,000 sites take some"),
        ("--taxa 9 --sites 9 --mean-length 1e308", "at most 1e+06"),
        ("--taxa 9 --sites 9 -o s.txt", "does not show the format"),
        ("--taxa 9 --sites 9 -o no/s.phy", "there is no folder no"),
        ("--taxa 9 --sites 9 --true-tree s.phy", "two outputs would be one file: s.phy"),
        ("--taxa 9 --sites 9 --true-tree ./s.phy --redo", "two outputs would be one file: s.phy"),
        ("--tree t.nwk --sites 9 --true-tree t.nwk --redo", "t.nwk is read, and would be"),
        ("--tree t.nwk --sites 9 -o t.nwk --format fasta --redo", "t.nwk is read, and would be"),
    ],
)
def test_simulations_that_cannot_be(run: Run, tmp_path: Path, options: str, message: str) -> None:
    (tmp_path / "t.nwk").write_text(TREE)
    result = run("simulate", "--model", "JC", "-o", "s.phy", *options.split())
    assert result.exit_code == 2
    (line,) = (line for line in result.stderr.splitlines() if not line.startswith("["))
    assert message in line
    assert {path.name for path in tmp_path.iterdir()} == {"t.nwk"}


@pytest.mark.parametrize("layout", ["iqtree", "raxml"])
def test_site_lnls_are_those_of_evaluate(
    run: Run, tmp_path: Path, primates: str, layout: str
) -> None:
    trees = (DATASETS / "primates.bootstraps").read_text().splitlines()[:2]
    (tmp_path / "t.nwk").write_text("\n".join(trees))
    common = ("--model", MODEL, "--device", "reference", "--no-opt-model", "--no-opt-branches")
    fine(run("sitelh", primates, "--trees", "t.nwk", *common, "--prefix", "s", "--format", layout))
    kind = {"iqtree": "sitelh", "raxml": "perSiteLLs"}[layout]
    head, *lines = (tmp_path / f"s.mltree.{kind}").read_text().splitlines()
    assert head.split() == ["2", "898"]
    names = [line.split()[0] for line in lines]
    assert names == {"iqtree": ["Tree1", "Tree2"], "raxml": ["tr1", "tr2"]}[layout]
    for number, (tree, line) in enumerate(zip(trees, lines, strict=True)):
        (tmp_path / "one.nwk").write_text(tree)
        options = (*common, "--site-lnl", "--prefix", f"e{number}")
        fine(run("evaluate", primates, "--tree", "one.nwk", *options))
        wanted = np.loadtxt(tmp_path / f"e{number}.mltree.siteLnL")
        np.testing.assert_allclose(np.array(line.split()[1:], float), wanted, atol=1e-8)


def test_one_tree_has_iqtrees_name(run: Run, tmp_path: Path, primates: str) -> None:
    (tmp_path / "t.nwk").write_text(TREE)
    options = ("--model", "JC", "--device", "reference", "--prefix", "s", "--no-opt-branches")
    fine(run("sitelh", primates, "--trees", "t.nwk", *options))
    assert (tmp_path / "s.mltree.sitelh").read_text().startswith("1 898\nSite_Lh    -")
    assert "already exists (--redo" in run("sitelh", primates, "--trees", "t.nwk", *options).stderr


@pytest.mark.parametrize("name", ["a.phy", "a.fasta.gz", "a.x --format phylip-interleaved"])
def test_alignments_are_converted(run: Run, tmp_path: Path, primates: str, name: str) -> None:
    out, *options = name.split()
    fine(run("convert", primates, "-o", out, *options))
    found, given = read_alignment(tmp_path / out), read_alignment(primates)
    assert found.names == given.names
    np.testing.assert_array_equal(found.characters, given.characters)


def test_stop_codons_are_masked(run: Run, tmp_path: Path) -> None:
    rows = {"a": "ATGAGATAAGCC", "b": "ATGACATARNTA", "c": "ATGACA---GCC", "d": "ATAACATAGGCC"}
    (tmp_path / "s.fa").write_text("".join(f">{name}\n{row}\n" for name, row in rows.items()))
    told = fine(
        run("convert", "s.fa", "-o", "m.fa", "--mask-stops", "--data-type", "codon:2")
    ).stderr
    assert "stop codons of the vertebrate mitochondrial code masked: 1; columns left out: 1" in told
    found = read_alignment(tmp_path / "m.fa", "codon:2")
    rows = [row.tobytes().decode() for row in found.characters]
    assert rows == ["ATG---GCC", "ATGACANTA", "ATGACAGCC", "ATAACAGCC"]
    wrong = {"--data-type protein": "--mask-stops is for codons", "": "not a multiple of three"}
    (tmp_path / "s.fa").write_text(">a\nATGA\n>b\nATGA\n>c\nATGA\n>d\nATGA\n")
    for options, message in wrong.items():
        result = run("convert", "s.fa", "-o", "x.fa", "--mask-stops", *options.split())
        assert result.exit_code == 2
        assert message in result.stderr


def test_trees_are_converted(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.nwk").write_text(f"{TREE}\n(a:1,\n'b c':0.5,(c,d)99:2);\n")
    fine(run("convert", "t.nwk", "-o", "t.nex"))
    assert (tmp_path / "t.nex").read_text().startswith("#NEXUS\nBEGIN TREES;\n  TREE tree_1 = (")
    fine(run("convert", "t.nex", "-o", "again.nwk"))
    assert (tmp_path / "again.nwk").read_text().splitlines()[1] == "(a:1,'b c':0.5,(c,d)99:2);"
    wrong = {
        "-o x.phy": "the tree format",
        "-o x.nwk --format fasta": "'fasta' is not a tree format",
    }
    for options, message in wrong.items():
        result = run("convert", "t.nwk", *options.split())
        assert result.exit_code == 2
        assert message in result.stderr


def labelled_splits(tree: dendropy.Tree) -> dict[frozenset[str], tuple[str, float]]:
    """Labels and lengths of the branches without a root, by the taxa on the side without t0."""
    names = frozenset(leaf.taxon.label for leaf in tree.leaf_node_iter())
    found: dict[frozenset[str], tuple[str, float]] = {}
    for node in tree.preorder_node_iter(lambda node: node.parent_node is not None):
        below = frozenset(leaf.taxon.label for leaf in node.leaf_iter())
        side = names - below if "t0" in below else below
        _, length = found.get(side, ("", 0.0))
        found[side] = node.label or "", length + node.edge_length
    return found


@pytest.mark.parametrize("seed", range(5))
def test_a_root_leaves_supports_on_their_branches(run: Run, tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng([seed, 392])
    taxa = [f"t{n}" for n in range(int(rng.integers(5, 25)))]
    newick = write_newick(uniform_tree(len(taxa), 0.1, rng), taxa)
    labels = iter(range(100, 200))
    (tmp_path / "t.nwk").write_text(re.sub(r"\):", lambda _: f"){next(labels)}:", newick))
    known = {"path": tmp_path / "t.nwk", "schema": "newick", "preserve_underscores": True}
    before = labelled_splits(dendropy.Tree.get(**known))
    clade = sorted(list(before)[int(rng.integers(len(before)))])
    for options in (("--outgroup", ",".join(clade)), ("--midpoint",)):
        fine(run("convert", "t.nwk", *options, "-o", "r.nwk", "--redo"))
        after = dendropy.Tree.get(**{**known, "path": tmp_path / "r.nwk"})
        splits = labelled_splits(after)
        assert splits.keys() == before.keys()
        for side, (label, length) in before.items():
            assert splits[side] == (label, pytest.approx(length, abs=1e-8))
        first, second = after.seed_node.child_nodes()
        sides = [sorted(leaf.taxon.label for leaf in one.leaf_iter()) for one in (first, second)]
        assert options == ("--midpoint",) or clade in sides
    assert max(first.distance_from_tip(), 0) + first.edge_length == pytest.approx(
        second.distance_from_tip() + second.edge_length, abs=1e-6
    )


def test_a_root_that_is_nowhere(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.nwk").write_text("((a:1,b:1)9:1,(c:1,d:1)8:1,e:1);")
    wrong = {
        "--outgroup a,c": "the outgroup does not stand together in the tree (name one taxon, or",
        "--outgroup a --midpoint": "--outgroup and --midpoint both place the root: choose one",
    }
    for options, message in wrong.items():
        result = run("convert", "t.nwk", *options.split(), "-o", "r.nwk")
        assert result.exit_code == 2
        assert message in result.stderr
        assert not (tmp_path / "r.nwk").exists()


def test_trees_and_results_go_to_other_programs(run: Run, tmp_path: Path, primates: str) -> None:
    (tmp_path / "t.nwk").write_text("(a:1,'b c':0.5,(c:1,d:1)99:2);\n")
    fine(run("convert", "t.nwk", "-o", "t.auspice.json"))
    assert json.loads((tmp_path / "t.auspice.json").read_text())["version"] == "v2"
    fine(run("convert", "t.nwk", "-o", "t.txt", "--format", "itol"))
    assert "c|d\t2\t10.00" in (tmp_path / "t.txt").read_text()
    (tmp_path / "primates.nwk").write_text(TREE)
    options = ("--model", "JC", "--device", "reference", "--no-opt-branches", "--prefix", "x")
    fine(run("evaluate", primates, "--tree", "primates.nwk", *options))
    result = fine(run("convert", "x.mltree.eval.json", "-o", "x_mqc.json"))
    assert "wrote x_mqc.json, for MultiQC" in result.stdout
    assert json.loads((tmp_path / "x_mqc.json").read_text())["data"]["x"]["taxa"] == 12
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "two.nwk").write_text("(a,b,(c,d));\n(a,b,(c,d));\n")
    wrong = {
        "x.mltree.eval.json -o y.json": "results are converted for MultiQC only",
        "other.json -o y_mqc.json": "no result with a tree",
        "two.nwk -o y.itol.txt": "two.nwk: itol shows one tree",
    }
    for arguments, message in wrong.items():
        refused = run("convert", *arguments.split())
        assert refused.exit_code == 2
        assert message in refused.stderr


def test_a_file_is_not_converted_into_itself(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.nwk").write_text(TREE)
    os.link("t.nwk", "t.nex")
    for out in ("t.nwk", "t.nex"):
        result = run("convert", "t.nwk", "-o", out, "--redo")
        assert result.exit_code == 2
        assert f"{out} is read, and would be overwritten" in result.stderr
    assert (tmp_path / "t.nwk").read_text() == TREE


def test_another_alignment_than_the_runs_is_told(run: Run, tmp_path: Path) -> None:
    text = (DATASETS / "primates.phy").read_text()
    (tmp_path / "a.phy").write_text(text)
    (tmp_path / "b.phy").write_text(text.replace("AAGC", "AAGT"))
    quick = ("--device", "reference", "--preset", "fast", "--model", "JC", "--prefix", "x")
    fine(run("search", "a.phy", *quick))
    told = "b.phy is not the file that the run read"
    assert told not in fine(run("report", "x")).stderr
    (tmp_path / "a.phy").rename(tmp_path / "c.phy")
    assert told not in fine(run("report", "x", "--alignment", "c.phy", "--redo")).stderr
    assert told in fine(run("report", "x", "--alignment", "b.phy", "--redo")).stderr


@pytest.mark.parametrize("length", ["-0", "-0.0", "0", "1e6"])
def test_mean_lengths_at_the_ends(run: Run, length: str) -> None:
    fine(
        run(
            "simulate",
            "-m",
            "JC",
            "--taxa",
            "5",
            "-n",
            "9",
            f"--mean-length={length}",
            "-o",
            "s.fa",
        )
    )


def test_styles_from_python_are_read_as_the_command_line_reads_them() -> None:
    style = style_of(DrawOptions(tree="t", out="t.svg", width="174mm"))  # type: ignore[arg-type]
    assert style.size == (pytest.approx(493.228, abs=1e-3), None)
    for wrong, message in (
        ({"width": "wide"}, "width: 'wide' is not a length"),
        ({"layout": "radial"}, "layout='radial' is not one of rectangular, circular, unrooted"),
        ({"order": "up"}, "order='up' is not one of"),
    ):
        with pytest.raises(InputError, match=message):
            style_of(DrawOptions(tree="t", out="t.svg", **wrong))  # type: ignore[arg-type]
