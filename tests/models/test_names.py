"""What is said about names that no model has."""

from __future__ import annotations

import pytest

from mltree.data.alphabet import BINARY, DNA, PROTEIN
from mltree.models.grammar import parse_model
from mltree.models.names import (
    PROTEIN_GTR,
    from_elsewhere,
    from_iq_tree,
    heeds_frequencies,
    in_iq_tree,
    known_models,
)
from mltree.models.substitution import DNA_MODELS, PAIRED
from mltree.system.errors import ModelError

ELSEWHERE = {
    "JC69": "JC", "K2P": "K80", "HKY85": "HKY", "TN": "TN93", "TNe": "TN93ef", "TrN": "TN93",
    "TrNef": "TN93ef", "K3P": "K81", "K3Pu": "K81uf", "TPM1": "K81", "TPM1uf": "K81uf",
    "TPM2u": "TPM2uf", "TPM3u": "TPM3uf", "TPM2ef": "TPM2", "TPM3ef": "TPM3", "TIM": "TIM1uf",
    "TIMe": "TIM1", "TIM2e": "TIM2", "TIM3e": "TIM3", "TIM1ef": "TIM1", "TIM2ef": "TIM2",
    "TIM3ef": "TIM3", "TVMe": "TVMef", "TIMef": "TIM1", "REV": "GTR",
}  # fmt: skip
"""Names in IQ-TREE's and RAxML-NG's lists that are not here, and the same models here."""

PROTEINS = {
    "PROTREV": "PROTGTR", "JTTDCMut": "JTT-DCMUT", "mtREV24": "MTREV", "cpREV10": "CPREV",
    "Dayhoff-dcmut": "DCMUT",
}  # fmt: skip


@pytest.mark.parametrize("name", ELSEWHERE)
def test_other_programs_names_lead_to_the_same_model(name: str) -> None:
    assert ELSEWHERE[name] in DNA_MODELS
    with pytest.raises(ModelError, match=rf"nearest known is {ELSEWHERE[name]}$"):
        parse_model(f"{name}+F+G4", DNA)


def test_a_code_of_classes_leads_to_a_model_of_ones_own() -> None:
    with pytest.raises(ModelError, match=r"nearest known is DNA010020$"):
        parse_model("010020+F+G4", DNA)
    assert parse_model("DNA010020", DNA).rate_classes == (0, 1, 0, 0, 2, 0)
    with pytest.raises(ModelError, match=r"nearest known is [^D]"):
        parse_model("010020", PROTEIN)


@pytest.mark.parametrize("name", PROTEINS)
def test_other_programs_names_of_protein_models(name: str) -> None:
    with pytest.raises(ModelError, match=rf"nearest known is {PROTEINS[name]}$"):
        parse_model(name, PROTEIN)


@pytest.mark.parametrize("name", ["MFP", "TEST", "auto", "MF", "TESTNEW", "mfp+merge"])
def test_asking_for_a_choice_is_told_how(name: str) -> None:
    for alphabet in (DNA, PROTEIN):
        with pytest.raises(ModelError, match="is not a model") as error:
            parse_model(name, alphabet)
        assert "--model auto" in str(error.value.hint)


@pytest.mark.parametrize("name", ["EX2+G4", "UL3", "EHO"])
def test_mixtures_are_told_apart_from_slips(name: str) -> None:
    with pytest.raises(ModelError, match="mixture of models, which is not supported yet"):
        parse_model(name, PROTEIN)


def test_every_known_name_can_be_read() -> None:
    for alphabet in (DNA, PROTEIN):
        for name in known_models(alphabet):
            assert parse_model(name, alphabet).name == name


