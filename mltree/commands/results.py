"""How a command ends: results in files, all or none, and what was found as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mltree import __version__
from mltree.commands.surroundings import input_files
from mltree.errors import InputError
from mltree.events import Unsaved
from mltree.outputs import Outputs
from mltree.report.progress import Reporter
from mltree.stopping import Farewell, last_word, unbroken
from mltree.values import plain

__all__ = [
    "LOCI_KINDS",
    "RESULT_FORMAT",
    "by_kind",
    "command_result",
    "deliver",
    "finish",
    "result_text",
]

LOCI_KINDS = ("bestTrees", "lociTable", "loci")
"""Kinds of the files that a search of many loci leaves, and one of a lone alignment does not."""

RESULT_FORMAT = 1
"""Of the result as JSON; a new number where a name of it changes or goes."""


def deliver(
    outputs: Outputs, texts: Mapping[str, str], reporter: Reporter, spent: Sequence[str] = ()
) -> list[Path]:
    """Write the results, all or none; from then on a stop changes nothing any more.

    ``spent``: kinds of files that are of no use beside them. Lines that cannot be written are shown
    instead, not to be lost.

    Raises:
        InputError: the results cannot be written.
    """
    with unbroken():
        try:
            files = outputs.write(texts)
        except InputError as error:
            for kind, text in texts.items():
                if text.count("\n") == 1:
                    reporter(Unsaved(str(outputs.path(kind)), text))
            hint = "results are printed instead; once it can be, the same command writes them"
            raise InputError(error.message, hint=hint) from error
        for kind in spent:
            outputs.remove(kind)
        last_word(Farewell("the results are written", 0))
    return files


def result_text(values: Mapping[str, Any]) -> str:
    """The content of a file with a result: JSON, a name a line."""
    return json.dumps(plain(values), indent=1) + "\n"


def command_result(
    command: str,
    line: str,
    values: Mapping[str, Any],
    files: Mapping[str, str],
    inputs: Iterable[str],
    reporter: Reporter,
) -> dict[str, Any]:
    """The result of a command that is no search as JSON has it.

    line    the command as it was typed
    values  what it found
    files   those that it wrote, by kind
    inputs  what may be files that it read
    """
    return {
        "command": command,
        "format": RESULT_FORMAT,
        "version": __version__,
        "command_line": line,
        **values,
        "files": dict(files),
        "seconds": reporter.elapsed,
        "inputs": [asdict(file) for file in input_files(inputs)],
    }


def finish(
    command: str,
    line: str,
    outputs: Outputs,
    texts: Mapping[str, str],
    values: Mapping[str, Any],
    inputs: Iterable[str],
    reporter: Reporter,
    spent: Sequence[str] = (),
) -> None:
    """Write the results, all of them as JSON too, and say where they are.

    See `command_result` for its arguments, and `deliver` for ``spent``.
    """
    kind = f"{command}.json"
    written = {name: str(outputs.path(name)) for name in [*texts, kind]}
    document = command_result(command, line, values, written, inputs, reporter)
    files = deliver(outputs, {**texts, kind: result_text(document)}, reporter, spent)
    reporter.say("\n".join(f"Wrote {file}" for file in files))
    reporter.finish(command, document)


def by_kind(paths: Iterable[Path]) -> dict[str, str]:
    """Files by what their names have behind the prefix."""
    return {path.name.rpartition(".mltree.")[2]: str(path) for path in paths}
