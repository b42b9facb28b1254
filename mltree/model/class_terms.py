"""The classes in the braces of MIX{...} and FMIX{...}, as IQ-TREE writes them.

A class is a model, or frequencies, and perhaps its rate and its weight:
``MIX{LG:1:0.4,WAG:1:0.6}``. Rates are beside each other; weights that are not given are estimated.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mltree.errors import ModelError
from mltree.model.mixtures import Mixed
from mltree.model.substitution import Model
from mltree.numerals import decimal

__all__ = ["mixed", "outside_braces"]


def outside_braces(text: str, separator: str) -> list[str]:
    """What stands between separators outside braces.

    Raises: ModelError where a brace is not closed.
    """
    found, depth = [""], 0
    for character in text:
        if character == separator and depth == 0:
            found.append("")
            continue
        depth += (character in "{[") - (character in "}]")
        found[-1] += character
    if depth != 0:
        raise ModelError(f"model {text.strip()!r}: a brace is not closed")
    return [part.strip() for part in found]


def mixed(name: str, inside: str, read: Callable[[str], Model]) -> Mixed:
    """The classes in the braces behind a name, MIX or FMIX, each read as the caller says.

    Raises: ModelError naming the class that is wrong.
    """
    texts = [outside_braces(text, ":") for text in outside_braces(inside, ",")]
    if len(texts) < 2:
        raise ModelError(
            f"{name}{{{inside}}}: two classes or more are wanted",
            hint="commas separate them: MIX{LG,WAG}, or LG+FMIX{FO,FE}",
        )
    if any(len(text) not in (1, 3) for text in texts) or len({len(text) for text in texts}) > 1:
        raise ModelError(
            f"{name}{{{inside}}}: all classes have a rate and a weight, or none",
            hint="behind colons: MIX{LG:1:0.4,WAG:1:0.6}",
        )
    given = np.array([[_number(value, name) for value in text[1:]] for text in texts])
    models = tuple(read(text[0]) for text in texts)
    count, is_given = len(models), given.size > 0
    speeds = given[:, 0] if is_given else np.ones(count)
    mixture = Mixed(
        name=name,
        weights=np.full(count, 1.0 / count),
        weights_fixed=is_given,
        classes=models,
        speeds=speeds,
        is_linked=name == "FMIX",
    )
    mixture = mixture.with_weights(given[:, 1]) if is_given else mixture
    if not (mixture.weights * speeds).sum() > 0.0:
        raise ModelError(f"{name}{{{inside}}}: all rates are zero")
    return mixture


def _number(text: str, name: str) -> float:
    try:
        value = decimal(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value < math.inf:
        raise ModelError(f"{name}: a class's rate and weight are numbers from 0 on, not {text!r}")
    return value
