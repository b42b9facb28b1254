"""Models of parts: their own, the default, or ours; counted where the part is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mltree.data.alphabet import DNA, PROTEIN
from mltree.data.partitions import Partitioned, read_partitioned
from mltree.data.parts import best_model_text, read_partitions
from mltree.models.grammar import format_model
from mltree.models.partitioned import in_our_words, model_alphabet, model_names, part_models
from mltree.system.errors import InputError

ROWS = {"a": "AACGTTMKVLE", "b": "AACGTTMKVLE", "c": "AACGTAMRILE", "d": "AAC-TAMKVFE"}


@pytest.fixture
def parts(tmp_path: Path):
    def read(text: str) -> Partitioned:
        (tmp_path / "a.fa").write_text("".join(f">{name}\n{row}\n" for name, row in ROWS.items()))
        (tmp_path / "p").write_text(text)
        return read_partitioned(
            str(tmp_path / "a.fa"), read_partitions(tmp_path / "p"), model_alphabet
        )

    return read


def test_what_models_are_for() -> None:
    assert model_alphabet("HKY{2}+FE") is DNA
    assert model_alphabet("LG+G4") is PROTEIN
    assert model_alphabet("LGG") is None


def test_models_of_parts_that_name_none(parts) -> None:
    data = parts("DNA, x = 1-3\nHKY+FE, y = 4-6\nAA, z = 7-11")
    assert model_names(data) == ("GTR+FC+G4", "HKY+FE", "LG+G4")
    assert model_names(data, "JC") == ("JC", "HKY+FE", "LG+G4")
    assert model_names(data, "WAG+I") == ("GTR+FC+G4", "HKY+FE", "WAG+I")


def test_frequencies_are_counted_in_the_part(parts) -> None:
    data = parts("HKY+FC, x = 1-3\nHKY+FC, y = 4-6\nLG, z = 7-11")
    first, second, third = part_models(data)
    np.testing.assert_allclose(first.frequencies, [2 / 3, 1 / 3, 0, 0])
    np.testing.assert_allclose(second.frequencies, [2 / 11, 0, 3 / 11, 6 / 11])
    assert third.name == "LG"


def test_a_best_model_file_comes_back(parts, tmp_path: Path) -> None:
    """Written with values, read again, written again: the same."""
    data = parts(
        "HKY{2.5}+FE+G4{0.5}+BU{0.25}, x = 1-6\\2\nGTR+FE+I{0.2}, y = 2-6\\2\nLG+BU{2}, z = 7-11"
    )
    text = best_model_text(data.parts, [format_model(model) for model in part_models(data)])
    again = parts(text)
    assert [part.scaler for part in again.parts] == [0.25, None, 2.0]
    assert best_model_text(again.parts, [format_model(m) for m in part_models(again)]) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("JC, x = 1-6\nLGG, y = 7-11", r"line 2: part y: unknown model 'LGG'.*LG"),
        ("JCC, x = 1-6\nLG, y = 7-11", r"line 1: part x: unknown model 'JCC'.*JC"),
        ("JC+G0, x = 1-6\nLG, y = 7-11", r"line 1: part x: "),
    ],
)
def test_models_that_cannot_be_used(parts, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        part_models(parts(text))


def test_ascertained_parts_of_raxml(parts) -> None:
    """ASC_ before a word: Lewis's correction, behind the model that the part has without it."""
    data = parts("ASC_DNA, x = 1-4\nASC_HKY+FE, y = 5,6\nASC_WAGF, z = 7-11")
    assert model_names(data) == ("GTR+FC+G4+ASC_LEWIS", "HKY+FE+ASC_LEWIS", "WAG+FC+ASC_LEWIS")
    assert model_names(data, "JC")[0] == "JC+ASC_LEWIS"


NAMES = """#nexus
begin sets;
  charset x = 1-3; charset y = 4-6;
  charpartition mine = {}: x, {}: y;
end;
"""


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ("x", "y", [("x", None), ("y", None)]),
        ("1", "2", [("1", None), ("2", None)]),
        ("HKY", "second", [("x", "HKY+FC"), ("y", "second")]),
        ("HKY+FO+G4", "GTR", [("x", "HKY+FO+G4"), ("y", "GTR+FC")]),
        ("GRT+G", "HYK+G", [("x", "GRT+G"), ("y", "HYK+G")]),
    ],
)
def test_labels_are_names_where_none_may_be_a_model(tmp_path: Path, one, other, told) -> None:
    (tmp_path / "p.nex").write_text(NAMES.format(one, other))
    scheme = in_our_words(read_partitions(tmp_path / "p.nex"))
    assert [(part.name, part.model) for part in scheme.parts] == told
    assert [part.n_sites for part in scheme.parts] == [3, 3]


@pytest.mark.parametrize("model", ["K80+F", "JC+FO", "SYM+F{0.1,0.2,0.3,0.4}", "JC2+FO"])
def test_frequencies_that_iq_tree_would_not_heed_are_refused(tmp_path: Path, model: str) -> None:
    (tmp_path / "p.nex").write_text(NAMES.format("HKY", model))
    with pytest.raises(InputError, match="part y: the model .* has equal frequencies in IQ-TREE"):
        in_our_words(read_partitions(tmp_path / "p.nex"))
