"""``mltree draw``: a picture of a tree."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mltree import __version__
from mltree.commands.results import command_result
from mltree.drawing.figure import figure
from mltree.drawing.layouts import Style, draw
from mltree.drawing.svg import svg
from mltree.errors import InputError
from mltree.events import Notice
from mltree.events.run import RunStarted
from mltree.events.trees import TreesWritten
from mltree.files import write_whole
from mltree.outputs import claim_files
from mltree.report.progress import Reporter
from mltree.tree.written import read_written

__all__ = ["PictureRequest", "run_draw"]

KINDS = ("svg", "png", "pdf")


@dataclass(frozen=True, kw_only=True)
class PictureRequest:
    """What is to be drawn."""

    tree: str
    out: str
    style: Style
    redo: bool
    command: str


def run_draw(request: PictureRequest, reporter: Reporter) -> None:
    """Draw the first tree of a file.

    Raises:
        InputError: the tree cannot be read, or the picture cannot be drawn or written.
    """
    out = Path(request.out)
    kind = out.suffix.lower().lstrip(".")
    if kind not in KINDS:
        hint = f"known: {' '.join('.' + kind for kind in KINDS)}"
        raise InputError(f"{out}: the name does not tell what picture it is", hint=hint)
    claim_files([out], [request.tree], request.redo)
    reporter(RunStarted(__version__, request.command))
    tree, *others = read_written(request.tree)
    if others:
        reporter(Notice(f"{request.tree}: the first of {1 + len(others)} trees is drawn"))
    scene = draw(tree, request.style)
    picture = svg(scene).encode() if kind == "svg" else figure(scene, kind)
    claim_files([out], [request.tree], request.redo)  # once more: another may have been quicker
    write_whole(out, picture)
    reporter(TreesWritten(str(out), 1, len(tree.tips)))
    values, files = {"taxa": len(tree.tips)}, {"out": request.out}
    result = command_result("draw", request.command, values, files, [request.tree], reporter)
    reporter.finish("draw", result)