@pytest.mark.parametrize("alphabet", [DNA, PROTEIN, BINARY])
@pytest.mark.parametrize("terms", ["", "+FC+I+G4", "+FE+R3", "+FO"])
def test_what_is_written_for_iq_tree_is_the_same_model_again(alphabet, terms: str) -> None:
    """Though K80+FC and HKY+F are two names: one has its frequencies by name, both by term."""
    for name in [name for name in known_models(alphabet) if name not in PAIRED]:
        if name == PROTEIN_GTR and not terms:
            continue  # GTR20 counts its frequencies
        written = in_iq_tree(name + terms)
        assert "+FC" not in written
        assert "+FE" not in written
        assert heeds_frequencies(written)
        one, other = (parse_model(x, alphabet) for x in (from_iq_tree(written), name + terms))
        assert one.rate_classes == other.rate_classes
        assert one.rates.tolist() == other.rates.tolist()
        assert (one.frequency_mode in ("model", "FE")) == (other.frequency_mode in ("model", "FE"))
        assert one.frequencies.tolist() == pytest.approx(other.frequencies.tolist(), nan_ok=True)
        assert (one.heterogeneity.kind, one.p_invariant) == (
            other.heterogeneity.kind, other.p_invariant,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("TIM2e+FQ+I", "TIM2+I"),
        ("K2P", "K80"),
        ("K2P+F+G4", "K80+G4"),
        ("JC+F{0.1,0.2,0.3,0.4}", "JC"),
        ("HKY", "HKY+FC"),
        ("HKY85+G4", "HKY+FC+G4"),
        ("HKY+F{0.1,0.2,0.3,0.4}", "HKY+F{0.1,0.2,0.3,0.4}"),
        ("HKY+FU", "HKY+FE"),
        ("TIM2", "TIM2uf+FC"),
        ("TIM+I", "TIM1uf+FC+I"),
        ("TPM3+FO", "TPM3uf+FO"),
        ("TIM2uf+G4", "TIM2uf+G4"),
        ("GTR{1,2,3,4,5}+R2{0.3,0.5,0.7,1.2}", "GTR{1,2,3,4,5}+FC+R2{0.5/1.2}{0.3/0.7}"),
        ("JC+R{0.25,0.1,0.25,0.5,0.25,1,0.25,2.4}", "JC+R{0.1/0.5/1/2.4}{0.25/0.25/0.25/0.25}"),
        ("JC+R2{0.5/1.5}{0.5/0.5}", "JC+R2{0.5/1.5}{0.5/0.5}"),
        ("JC2+F", "BIN+FE"),
        ("GTR2+G4", "BIN+G4"),
        ("GTRX", "GTR+FE"),
        ("GTRX+FO", "GTR+FO"),
        ("MK+F", "MK+F"),
        ("GTR20", "GTR20+FC"),
        ("GTR20+FO", "GTR20+FO"),
        ("GTR20+C20", "GTR20+C20"),
        ("LG+FU+G4", "LG+G4"),
        ("LG", "LG"),
        ("MGK+F1X4", "MGK+F1X4"),
        ("MIX{HKY:1:0.4,JC+FQ:2:0.6}", "MIX{HKY+FC:1:0.4,JC:2:0.6}"),
        ("GTR+FMIX{empirical,optimize}", "GTR+FMIX{empirical,optimize}"),
        ("GTR{1,2", "GTR{1,2"),
        ("TN{2/3}+F+G4{0.5}", "TN93{2/3}+F+G4{0.5}"),
        ("gtr+fq", "GTR+FE"),
        ("JTTDCMut+FO", "JTT-DCMUT+FO"),
        ("MIX{GTR+FQ,HKY+FO}+G4", "MIX{GTR+FE,HKY+FO}+G4"),
        ("010020+FQ+G4", "DNA010020+FE+G4"),
        ("nonsense+G", "nonsense+G"),
    ],
)
def test_iq_tree_s_words(theirs: str, ours: str) -> None:
    assert from_iq_tree(theirs) == ours


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("GTRGAMMA", "GTR+FC+G4"),
        ("GTRGAMMAIX", "GTR+FO+I+G4"),
        ("BINGAMMA", "BIN+FC+G4"),
        ("PROTGAMMAWAG", "WAG+G4"),
        ("PROTGAMMAILGF", "LG+FC+I+G4"),
        ("PROTGAMMADAYHOFF", "DAYHOFF+G4"),
        ("PROTGAMMAJTTDCMUTX", "JTT-DCMUT+FO+G4"),
        ("PROTGAMMAGTR", "PROTGTR+FC+G4"),
        ("PROTGAMMAGTRX", "PROTGTR+FO+G4"),
        ("PROTGAMMAAUTO", "auto"),
    ],
)
def test_raxml_s_names_of_models(theirs: str, ours: str) -> None:
    alphabet = PROTEIN if theirs.startswith("PROT") else BINARY if ours[0] == "B" else DNA
    with pytest.raises(ModelError, match=f"unknown model '{theirs}'") as error:
        parse_model(theirs, alphabet)
    assert f"--model {ours} here" in str(error.value.hint)
    if ours != "auto":
        assert parse_model(ours, alphabet).heterogeneity.n_categories == 4


