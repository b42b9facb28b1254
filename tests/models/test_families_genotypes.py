"""Models of genotypes: their rates, names and what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mltree.data.alphabet import DNA, PHASED, UNPHASED, Alphabet
from mltree.models.eigen import rate_matrix
from mltree.models.families import GENOTYPES
from mltree.models.grammar import format_model, parse_model
from mltree.models.names import default_model_name
from mltree.models.parameters import free_parameters, names
from mltree.models.partitioned import model_alphabet
from mltree.runs import model_choice
from mltree.system.errors import ModelError

RATES = [1.5, 4.0, 0.7, 1.2, 3.0, 1.0]
"""AC AG AT CG CT GT."""


def nucleotide_q() -> np.ndarray:
    q = np.zeros((4, 4))
    for (i, j), rate in zip(itertools.combinations(range(4), 2), RATES, strict=True):
        q[i, j] = q[j, i] = rate
    return q - np.diag(q.sum(axis=1))


def test_phased_genotypes_are_two_chromosomes_each_by_itself() -> None:
    """GT16 with equal frequencies is the Kronecker sum of two chains of nucleotides."""
    q = nucleotide_q()
    both = np.kron(q, np.eye(4)) + np.kron(np.eye(4), q)
    order = ["ACGT".index(a) * 4 + "ACGT".index(b) for a, b in PHASED.states]
    both = both[np.ix_(order, order)]
    model = parse_model(f"GT16{{{'/'.join(map(str, RATES))}}}+FE", PHASED)
    found = rate_matrix(model.rates, model.frequencies)
    np.testing.assert_allclose(found, both * 16 / -np.trace(both), atol=1e-14)


def test_kinds_are_special_cases() -> None:
    for alphabet in (UNPHASED, PHASED):
        six = parse_model(f"{alphabet.name}{{1/2.5/1/1/2.5/1}}", alphabet)
        two = parse_model(f"{alphabet.name}HKY{{1/2.5}}", alphabet)
        np.testing.assert_allclose(two.rates / two.rates.max(), six.rates / six.rates.max())
        single = parse_model(f"{alphabet.name}JC-SM", alphabet).rates
        assert set(single) == {0.0, 1.0}
        np.testing.assert_array_equal(single > 0, six.rates > 0)
        each = parse_model(f"{alphabet.name}GTR-SM", alphabet)
        np.testing.assert_array_equal(each.rates, single)
        assert free_parameters(each) == single.sum() - 1 + alphabet.n_states - 1
        assert (parse_model(f"{alphabet.name}JC", alphabet).rates == 1.0).all()
        assert len(set(parse_model(f"{alphabet.name}GTR", alphabet).rate_classes)) == single.size


@pytest.mark.parametrize("alphabet", [UNPHASED, PHASED])
def test_every_name_is_read_and_written(alphabet: Alphabet) -> None:
    for name in [*GENOTYPES.names_of(alphabet), default_model_name(alphabet)]:
        model = parse_model(name.lower(), alphabet)
        assert model_alphabet(name) is alphabet
        again = parse_model(format_model(model), alphabet)
        assert again.name == model.name
        np.testing.assert_array_equal(again.rates, model.rates)
    letter = "T" if alphabet is UNPHASED else "P"
    older = [f"G{letter}{kind}" for kind in ("JC", "JC-SM", "HKY4", "GTR4", "GTR-SM", "GTR")]
    assert [parse_model(name, alphabet).name for name in older] == GENOTYPES.names_of(alphabet)


def test_names_of_parameters() -> None:
    assert names(parse_model("GT10HKY", UNPHASED))[1] == "pi AA"
    assert names(parse_model("GT10", UNPHASED))[0] == "rate AA-AC=CC-AC=AG-CG=AT-CT"


def test_candidates_can_be_read() -> None:
    for alphabet in (UNPHASED, PHASED):
        found = model_choice.matrices(alphabet)
        assert len({parse_model(text, alphabet).name for text in found}) == 4


def test_models_of_other_data() -> None:
    with pytest.raises(ModelError, match="GT16 is for GT16, but .* is GT10"):
        parse_model("GT16", UNPHASED)
    with pytest.raises(ModelError, match=r"is for nucleotides, but .* is GT10") as caught:
        parse_model("GTR", UNPHASED)
    assert caught.value.hint == "try GT10+FO"
    with pytest.raises(ModelError, match=r"GTJC is for GT10, but .* is DNA"):
        parse_model("GTJC", DNA)
    with pytest.raises(ModelError, match=r"\+E is not supported yet"):
        parse_model("GT16+FO+E", PHASED)
    with pytest.raises(ModelError, match="GT10 has 6 exchangeabilities, not 3") as caught:
        parse_model("GT10{1/2/3}", UNPHASED)
    assert "AA CC GG" in (caught.value.hint or "")
    with pytest.raises(ModelError, match="expected 16 frequencies"):
        parse_model("GT16+FU{0.5/0.5}", PHASED)
    with pytest.raises(ModelError, match="expected 10 numbers"):
        parse_model("GT16+ASC_STAM{1/2}", PHASED)
