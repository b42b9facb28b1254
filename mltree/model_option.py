"""What ``--model`` says: a model's string, a file that holds one, parts, or that one is chosen."""

from __future__ import annotations

import re
from pathlib import Path

from mltree.alignment.alphabet import DNA
from mltree.alignment.partition_files import holds_partitions
from mltree.alignment.source import expect_file, read_text
from mltree.errors import InputError
from mltree.model.empirical import is_matrix
from mltree.model.grammar import parse_model
from mltree.model.names import PROTEIN_GTR
from mltree.model.part_models import model_alphabet
from mltree.model.substitution import Model

__all__ = ["is_choice", "model_text", "names_parts", "read_model"]

AUTO = "auto"
"""What ``--model`` says for the model that suits the data best."""


def names_parts(model: str) -> bool:
    """Whether the model is a partition file, not a user's matrix or a line."""
    if not _is_file(model) or is_matrix(read_text(model).decode(errors="replace")):
        return False
    return holds_partitions(model)


def is_choice(model: str | None) -> bool:
    """Whether the model is to be chosen (``--model auto``)."""
    return model is not None and model.strip().lower() == AUTO


def read_model(text: str) -> Model:
    """The model that a string or a model file names, without any data.

    Raises:
        InputError: the file cannot be used.
        ModelError: the string cannot be used.
    """
    text = model_text(text)
    return parse_model(text, model_alphabet(text) or DNA)


_BRACED = re.compile(r"[{\[].*?([}\]]|$)")
_PATH = re.compile(r"[/\\]|^(?!n?q\.).*\.[a-z]\w*$|^\.", re.IGNORECASE)
"""What a model's string never has outside braces: a folder, or a file name's ending; Q.plant is no
file's name."""


def model_text(text: str) -> str:
    """The model's string: the text itself, or what the file says that it names.

    That is a line, or a matrix.
    """
    if not _is_file(text):
        whole = _BRACED.sub("", text)
        paths = [path for path in (whole, whole.split("+")[0]) if _PATH.search(path)]
        if paths and model_alphabet(text) is None:
            expect_file(text if whole in paths else paths[0])
        return text
    content = read_text(text).decode(errors="replace")
    if is_matrix(content):
        return f"{PROTEIN_GTR}{{{text}}}"
    lines = [line for line in content.split("\n") if line.strip()]
    if len(lines) != 1:
        raise InputError("a model file has one line", file=text, hint="as in .bestModel files")
    return lines[0]


def _is_file(text: str) -> bool:
    try:
        return Path(text).exists() and not Path(text).is_dir()
    except (OSError, ValueError):  # no name that a file could have
        return False
