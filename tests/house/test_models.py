"""docs/models.md: every model has its row, and the row is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mltree.data.alphabet import BINARY, DNA, PROTEIN, UNPHASED, multistate
from mltree.data.codons import codon_alphabet
from mltree.models.grammar import parse_model
from mltree.models.names import known_models
from mltree.models.parameters import free_parameters
from mltree.models.substitution import DNA_MODELS, PAIRED

PAGE, _, _ = (
    (Path(__file__).parents[2] / "docs" / "models.md").read_text().partition("\n## Partitions")
)

ROWS = {
    name: [cell.strip() for cell in row.split("|")[:-1]]
    for name, row in re.findall(r"^\| `([^`+]+)` \|(.*)$", PAGE, re.MULTILINE)
}


def test_every_model_has_a_row_and_every_row_a_model() -> None:
    characters = [name.replace("MULTI6", "MULTIx") for name in known_models(multistate(6))]
    of_characters = [*known_models(BINARY), *characters, *known_models(UNPHASED)]
    kinds = (DNA, PROTEIN, codon_alphabet())
    of_sequences = [name for alphabet in kinds for name in known_models(alphabet)]
    assert list(ROWS)[: -len(of_characters)] == of_sequences
    assert sorted(list(ROWS)[-len(of_characters) :]) == sorted(of_characters)


@pytest.mark.parametrize("name", ROWS)
def test_every_row_cites_something(name: str) -> None:
    assert name == "PROTGTR" or re.search(r"\b(19|20)\d\d\b", ROWS[name][-1])


@pytest.mark.parametrize("name", DNA_MODELS)
def test_rows_of_nucleotide_models_are_true(name: str) -> None:
    classes, frequencies, free, _ = ROWS[name]
    model = parse_model(name, DNA)
    assert classes == DNA_MODELS[name].code
    assert frequencies == ("estimated" if model.frequency_mode == "FO" else "equal")
    assert int(free) == free_parameters(model)


@pytest.mark.parametrize("name", [name for name in known_models(PROTEIN) if name not in PAIRED])
def test_protein_matrices_have_no_free_parameter(name: str) -> None:
    assert free_parameters(parse_model(f"{name}+FE", PROTEIN)) == 189 * (name == "PROTGTR")
