"""Sites with frequencies of their own (PMSF) on the command line: from files and guide trees."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from mltree.models.substitution import profile_mixture

Run = Callable[..., Result]

ACIDS = np.array(list("ARNDCQEGHILKMFPSTWYV"))
SITES, TAXA = 12, 5
TREE = "((t0:0.1,t1:0.2):0.05,(t2:0.1,t3:0.3):0.1,t4:0.2);\n"
QUICK = ("--device", "reference")
FIXED = ("--no-opt-model", "--no-opt-branches", *QUICK)


@pytest.fixture
def profiles(run: Run) -> np.ndarray:
    """f64 [sites, 20]: what the sites of an alignment in the folder of the runs prefer."""
    rng = np.random.default_rng(11)
    mixture = profile_mixture("C10")
    own = mixture.frequencies[rng.choice(10, SITES)]
    roots = np.array([rng.choice(20, p=row) for row in own])
    rows = []
    for n in range(TAXA):
        drawn = np.array([rng.choice(20, p=row) for row in own])
        changed = rng.random(SITES) < rng.uniform(0.2, 0.6)
        rows.append(f">t{n}\n{''.join(ACIDS[np.where(changed, drawn, roots)])}\n")
    Path("aln.fa").write_text("".join(rows))
    Path("tree").write_text(TREE)
    write("own.sitefreq", own)
    return own


def write(name: str, frequencies: np.ndarray) -> None:
    rows = (
        f"{n} {' '.join(f'{v:.9g}' for v in row)}\n"
        for n, row in enumerate(frequencies.tolist(), 1)
    )
    Path(name).write_text("".join(rows))


def lnl_in(prefix: str, kind: str = "eval.json") -> float:
    return float(json.loads(Path(f"{prefix}.mltree.{kind}").read_text())["lnl"])


def done(result: Result) -> Result:
    assert result.exit_code == 0, result.output
    return result


def test_the_same_for_all_sites_is_a_model_s(run: Run, profiles: np.ndarray) -> None:
    """The order of lines and terms of the model that do not count change nothing."""
    one = np.tile(profiles[0], (SITES, 1))
    write("one.sitefreq", one)
    lines = Path("one.sitefreq").read_text().splitlines()
    Path("turned.sitefreq").write_text("\n".join(lines[::-1]))
    given = "/".join(f"{v:.9g}" for v in profiles[0])
    common = ("evaluate", "aln.fa", "-t", "tree", *FIXED)
    done(run(*common, "-m", f"LG+FU{{{given}}}+G4", "--prefix", "m"))
    done(run(*common, "-m", "LG+G4", "--site-freqs", "one.sitefreq", "--prefix", "s"))
    turned = ("--site-freqs", "turned.sitefreq", "--prefix", "c")
    done(run(*common, "-m", "LG+C20+F+G4", *turned))
    assert lnl_in("s") == pytest.approx(lnl_in("m"), abs=1e-6)
    assert lnl_in("c") == pytest.approx(lnl_in("m"), abs=1e-6)


def test_a_guide_tree_stands_for_the_file_of_its_mixture(run: Run, profiles: np.ndarray) -> None:
    """What it writes is what an evaluation of the mixture writes, and gives the same lnL."""
    common = ("evaluate", "aln.fa", "-t", "tree", *QUICK, "-m", "LG+C10+G4{0.5}")
    said = done(run(*common, "--guide-tree", "tree", "--prefix", "g"))
    assert "on the guide tree: lnL " in said.output
    done(run(*common, "--site-freq", "--prefix", "m"))
    guided = np.loadtxt("g.mltree.sitefreq")
    np.testing.assert_allclose(guided, np.loadtxt("m.mltree.sitefreq"), atol=1e-8)
    done(run(*common, "--site-freqs", "g.mltree.sitefreq", "--prefix", "f"))
    assert lnl_in("f") == pytest.approx(lnl_in("g"), abs=1e-6)
    assert Path("g.mltree.evalModel").read_text().startswith("LG+G4m{")


def test_estimated_exchangeabilities_are_held(run: Run, profiles: np.ndarray) -> None:
    """Those of the guide tree's mixture, linked over its classes, as of GTR20."""
    Path("dna.fa").write_text(">t0\nACGTAC\n>t1\nACGTTC\n>t2\nACTTAC\n>t3\nGCTTAC\n")
    Path("dna.tree").write_text("((t0:0.1,t1:0.1):0.1,t2:0.1,t3:0.1);\n")
    model = "HKY+FMIX{FU{0.4/0.1/0.1/0.4},FU{0.1/0.4/0.4/0.1}}"
    said = run(
        "evaluate", "dna.fa", "-t", "dna.tree", "-m", model, "--guide-tree", "dna.tree", *QUICK,
        "--prefix", "g",
    )  # fmt: skip
    done(said)
    text = Path("g.mltree.evalModel").read_text()
    assert text.startswith("HKY{")
    assert "FMIX" not in text


