"""``mltree search`` of many loci: alignments, folders, a list of files, or the parts of one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from mltree import __version__
from mltree.alignment.alphabet import DNA
from mltree.alignment.source import STDIN, expect_file, read_text
from mltree.commands.processes import share_loci
from mltree.commands.report import REPORT
from mltree.commands.request import Request, begin_log, digest_of, open_log
from mltree.commands.results import LOCI_KINDS, by_kind, command_result, deliver, result_text
from mltree.commands.search import CHECKPOINT, OF_ONE_ALIGNMENT, TREE
from mltree.errors import InputError
from mltree.events import Notice
from mltree.events.run import RunStarted
from mltree.events.trees import LociFinished
from mltree.files import is_folder, is_there, read_own
from mltree.log import RunLog
from mltree.model.grammar import parse_model
from mltree.model.part_models import model_alphabet
from mltree.model.partitioned import alone
from mltree.model.substitution import Model
from mltree.model_option import is_choice, model_text, names_parts
from mltree.outputs import Outputs
from mltree.problem import Problem, read_problem
from mltree.ranks import here
from mltree.report.progress import Reporter
from mltree.runs.loci import LociSearch
from mltree.runs.locus import LociJournal, Locus, LocusTree
from mltree.settings import SearchSettings, preset
from mltree.starts import terms_of
from mltree.stopping import Farewell, parting

__all__ = ["LociRequest", "run_loci"]

LOG, RESULT = "log", "json"
TREES, TABLE, JOURNAL = LOCI_KINDS
"""Kinds of files. The journal stays, so that loci can be added."""

COLUMNS = ("locus", "taxa", "sites", "patterns", "lnl", "tree_length", "model")

FOR_LONE_TREES = (
    "constraint", "outgroup", "bootstrap", "metric", "sh_alrt", "lbp", "alrt", "abayes", "ufboot",
    "bnni", "report", "site_rates",
    "brlen", "merge", "site_freqs", "guide_tree",
)  # fmt: skip
"""Options of a search that say nothing of many trees."""

OF_ANY_NUMBER = "MULTI"
"""Beginning of models whose states are as many as the data have."""

SHOWN = 3
"""Names of alignments in a message."""

HINT = "search one alignment, or give the options on the trees afterwards"


class LociRequest(Request, kw_only=True):
    """``mltree search`` of more than one alignment."""

    alignments: Sequence[str]
    """As they were given: files and folders, or with ``separate`` a list or a supermatrix."""
    separate: bool
    seed: int
    tree: str | None
    preset: str
    nni_only: bool
    collapse: float | None

    @property
    def asked(self) -> str:
        """That of any alignments: loci can be added."""
        options = {name: own for name, own in self.options.items() if name != "alignment"}
        return digest_of(options)

    @property
    def settings(self) -> SearchSettings:
        """The preset's, with the user's changes."""
        settings = preset(self.preset)
        return settings.nni_only() if self.nni_only else settings

    @property
    def outputs(self) -> Outputs:
        """Where the run writes: beside a lone folder or file where there is no prefix."""
        if self.prefix is None and len(self.alignments) > 1:
            taken = f"{', '.join(self.alignments[:SHOWN])}{' ...' * (len(self.alignments) > SHOWN)}"
            hint = f"give --prefix; {taken} are taken for alignments"
            raise InputError("many alignments need a name", hint=hint)
        return Outputs.of(self.prefix, self.alignment.rstrip("/"))

    def refuse(self) -> None:
        """Raise what cannot be asked of many trees."""
        for name in FOR_LONE_TREES:
            if self.options.get(name, (None, "default"))[1] != "default":
                option = name.replace("_", "-")
                raise InputError(f"--{option} is for the search of one alignment", hint=HINT)
        if self.tree is not None and terms_of(self.tree) is None:
            hint = "pars{N} and rand{N} can be"
            raise InputError("--tree: a file of trees cannot be for many loci", hint=hint)
        if is_choice(self.model):
            hint = "give --model a model, or leave it out"
            raise InputError("--model auto is for the search of one alignment", hint=hint)
        if self.model is not None and not names_parts(self.model):
            text = model_text(self.model)
            if model_alphabet(text) is None and not text.upper().startswith(OF_ANY_NUMBER):
                parse_model(text, DNA)  # of no data at all: it says why


def run_loci(request: LociRequest, reporter: Reporter) -> None:
    """Search every locus, show the result, write the files."""
    request.refuse()
    outputs, kinds = request.outputs, (TREES, TABLE, RESULT)
    loci, files = _loci(request)
    outputs.check((LOG, *kinds, JOURNAL), [*request.files, *files])
    share_loci(request, len(loci))
    held = (*kinds, JOURNAL, *(kind for kind in OF_ONE_ALIGNMENT if kind != REPORT))
    with open_log(outputs.path(LOG), reporter) as log, outputs.held(held):
        resumes = not request.redo and outputs.path(JOURNAL).exists()
        if not resumes:
            outputs.claim((*kinds, JOURNAL, TREE, CHECKPOINT), request.redo)
        elif not _is_alike(request):
            outputs.claim(kinds, redo=False)
        reporter(RunStarted(__version__, request.command, request.seed))
        reporter(Notice(f"{len(loci):,} loci, each with a tree and a model of its own"))
        search = LociSearch(
            settings=request.settings, resources=request.resources, seed=request.seed,
            starts=terms_of(request.tree) if request.tree else None, collapse=request.collapse,
        )  # fmt: skip
        with LociJournal(outputs.path(JOURNAL), afresh=not resumes) as journal:
            begin_log(log, request, files, reporter, append=resumes)
            if journal.done:
                reporter(Notice(f"{journal.path} has {len(journal.done):,} loci"))
            with parting(partial(_leave, request, journal, log)):
                found = search.run(loci, journal, reporter, here())
            _conclude(request, loci, found, log, files, reporter)


def _is_alike(request: LociRequest) -> bool:
    """True if the same options made the existing results; more loci then replace them."""
    try:
        before = json.loads(read_own(request.outputs.path(RESULT)))
        return bool(before["asked"] == request.asked)
    except (InputError, ValueError, KeyError, TypeError):
        return False


def _conclude(
    request: LociRequest,
    loci: Sequence[Locus],
    found: Sequence[LocusTree | None],
    log: RunLog,
    inputs: Sequence[str],
    reporter: Reporter,
) -> None:
    """Write and tell what was found."""
    trees = [tree for tree in found if tree is not None]
    if not trees:
        raise InputError("no locus could be searched", hint=f"{log.path} says why")
    lnl, skipped, outputs = (
        sum(tree.lnl for tree in trees),
        len(found) - len(trees),
        request.outputs,
    )
    values = {
        "asked": request.asked,
        "seed": request.seed,
        "trees": len(trees),
        "skipped": skipped,
        "lnl": lnl,
        "loci": [
            {"name": locus.name, **({} if tree is None else tree._asdict())}
            for locus, tree in zip(loci, found, strict=True)
        ],
    }
    texts = {TREES: "".join(f"{tree.newick}\n" for tree in trees), TABLE: _table(loci, found)}
    files = by_kind([log.path, *map(outputs.path, (*texts, RESULT))])
    result = command_result(
        "search", request.command, values, files, [*request.files, *inputs], reporter
    )
    spent = OF_ONE_ALIGNMENT if request.redo else ()
    deliver(outputs, {**texts, RESULT: result_text(result)}, reporter, spent)
    reporter(LociFinished(len(trees), skipped, lnl, tuple(files.values()), reporter.elapsed))
    reporter.finish("search", result)


def _table(loci: Sequence[Locus], found: Sequence[LocusTree | None]) -> str:
    """A line a locus, in their order, with tabs; of those skipped nothing but the name."""
    rows = ["\t".join(COLUMNS)]
    for locus, tree in zip(loci, found, strict=True):
        cells = [""] * (len(COLUMNS) - 1)
        if tree is not None:
            values = tree._asdict() | {
                "lnl": f"{tree.lnl:.6f}",
                "tree_length": f"{tree.tree_length:.6f}",
            }
            cells = [str(values[column]) for column in COLUMNS[1:]]
        rows.append("\t".join([locus.name, *cells]))
    return "\n".join(rows) + "\n"


def _leave(request: LociRequest, journal: LociJournal, log: RunLog) -> Farewell:
    """Say how the run goes on; what is done is kept already."""
    without = " without --redo" if request.redo else ""
    text = f"{len(journal.done):,} loci are kept; the same command{without} goes on from here"
    log.close(f"stopped: {text}\n")
    return Farewell(text)


def _loci(request: LociRequest) -> tuple[list[Locus], list[str]]:
    """The loci that were asked for, and the files that they are in.

    Raises: InputError where a file is missing, or there is no locus.
    """
    if STDIN in request.alignments:
        raise InputError("standard input is one alignment, not many", hint="name files")
    scheme = request.partitions
    if scheme is None and request.model is not None and names_parts(request.model):
        scheme = request.model
    lone = request.separate and len(request.alignments) == 1
    if scheme is not None:
        if not lone:
            hint = "give one alignment and --separate: every part is a locus then"
            raise InputError("a partition file is for one alignment", file=scheme, hint=hint)
        return _parts(request), [request.alignment, scheme]
    paths = _listed(request.alignment) if lone else list(_expanded(request.alignments))
    for path in paths:
        expect_file(path)
    if not paths:
        raise InputError("there is no alignment in it", file=request.alignment)
    odd = next((path for path in paths if not path.isprintable()), None)
    if odd is not None:
        message = f"{odd!r}: a locus cannot have that name in a table"
        raise InputError(message, hint="rename the file: no tabs, no line ends")
    names = [Path(path).name for path in paths]
    twice = {name for name, count in Counter(names).items() if count > 1}
    return [
        Locus(path if name in twice else name, _reader(request, path))
        for path, name in zip(paths, names, strict=True)
    ], paths


def _reader(request: LociRequest, path: str) -> Callable[[], Problem]:
    own = path, request.model, request.datatype
    return partial(read_problem, *own, summarises=False, computes=False)


def _expanded(paths: Iterable[str]) -> Iterable[str]:
    """Files, and those in folders in the order of their names, without what mltree has written.

    Links in folders that lead nowhere are among them: files that are missing.
    """
    for path in paths:
        if not is_folder(path):
            yield path
            continue
        for file in sorted(Path(path).iterdir()):
            is_taken = file.is_file() or not is_there(file)
            if is_taken and not file.name.startswith(".") and ".mltree." not in file.name:
                yield str(file)


def _listed(path: str) -> list[str]:
    """The files that a list names, a line each; beside the list where they are not here."""
    lines = read_text(path).decode(errors="replace").split("\n")
    names = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    beside = Path(path).parent
    found = []
    for name in names:
        here = [file for file in (Path(name), beside / name) if is_there(file)]
        if not here:
            hint = "a list has a file a line; for the parts of an alignment, give --partitions"
            raise InputError(f"there is no file {name[:80]}", file=path, hint=hint)
        found.append(str(here[0]))
    return found


def _parts(request: LociRequest) -> list[Locus]:
    """A locus for every part of a partition file, in its order."""
    whole = read_problem(
        request.alignment, request.model, request.datatype, partitions=request.partitions
    )
    assert whole.data is not None, "a partition file has one part at least"
    models = dict(zip(whole.data.order, whole.model.models, strict=True))
    return [
        Locus(part.name, partial(_part, whole, number, models[number]))
        for number, part in enumerate(whole.data.parts)
    ]


def _part(whole: Problem, number: int, model: Model) -> Problem:
    return Problem(whole.path, (whole.part(number),), alone(model), None)