@pytest.mark.parametrize("name", ["GTRGAMMAZ", "PROTGAMMAXYZ", "DNAGAMMA"])
def test_names_that_only_look_like_raxml_s(name: str) -> None:
    with pytest.raises(ModelError, match="the nearest known is"):
        parse_model(name, DNA)


@pytest.mark.parametrize(
    ("program", "theirs", "options", "ours"),
    [
        ("IQ-TREE", "GTR+G4", {"-st": "MORPH"}, "GTR+FE+G4"),
        ("IQ-TREE", "HKY+G", {"-gmedian": ""}, "HKY+FC+G4a"),
        ("IQ-TREE", "HKY+G8{0.5}", {"-gmedian": ""}, "HKY+FC+G8a{0.5}"),
        ("RAxML", "GTRCAT", {}, "GTR+FC+PSR"),
        ("RAxML", "GTRCAT", {"-V": ""}, "GTR+FC"),
        ("RAxML", "GTRCATI", {}, None),
        ("RAxML", "GTRGAMMA", {"--HKY85": ""}, "HKY+FC+G4"),
        ("RAxML", "GTRGAMMAX", {"--K80": ""}, "K80+G4"),
        ("RAxML", "MULTIGAMMA", {}, "GTR+FC+G4"),
        ("RAxML", "MULTIGAMMAI", {"-K": "ORDERED"}, "ORDERED+I+G4"),
        ("RAxML", "MULTIGAMMAX", {"-K": "MK"}, "MK+FO+G4"),
        ("RAxML", "MULTIGAMMA", {"-K": "XY"}, None),
        ("RAxML", "ASC_GTRGAMMA", {"--asc-corr": "lewis"}, "GTR+FC+G4+ASC_LEWIS"),
        ("RAxML", "ASC_GTRGAMMA", {"--asc-corr": "stamatakis"}, None),
        ("RAxML", "PROTGAMMALG4X", {}, "LG4X"),
        ("RAxML", "PROTCATLGF", {"-c": "8"}, "LG+FC+PSR8"),
        ("PhyML", "", {}, "HKY+FC+G4"),
        ("PhyML", "", {"-d": "aa"}, "LG+FC+G4"),
        ("PhyML", "JTT", {"-d": "aa", "-f": "m"}, "JTT+G4"),
        ("PhyML", "LG", {"-d": "aa", "-f": "o", "-c": "1"}, "LG+FO"),
        ("PhyML", "F84", {"-f": "m", "-v": "0.0"}, "HKY+FO+G4"),
        ("PhyML", "F84", {"-t": "4"}, None),
        ("PhyML", "K80", {"-f": "m", "-t": "4"}, "K80{4}+G4"),
        ("PhyML", "GTR", {"--freerates": "", "-c": "3"}, "GTR+FC+R3"),
        ("PhyML", "TN93", {"-v": "e", "-a": "0.5"}, "TN93+FC+I+G4{0.5}"),
        ("PhyML", "custom", {}, None),
    ],
)
def test_models_of_other_programs(program, theirs: str, options, ours: str | None) -> None:
    assert from_elsewhere(program, theirs, options) == ours


@pytest.mark.parametrize("term", ["R3{0.3,0.5,0.7,1.2}", "R1{0.3,0.5,0.7,1.2}", "R{0.3,0.5}"])
def test_free_rates_of_another_number_are_left_as_they_are(term: str) -> None:
    assert from_iq_tree(f"JC+{term}") == f"JC+{term}"
