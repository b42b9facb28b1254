"""The paragraph for a methods section cites what the run used, and nothing else."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from mltree.models.empirical import PROTEIN_MODELS
from mltree.models.substitution import DNA_MODELS
from mltree.report.methods import SUPPORTS, Methods, bibliography, methods_text, without_values

DONE = Methods(
    taxa=12, sites=898, patterns=413, data="DNA", models=["GTR{1/2/3/4/5/1}+FC+G4m{0.5}"],
    starts=["parsimony 1", "parsimony 2", "random 1"], seed=3, on_pocl=True,
)  # fmt: skip


def numbers_cited(text: str) -> list[int]:
    paragraph = text.partition("\n[1]")[0]
    return [int(n) for group in re.findall(r"\[([\d, ]+)\]", paragraph) for n in group.split(", ")]


def references(text: str) -> list[str]:
    return re.findall(r"^\[\d+\] (.*)$", text, re.MULTILINE)


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    "done",
    [
        DONE,
        replace(DONE, models=["LG+IO+G8a"], data="AA", on_pocl=False),
        replace(DONE, starts=(), seed=None),
        replace(DONE, starts=(), is_estimated=False, models=["JC"]),
        replace(DONE, models=["NEW+R4"]),
        replace(DONE, supports=dict.fromkeys(SUPPORTS), chooses=True),
    ],
)
def test_every_reference_is_cited_in_order_and_none_is_missing(done: Methods) -> None:
    text = methods_text(done)
    cited = numbers_cited(text)
    assert list(dict.fromkeys(cited)) == list(range(1, len(references(text)) + 1))


def test_it_says_what_was_done() -> None:
    text = flat(methods_text(DONE))
    for words in (
        "The maximum-likelihood tree was inferred with mltree",
        "a nucleotide alignment of 12 taxa and 898 sites (413 distinct patterns).",
        "The substitution model was GTR [3] with empirical base frequencies and Γ-distributed",
        "Γ-distributed rates [4] (four categories).",
        "from 2 parsimony trees [5] and 1 random tree (random seed 3)",
        "on CPUs through PoCL [7].",
    ):
        assert words in text
    given = flat(methods_text(replace(DONE, starts=(), on_pocl=False)))
    assert "The likelihood of a given topology was maximised" in given
    assert "search" not in given
    assert "PoCL" not in given
    text = flat(methods_text(replace(DONE, nni_only=True)))
    assert "rearranged trees by nearest-neighbour interchange; model parameters" in text
    assert "Stamatakis" not in text
    median = flat(methods_text(replace(DONE, models=["LG+I{0.1}+G8a"], data="AA")))
    assert "a protein alignment" in median
    assert "LG [3] with a proportion of invariable sites [4] and Γ-distributed rates" in median
    assert "(eight categories, medians)" in median
    assert "invariable sites" in median


def test_it_cites_what_was_chosen_and_supports() -> None:
    supports = {"SH-aLRT": 1000, "aBayes": None, "UFBoot2": 1}
    done = replace(DONE, chooses=True, supports=supports)
    text = flat(methods_text(done))
    assert "It was chosen among candidates by BIC [5]." in text
    for words in (
        "Branch supports are SH-aLRT [8] (1,000 replicates), aBayes [9]",
        "and the ultrafast bootstrap UFBoot2 [10] (1 replicate).",
    ):
        assert words in text
    for author in ("Kalyaanamoorthy", "Guindon", "Anisimova M, Gil", "Hoang"):
        assert author in text
    assert "Lemoine" not in text
    assert "They were chosen" in methods_text(replace(done, models=["JC", "HKY+G4"]))


@pytest.mark.parametrize("name", [*DNA_MODELS, *PROTEIN_MODELS])
def test_models_are_named(name: str) -> None:
    assert f"The substitution model was {name}" in flat(methods_text(replace(DONE, models=[name])))


def test_models_that_have_a_paper_cite_it() -> None:
    for name in ("JC", "K80", "F81", "HKY", "TN93", "TN93ef", "K81uf", "SYM", "GTR", "LG", "JTT"):
        text = flat(methods_text(replace(DONE, models=[name])))
        assert re.search(rf"model was {name} \[\d\]", text), name


def test_references_have_year_and_pages() -> None:
    for key, reference in bibliography().items():
        if key != "mltree":
            assert re.search(r"\((19|20)\d\d\)", reference), key
            assert re.search(r"\d+-\d+", reference), key


def test_values_go() -> None:
    assert without_values("GTR{1/2}+FU{0.1/0.9}+G4m{0.5}") == "GTR+FU+G4m"
    mixture = "MIX{GTR{1/2}+FU{0.1/0.9}:1.0:0.25,JC:1.0:0.75}+G4m{0.5}"
    assert without_values(mixture) == "MIX{GTR+FU,JC}+G4m"


def test_supports_are_named_whole_with_the_verdict_of_automre() -> None:
    supports = {"SH-aLRT": 1000, "aBayes": None, "FBP": 100}
    for verdict, words in ((True, "converged"), (False, "not converged")):
        text = methods_text(replace(DONE, supports=supports, has_converged=verdict))
        assert re.search(rf"\(100 replicates, {words} by autoMRE \[\d+\]\)", flat(text))
        assert "Pattengale ND" in text
        assert all("SH-aLRT" in line for line in text.splitlines() if "SH-" in line)
    assert "autoMRE" not in methods_text(replace(DONE, supports=supports))


def test_no_word_is_broken_at_any_place_in_a_line() -> None:
    for taxa in range(1, 100):
        text = methods_text(replace(DONE, taxa=10**taxa, supports={"SH-aLRT": 1000}))
        assert "SH-aLRT" in text


@pytest.mark.parametrize(
    ("sampling", "named", "words"),
    [
        ("sites", "the bootstrap", ""),
        ("jackknife", "the jackknife", "Each replicate left out 50% of the sites of every part"),
        ("jackknife{0.4}", "the jackknife", "Each replicate left out 40% of the sites"),
        ("genes", "the bootstrap", "Each replicate drew the parts of the alignment with replacem"),
        ("GENESITE", "the bootstrap", "with replacement, and within each of them its sites ["),
    ],
)
def test_it_says_how_replicates_were_drawn(sampling: str, named: str, words: str) -> None:
    text = flat(methods_text(replace(DONE, supports={"FBP": 100}, sampling=sampling)))
    assert f"Branch supports are {named} [" in text
    assert words in text
    assert ("Each replicate" in text) == (sampling != "sites")
    tested = replace(DONE, supports={"SH-aLRT": 1000}, sampling=sampling)
    assert "Each replicate" not in methods_text(tested), "of a bootstrap's"