def test_a_search_with_supports(run: Run, profiles: np.ndarray) -> None:
    """Searched, supported, replicated under them; the tree's lnL is what an evaluation says."""
    found = run(
        "search", "aln.fa", "-m", "LG+C10+F+G4{0.5}", "--site-freqs", "own.sitefreq",
        "--preset", "fast", "--sh-alrt", "100", "--bootstrap", "2", "--prefix", "s",
    )  # fmt: skip
    done(found)
    again = run(
        "evaluate", "aln.fa", "-m", "s.mltree.bestModel", "-t", "s.mltree.bestTree", *FIXED,
        "--site-freqs", "own.sitefreq", "--prefix", "e",
    )  # fmt: skip
    done(again)
    assert lnl_in("e") == pytest.approx(lnl_in("s", "json"), abs=1e-3)
    assert Path("s.mltree.bootstraps").read_text().count("\n") == 2


def test_a_checkpoint_is_of_its_frequencies(run: Run, profiles: np.ndarray) -> None:
    """Replicates are added under the frequencies that they began with, and no others."""
    common = ("bootstrap", "aln.fa", "-m", "LG+G4{1}", "--prefix", "b", "-t", "tree")
    done(run(*common, "-N", "2", "--site-freqs", "own.sitefreq"))
    write("other.sitefreq", profiles[::-1])
    other = run(*common, "-N", "3", "--site-freqs", "other.sitefreq")
    assert other.exit_code == 2
    done(run(*common, "-N", "3", "--site-freqs", "own.sitefreq"))
    assert Path("b.mltree.bootstraps").read_text().count("\n") == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-m", "LG+G4", "--guide-tree", "tree"), "LG has no classes, which --guide-tree takes"),
        (
            ("-m", "LG+C10", "--guide-tree", "tree", "--site-freqs", "own.sitefreq"),
            "frequencies of sites are from --site-freqs or from --guide-tree, not from both",
        ),
        (
            ("-m", "LG4X", "--guide-tree", "tree"),
            "frequencies of sites need one set of exchangeabilities, and LG4X has others",
        ),
        (
            ("-m", "PROTGTR+G4", "--site-freqs", "own.sitefreq"),
            "model PROTGTR estimates exchangeabilities, which --site-freqs cannot",
        ),
        (
            ("-m", "LG+PSR", "--site-freqs", "own.sitefreq"),
            "frequencies of sites do not go with +PSR or +ASC",
        ),
        (
            ("-m", "parts", "--site-freqs", "own.sitefreq"),
            "frequencies of sites are for one alignment, not for parts",
        ),
        (("-m", "LG", "--site-freqs", "none"), "none: no such file"),
    ],
)
def test_what_does_not_go_together(
    run: Run, profiles: np.ndarray, arguments: tuple[str, ...], message: str
) -> None:
    Path("parts").write_text("LG, one = 1-6\nWAG, two = 7-12\n")
    refused(run("evaluate", "aln.fa", "-t", "tree", *QUICK, *arguments), message)


def refused(result: Result, message: str) -> None:
    assert result.exit_code == 2, result.output
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("mltree: "))
    assert message in line


def test_searches_that_do_not_take_them(run: Run, profiles: np.ndarray) -> None:
    own = ("--site-freqs", "own.sitefreq", *QUICK)
    message = "frequencies of sites go with a model that is named, not with --model auto"
    refused(run("search", "aln.fa", "-m", "auto", *own), message)
    Path("more.fa").write_text(Path("aln.fa").read_text())
    many = run("search", "aln.fa", "more.fa", "-m", "LG", *own, "--prefix", "x")
    refused(many, "--site-freqs is for the search of one alignment")
