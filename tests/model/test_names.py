"""What is said about names that no model has."""

from __future__ import annotations

import pytest

from mltree.alignment.alphabet import DNA, PROTEIN
from mltree.alignment.morphology import BINARY
from mltree.errors import ModelError
from mltree.model.grammar import parse_model
from mltree.model.mixtures import PAIRED
from mltree.model.names import from_iq_tree, in_iq_tree, known_models
from mltree.model.substitution import DNA_MODELS

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
        with pytest.raises(ModelError, match="is no model") as error:
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


@pytest.mark.parametrize("alphabet", [DNA, PROTEIN])
@pytest.mark.parametrize("terms", ["+FC+I+G4", "+FE+R3"])
def test_what_is_written_for_iq_tree_is_the_same_model_again(alphabet, terms: str) -> None:
    """Though TIM2+F and TIM2uf+FC are two names: one has its frequencies by name, both by term."""
    for name in [name for name in known_models(alphabet) if name not in PAIRED]:
        written = in_iq_tree(name + terms)
        assert "+FC" not in written
        assert "+FE" not in written
        one, other = (parse_model(x, alphabet) for x in (from_iq_tree(written), name + terms))
        assert one.rate_classes == other.rate_classes
        assert one.rates.tolist() == other.rates.tolist()
        assert (one.frequency_mode, one.heterogeneity.kind, one.p_invariant) == (
            other.frequency_mode, other.heterogeneity.kind, other.p_invariant,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("TIM2e+FQ+I", "TIM2+FE+I"),
        ("K2P", "K80"),
        ("TN{2/3}+F+G4{0.5}", "TN93{2/3}+F+G4{0.5}"),
        ("gtr+fq", "gtr+FE"),
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
        ("PROTGAMMAGTR", "PROTGTR+G4"),
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
