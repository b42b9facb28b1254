"""``mltree summarize``: posterior of Bayesian samples, convergence of runs, Bayes factors."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import date as today
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple
from warnings import catch_warnings, simplefilter

import numpy as np

from mltree.analyses.convert import auspice
from mltree.analyses.sample_options import SummarizeOptions
from mltree.analyses.tree_sets import writing
from mltree.dating.dates import dates_of
from mltree.report.lines import counted
from mltree.report.samples import sample_page
from mltree.runs.calls import in_turn
from mltree.runs.inputs import TreeLike, newick_of
from mltree.runs.options import AUTO, share_of
from mltree.runs.results import PhyloTree, library, table
from mltree.runs.workspace import Workspace
from mltree.sampling import diagnostics
from mltree.sampling.mrbayes_files import (
    RunFiles,
    consensus_text,
    files_of,
    mcc_text,
    part_kinds,
    part_texts,
    parts_text,
    pstat_text,
    read_evidence,
    read_runs,
    result_of,
    trprobs_text,
    tstat_text,
    vstat_text,
    with_lengths_of_parts,
)
from mltree.sampling.sampled_trees import Course, without_root
from mltree.sampling.summaries import (
    CREDIBLE,
    HEIGHTS,
    LNL,
    Evidence,
    Posterior,
    SummaryTree,
)
from mltree.supports.consensus import Consensus
from mltree.system.arrays import Float64, Index
from mltree.system.errors import InputError
from mltree.system.events import Busy, Emit, Notice, TreesLoaded, ignore
from mltree.system.files import write_together
from mltree.system.values import plain
from mltree.tree.clades import ascii_drawing, read_clades, write_clades

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


TREE_KINDS = ("con.tre", "mcc.tre", "parts", "tstat", "vstat", "trprobs", "splits.tsv")
"""Kinds of files where there are trees; MrBayes' names."""

CCD0, COURSES, AUSPICE = "ccd0.tre", "courses.tsv", "auspice.json"
DATED_KINDS = (CCD0, COURSES, AUSPICE)
"""Kinds of files where trees are rooted and have lengths."""

TABLE_KINDS = ("pstat", "parameters.tsv")
"""Kinds of files where there are parameters."""

PAGE, NETCDF, EVIDENCE = "posterior.html", "nc", "evidence.tsv"

CONSENSUS_NAMES = {"majority": "con_50_majrule", "extended": "con_all_compat"}
"""Names of the trees in .con.tre, as MrBayes has them."""

LARGE = 50 << 20
"""Bytes of files from which reading takes seconds."""

MOST_SHOWN = 30
"""Parameters in a table on the terminal, and taxa of a tree."""


def run_summarize(options: SummarizeOptions, reporter: Reporter) -> None:
    """Read samples, say what they amount to, write the files.

    Raises: InputError: there are no samples, a file is broken, or runs do not go together.
    """
    samples = options.samples or (options.sample,)
    if len(samples) > 1 and not all(Path(name).is_file() for name in samples):
        _compare(options, samples, reporter)
        return
    files = _files(samples)
    workspace = Workspace.of(options.prefix, samples[0])
    kinds = [*TREE_KINDS, *TABLE_KINDS, *DATED_KINDS]
    kinds += [kind for kind, wanted in ((PAGE, options.report), (NETCDF, options.netcdf)) if wanted]
    kinds += part_kinds(max(len(one.further) for one in files))
    inputs = [name for one in files for name in (one.trees, one.table, *one.further) if name]
    stale = [*TREE_KINDS, *TABLE_KINDS, *DATED_KINDS, PAGE, *([] if options.netcdf else [NETCDF])]
    with writing("summarize", options, workspace, kinds, reporter, stale) as write:
        if options.netcdf:
            _expect_arviz()
        summary = _summarised(files, options.burnin, reporter, samples[0])
        summary.take_prior(options.prior_sample)
        summary.heights = options.heights
        if options.dates is not None:
            summary.take_dates(options.dates, ages=options.ages)
        wanted = list(_wanted(options, summary.posterior))
        texts, values = _texts(summary, options.kind, workspace.name), summary.to_dict()
        for text in _shown(summary, options.kind, wanted):
            reporter.say(text)
        if options.report:
            result = result_of(samples[0])
            texts[PAGE] = sample_page(
                workspace.name, summary.posterior, summary.prior, result, summary.mcc_summary,
                summary.latest,
            )  # fmt: skip
        texts |= part_texts(summary.further, Consensus(options.kind), CONSENSUS_NAMES[options.kind])
        if wanted:
            values["wanted"] = [found._asdict() for found in wanted]
        if options.netcdf:
            _write_netcdf(workspace, summary)
        write(texts, values, [*inputs, *options.inputs])


class Wanted(NamedTuple):
    """The posterior probability of a user's tree or group of taxa."""

    what: str
    probability: float
    error: float
    """Standard error, by the effective sample size."""
    ess: float
    by_run: tuple[float, ...]


class SplitRow(NamedTuple):
    """Statistics of a split, or of a clade where trees are rooted."""

    taxa: tuple[str, ...]
    """Taxa of the clade, or of the smaller side."""
    probability: float
    error: float
    """Standard error, by the effective sample size; NaN without one."""
    by_run: tuple[float, ...]
    ess: float
    """NaN where the probability is below 2.5 or above 97.5 %: it says nothing there."""
    rhat: float
    length: float
    """Mean branch length of the trees that have it."""
    height: tuple[float, float, float] | None = None
    """Median height of the clade's ancestor and its 95 % interval; None for unrooted trees."""
    rate: tuple[float, float, float] | None = None
    """Mean rate of the branch above it and its 95 % interval; None without rates."""


class SampledTrees(Sequence[PhyloTree]):
    """The trees of a sample, run after run; each is written when it is asked for."""

    def __init__(self, posterior: Posterior) -> None:
        self._posterior = posterior

    def __len__(self) -> int:
        return 0 if self._posterior.trees is None else self._posterior.trees.n_trees

    def __getitem__(self, at: int) -> PhyloTree:  # type: ignore[override]
        at = range(len(self))[at]
        trees = self._posterior.trees
        assert trees is not None, "there is a tree of that number"
        tree = trees.part(at, at + 1)
        tree = without_root(tree) if self._posterior.is_rooted else tree
        return PhyloTree(write_clades(tree, [""] * len(tree.tree)))


class PosteriorSummary:
    """Bayesian samples summed up: trees, parameters, convergence."""

    def __init__(
        self, posterior: Posterior, evidence: Evidence | None = None, prior: Posterior | None = None
    ) -> None:
        self.posterior = posterior
        """All that the sample holds, as arrays."""
        self.evidence = evidence
        self.prior = prior
        """Samples of the prior, to compare with."""
        self.heights = HEIGHTS[0]
        """Statistic of heights that lengths of the MCC and CCD0 trees follow: one of HEIGHTS."""
        self.latest: float | None = latest_of(posterior)
        """Date of the latest tip; None where it is unknown."""
        self.further: Sequence[Posterior] = ()
        """The same trees with the branch lengths of further parts, where parts have their own."""
        self._mcc: dict[str, SummaryTree] = {}

    @property
    def trees(self) -> Sequence[PhyloTree]:
        """The sampled trees behind the burn-in, run after run."""
        return SampledTrees(self.posterior)

    @property
    def parameters(self) -> dict[str, Float64]:
        """Samples of each parameter, float64 [R, n]."""
        return self.posterior.parameters

    @property
    def burn_in(self) -> float:
        """Share of each run that is left out."""
        return self.posterior.burn_in

    @property
    def ess(self) -> dict[str, float]:
        """Effective sample size of each parameter ("bulk"), of all runs together."""
        return self.posterior.ess

    @property
    def rhat(self) -> dict[str, float]:
        """R-hat of ranks of each parameter; NaN of a constant."""
        return self.posterior.rhat

    @property
    def asdsf(self) -> float:
        """Average standard deviation of split frequencies; NaN of a single run."""
        return self.posterior.asdsf

    @property
    def lnz(self) -> tuple[float, float] | None:
        """Ln of the marginal likelihood and its standard error, where the run has found it."""
        return None if self.evidence is None else (self.evidence.lnz, self.evidence.error)

    @property
    def converged(self) -> bool:
        """True where all rules of convergence are met."""
        return self.posterior.is_converged

    @cached_property
    def consensus(self) -> PhyloTree:
        """The majority consensus: probabilities as labels, median lengths of branches."""
        return PhyloTree(self.posterior.consensus().labelled_newick())

    @property
    def mcc(self) -> PhyloTree:
        """The tree of maximum clade credibility: probabilities as labels; heights as asked for."""
        return PhyloTree(self.mcc_summary.labelled_newick())

    @property
    def mcc_summary(self) -> SummaryTree:
        """The same with probabilities, heights, lengths and rates of its nodes."""
        if self.heights not in self._mcc:
            self._mcc[self.heights] = self.posterior.mcc_with(self.heights)
        return self._mcc[self.heights]

    @cached_property
    def ccd0_summary(self) -> SummaryTree | None:
        """The best tree of CCD0 likewise; None where not all trees are rooted and binary."""
        splits = self.posterior.ccd0_splits
        kind = HEIGHTS[0] if self.heights == "keep" else self.heights
        return None if splits is None else SummaryTree.of(self.posterior, splits, kind)

    @property
    def ccd0(self) -> PhyloTree | None:
        """The tree of the largest product of clade frequencies that sampled clades can form.

        It need not be a sampled tree (Larget 2013; Berling et al. 2025). None for unrooted trees.
        """
        tree = self.ccd0_summary
        return None if tree is None else PhyloTree(tree.labelled_newick())

    @property
    def courses(self) -> dict[str, Course]:
        """``lineages`` and ``population`` through time, where trees are dated."""
        return self.posterior.courses

    def splits(self) -> list[SplitRow]:
        """The splits that are in at least 10 % of a run's trees, the most frequent first."""
        return [row for row, _ in split_rows(self.posterior)]

    def probability(self, wanted: TreeLike | Iterable[str]) -> Wanted:
        """The posterior probability of a tree of any shape, or of a group of taxa.

        Raises: InputError: a tree of other taxa, or a group that is no split.
        """
        names = None if isinstance(wanted, str | os.PathLike) else _names(wanted)
        if names is not None:
            return _of_group(self.posterior, names)
        return next(_of_trees(self.posterior, newick_of(wanted)))

    def to_arviz(self) -> Any:
        """As ArviZ's InferenceData: parameters, and of each sample lnL and tree statistics."""
        return _inference_data(self.posterior)

    def to_netcdf(self, path: str | os.PathLike[str]) -> None:
        """Write ArviZ's InferenceData to a file."""
        self.to_arviz().to_netcdf(os.fspath(path))

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, under the names of PREFIX.mltree.summarize.json."""
        return _facts(self)

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON."""
        return json.dumps(plain(self.to_dict()), indent=1)

    def take_dates(self, source: str, *, ages: bool = False) -> None:
        """Take the date of the latest tip from tips' dates, as ``--dates`` gives them.

        Raises: InputError: no dates, or trees without heights.
        """
        if not self.posterior.is_dated:
            raise InputError("--dates: trees without heights have no dates")
        spans = dates_of(source, self.posterior.taxa, ages=ages).tips.values()
        known = [0.5 * (span.lower + span.upper) for span in spans]
        self.latest = max((date for date in known if math.isfinite(date)), default=None)

    def take_prior(self, prefix: str | None) -> None:
        """Read samples of the prior, where there is a prefix of some."""
        if prefix is not None:
            runs, _ = read_runs(files_of(prefix))
            self.prior = Posterior.of(runs, 0.0)

    def _repr_html_(self) -> str:
        rows = [["samples", f"{self.posterior.n_samples:,}"], ["converged", str(self.converged)]]
        return table(rows) + (self.consensus._repr_html_() if self.posterior.taxa else "")


def summarize(
    samples: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    burnin: str | float = AUTO,
    heights: str = HEIGHTS[0],
    dates: str | None = None,
    ages: bool = False,
) -> PosteriorSummary:
    """Bayesian samples summed up: of MrBayes, BEAST, RevBayes, PhyloBayes or mltree.

    samples  a prefix (``"primates"`` of primates.run1.t and primates.run1.p), or files of several
             runs of one analysis
    burnin   the share of each run to leave out; ``"auto"`` chooses it
    heights  of the nodes of dated summary trees: ``"median"``, ``"mean"``, ``"common"``, ``"keep"``
    dates    dates of tips, ``"names"``, a file or an expression, so that nodes have dates
    ages     True for dates that count back from the present

    Raises:
        InputError: there are no samples, a file is broken, or runs do not go together.
    """
    names = [samples] if isinstance(samples, str | os.PathLike) else list(samples)
    with in_turn():
        files = _files([os.fspath(name) for name in names])
        summary = _summarised(files, str(burnin), ignore, os.fspath(names[0]))
        if heights not in HEIGHTS:
            raise InputError(f"heights {heights!r}: one of {', '.join(HEIGHTS)}")
        summary.heights = heights
        if dates is not None:
            summary.take_dates(dates, ages=ages)
        return summary


def latest_of(posterior: Posterior) -> float | None:
    """The date of the latest tip by the root's date and height in tables; None without these.

    Of mltree's and BEAST X's tables, which have both.
    """
    columns = posterior.parameters
    date, height = columns.get("age(root)"), None
    for name in ("Tree.height", "treeModel.rootHeight", "rootHeight", "TreeHeight"):
        height = columns.get(name) if height is None else height
    if date is None or height is None:
        return None
    latest = round(float(np.median(date + height)), 9)
    return latest or None  # ages have 0


def _files(samples: Sequence[str]) -> list[RunFiles]:
    """The files of each run once, whether its trees, its table or both are named."""
    return list(dict.fromkeys(one for sample in samples for one in files_of(sample)))


def _summarised(
    files: Sequence[RunFiles], burnin: str, emit: Emit, prefix: str
) -> PosteriorSummary:
    """Samples as they are read, with events of what happens."""
    names = [name for one in files for name in (one.trees, one.table) if name]
    if sum(Path(name).stat().st_size for name in names) > LARGE:
        emit(Busy("reading the samples"))
    runs, notices = read_runs(files)
    for one, run in zip(files, runs, strict=True):
        if run.trees is not None:
            path = one.trees or str(one.table)
            emit(TreesLoaded(path, run.trees.n_trees, run.trees.n_tips))
    is_burnt_in = burnin == AUTO and result_of(prefix) is not None  # mltree's own
    share = 0.0 if is_burnt_in else None if burnin == AUTO else share_of(burnin)
    posterior = Posterior.of(runs, share)
    for text in (*notices, *posterior.notices):
        emit(Notice(text))
    summary = PosteriorSummary(posterior, read_evidence(prefix))
    summary.further = list(with_lengths_of_parts(files, posterior))
    return summary


# Probabilities of what users ask for.


def _wanted(options: SummarizeOptions, posterior: Posterior) -> Iterator[Wanted]:
    for group in (options.split or "").split(";"):
        if group.strip():
            yield _of_group(posterior, [name.strip() for name in group.split(",")])
    if options.tree is not None:
        yield from _of_trees(posterior, options.tree)


def _names(wanted: Any) -> list[str] | None:
    """Names of a group of taxa; None for a tree."""
    is_names = isinstance(wanted, Iterable) and not hasattr(wanted, "newick")
    names = list(wanted) if is_names else []
    return names if names and all(isinstance(name, str) for name in names) else None


def _of_group(posterior: Posterior, names: Sequence[str]) -> Wanted:
    split = posterior.find(posterior.bits_of(names)[None, :])
    return _probability(posterior, ",".join(names), split)


def _of_trees(posterior: Posterior, source: str) -> Iterator[Wanted]:
    trees = read_clades(source, like=posterior.like, origin="the sample")
    for at in range(trees.n_trees):
        bits = posterior.tree_bits(trees.part(at, at + 1))
        yield _probability(posterior, f"tree {at + 1}", posterior.find(bits))


def _probability(posterior: Posterior, what: str, splits: Index) -> Wanted:
    has = posterior.trees_with(splits)
    share = float(has.mean())
    ess = float(diagnostics.ess_of_mean(has[None].astype(np.float64))[0])
    by_run = tuple(has.mean(axis=1).tolist())
    return Wanted(what, share, _error(share, ess), ess, by_run)


def _error(share: float, ess: float) -> float:
    return math.sqrt(share * (1 - share) / ess) if ess > 0 else math.nan


# Tables.


def split_rows(posterior: Posterior) -> Iterator[tuple[SplitRow, int]]:
    """Rows of the listed splits, and their numbers."""
    places = {int(split): at for at, split in enumerate(posterior.telling)}
    for split in posterior.listed.tolist():
        share, at = float(posterior.probabilities[split]), places.get(split)
        ess = math.nan if at is None else float(posterior.split_ess[at])
        rhat = math.nan if at is None else float(posterior.split_rhat[at])
        length, height, rate = math.nan, None, None
        if posterior.has_lengths:
            runs = np.concatenate(posterior.occurrences(split))
            length = float(posterior.splits.lengths[runs].mean())
            if posterior.is_rooted:
                values = posterior.heights.clades[runs]
                height = (float(np.median(values)), *diagnostics.hpd(values))
            if posterior.branch_rates is not None:
                values = posterior.branch_rates[0][runs]
                rate = (float(values.mean()), *diagnostics.hpd(values))
        by_run = tuple(posterior.frequencies[split].tolist())
        names = posterior.names_of(split)
        numbers = (_error(share, ess), by_run, ess, rhat, length, height, rate)
        yield SplitRow(names, share, *numbers), split


def _texts(summary: PosteriorSummary, kind: str, name: str) -> dict[str, str]:
    """The contents of all files but the page, by kind."""
    posterior = summary.posterior
    texts: dict[str, str] = {}
    if posterior.columns:
        texts |= {"pstat": pstat_text(posterior), "parameters.tsv": _parameters_text(posterior)}
    if posterior.table is not None:
        tree = posterior.consensus(Consensus(kind))
        texts |= {
            "con.tre": consensus_text(posterior, tree, CONSENSUS_NAMES[kind]),
            "mcc.tre": mcc_text(posterior, summary.mcc_summary, "MCC", summary.latest),
            "parts": parts_text(posterior),
            "tstat": tstat_text(posterior),
            "trprobs": trprobs_text(posterior),
            "splits.tsv": _splits_text(posterior, summary.latest),
        }
        if posterior.has_lengths:
            texts["vstat"] = vstat_text(posterior)
    if posterior.table is not None and posterior.is_dated:
        texts[AUSPICE] = _auspice(summary, name)
        if (best := summary.ccd0_summary) is not None:
            texts[CCD0] = mcc_text(posterior, best, "CCD0", summary.latest)
        if posterior.courses:
            texts[COURSES] = _courses_text(posterior, summary.latest)
    return texts


def _auspice(summary: PosteriorSummary, name: str) -> str:
    """Auspice's JSON of the MCC tree: dates where they are known, else minus the ages."""
    best = summary.mcc_summary
    tree, places = best.written
    latest = summary.latest or 0.0
    heights = [*best.heights, best.root_height]
    assert best.drawn is not None
    dates = np.empty((tree.n_nodes, 3))
    rates = np.full(tree.n_nodes, np.nan)
    for node, place in enumerate(places.tolist()):
        moments = heights[place]
        assert moments is not None
        dates[node] = latest - best.drawn[place], latest - moments.high, latest - moments.low
        if best.rates and node:
            rates[node] = best.rates[place].mean
    return auspice(tree, name, today.today(), dates, rates if best.rates else None)


def _courses_text(posterior: Posterior, latest: float | None) -> str:
    """Lineages and population sizes through time as a table."""
    of_dates = [] if latest is None else ["date"]
    names = [f"{name}{end}" for name in posterior.courses for end in ("", "_low", "_high")]
    rows = [["time", *of_dates, *names]]
    columns = [next(iter(posterior.courses.values())).times]
    columns += [] if latest is None else [latest - columns[0]]
    for course in posterior.courses.values():
        columns += [course.median, course.low, course.high]
    rows += [[f"{value:.9g}" for value in row] for row in zip(*columns, strict=True)]
    return _tsv(rows)


def _parameters_text(posterior: Posterior) -> str:
    head = ["parameter", "mean", "sd", "median", "hpd_low", "hpd_high", "ess", "ess_tail", "rhat"]
    tails = diagnostics.ess_of_tails(posterior.values)
    rows = [head]
    for at, name in enumerate(posterior.columns):
        one = posterior.moments[name]
        numbers = (
            one.mean, math.sqrt(one.variance), one.median, one.low, one.high, posterior.ess[name],
            tails[at], posterior.rhat[name],
        )  # fmt: skip
        rows.append([name, *(f"{value:.6g}" for value in numbers)])
    return _tsv(rows)


def _splits_text(posterior: Posterior, latest: float | None) -> str:
    runs = [f"run{number}" for number in range(1, posterior.n_runs + 1)]
    head = ["probability", "error", *runs, "ess", "rhat", "length"]
    extra = {
        "height": posterior.is_dated, "rate": posterior.branch_rates is not None,
        "date": posterior.is_dated and latest is not None,
    }  # fmt: skip
    names = [name for name, is_there in extra.items() if is_there]
    rows = [[*head, *(f"{name}{end}" for name in names for end in ("", "_low", "_high")), "taxa"]]
    for row, _ in split_rows(posterior):
        numbers = [row.probability, row.error, *row.by_run, row.ess, row.rhat, row.length]
        numbers += [*(row.height or ())] if "height" in names else []
        numbers += [*(row.rate or ())]
        if "date" in names and row.height is not None and latest is not None:
            median, low, high = row.height
            numbers += [latest - median, latest - high, latest - low]
        shown = ("" if math.isnan(value) else f"{value:.9g}" for value in numbers)
        rows.append([*shown, ",".join(row.taxa)])
    return _tsv(rows)


def _tsv(rows: Iterable[Sequence[str]]) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


def _facts(summary: PosteriorSummary) -> dict[str, Any]:
    posterior = summary.posterior
    facts: dict[str, Any] = {
        "runs": list(posterior.runs),
        "burn_in": posterior.burn_in,
        "samples": posterior.n_samples,
        "converged": posterior.is_converged,
        "convergence": [asdict(verdict) for verdict in posterior.verdicts],
        "parameters": {
            name: {
                "mean": one.mean, "sd": math.sqrt(one.variance), "median": one.median,
                "hpd": [one.low, one.high], "ess": posterior.ess[name],
                "rhat": posterior.rhat[name],
            }
            for name, one in posterior.moments.items()
        },
    }  # fmt: skip
    if summary.evidence is not None:
        facts["lnz"], facts["lnz_error"] = summary.evidence.lnz, summary.evidence.error
    if posterior.table is not None:
        known = posterior.topologies
        facts |= {
            "taxa": len(posterior.taxa),
            "rooted": posterior.is_rooted,
            "asdsf": posterior.asdsf,
            "topologies": known.counts.size,
            "credible": {str(share): known.credible(share) for share in CREDIBLE},
            "splits": [row._asdict() for row in summary.splits()],
            "consensus": str(summary.consensus),
            "mcc": str(summary.mcc),
        }
        if posterior.is_dated:
            assert summary.mcc_summary.root_height is not None
            height = summary.mcc_summary.root_height
            facts["root_height"] = {
                "mean": height.mean, "median": height.median, "hpd": [height.low, height.high],
            }  # fmt: skip
            facts["latest"] = summary.latest
            facts["ccd0"] = None if summary.ccd0 is None else str(summary.ccd0)
            facts["courses"] = {
                name: {key: column.tolist() for key, column in asdict(course).items()}
                for name, course in posterior.courses.items()
            }
    return facts


# Texts for the terminal.


def _shown(summary: PosteriorSummary, kind: str, wanted: Sequence[Wanted]) -> Iterator[str]:
    posterior = summary.posterior
    count = posterior.n_samples // posterior.n_runs
    runs, samples = counted(posterior.n_runs, "run"), counted(count, "sample")
    yield f"{runs} of {samples}, behind a burn-in of {posterior.burn_in:.1%}"
    if posterior.columns:
        yield "\n".join(["", *_parameter_lines(posterior)])
    if posterior.table is not None:
        yield "\n".join(["", *_tree_lines(summary, kind)])
    if summary.evidence is not None:
        yield f"ln Z {summary.evidence.lnz:.3f} ± {summary.evidence.error:.3f}"
    if wanted:
        lines = (f"{one.probability:8.4f} ± {one.error:.4f}  {one.what}" for one in wanted)
        yield "\n".join(["", "Posterior probabilities", *lines])
    yield "\n".join(["", *_verdict_lines(posterior)])


def _parameter_lines(posterior: Posterior) -> Iterator[str]:
    names = posterior.columns[:MOST_SHOWN]
    width = max(len("Parameter"), *map(len, names))
    yield (
        f"{'Parameter':<{width}} {'mean':>12} {'median':>12} {'95% HPD interval':>25} "
        f"{'ESS':>8} {'R-hat':>7}"
    )
    for name in names:
        one, rhat = posterior.moments[name], posterior.rhat[name]
        yield (
            f"{name:<{width}} {one.mean:12.6g} {one.median:12.6g} {one.low:12.6g} "
            f"{one.high:12.6g} {posterior.ess[name]:8,.0f} {rhat:7.4f}"
        )
    if len(posterior.columns) > MOST_SHOWN:
        yield f"and {len(posterior.columns) - MOST_SHOWN:,} more, in .parameters.tsv"


def _tree_lines(summary: PosteriorSummary, kind: str) -> Iterator[str]:
    posterior = summary.posterior
    known = posterior.topologies
    sets = ", ".join(f"{known.credible(share):,} of {share:.0%}" for share in CREDIBLE)
    size = known.counts.size
    total = "1 topology" if size == 1 else f"{size:,} topologies"
    yield (
        f"{total}, the most frequent one "
        f"{known.counts[0] / known.n_trees:.1%}; credible sets: {sets}"
    )
    if len(posterior.taxa) <= MOST_SHOWN:
        tree = posterior.consensus(Consensus(kind))
        notes = [*[""] * len(tree.taxa), *(f"{100 * p:.0f}" for p in tree.probability)]
        yield from ("", ascii_drawing(tree.newick(notes=notes)))


def _verdict_lines(posterior: Posterior) -> Iterator[str]:
    verdicts = posterior.verdicts
    for verdict in verdicts:
        word = "at least" if verdict.is_least else "at most"
        state = "met" if verdict.is_met else "not met"
        where = verdict.where if len(verdict.where) <= 60 else verdict.where[:57] + "..."
        yield (
            f"{state:<8} {verdict.rule:<46} {verdict.value:10.4g}   {word} {verdict.bound:.3g}"
            f"{where and '   ' + where}"
        )
    failed = sum(not verdict.is_met for verdict in verdicts)
    if posterior.n_runs == 1:
        yield "A single run: whether another one would agree is not known."
    if failed:
        yield f"Not converged: {failed} of {len(verdicts)} rules are not met; run it longer."
    elif posterior.is_converged:
        yield "Converged: all rules are met."


# Bayes factors.


def _compare(options: SummarizeOptions, samples: Sequence[str], reporter: Reporter) -> None:
    """Marginal likelihoods of several models, side by side."""
    workspace = Workspace.of(options.prefix, samples[0])
    with writing("summarize", options, workspace, [EVIDENCE], reporter) as write:
        known = [_evidence(sample) for sample in samples]
        rows = compared(known)
        reporter.say("\n".join(_evidence_lines(rows)))
        text = _tsv([list(rows[0]._fields), *(list(map(str, row)) for row in rows)])
        write({EVIDENCE: text}, {"models": [row._asdict() for row in rows]})


def _evidence(sample: str) -> Evidence:
    found = read_evidence(sample)
    if found is None:
        hint = (
            "mltree sample finds it, MrBayes' ss too; runs of one analysis are given as files, "
            "such as a.run1.t b.run1.t"
        )
        raise InputError(
            f"no marginal likelihood in {sample}.sample.json or {sample}.ss", hint=hint
        )
    return found


class Compared(NamedTuple):
    """A model beside the best one of several."""

    model: str
    lnz: float
    lnz_error: float
    ln_bayes_factor: float
    """Against the best model: zero or less."""
    error: float
    """Standard error of the Bayes factor's log."""
    probability: float
    """Posterior probability of the model, all being as probable before."""


def compared(models: Sequence[Evidence]) -> list[Compared]:
    """Models by their marginal likelihoods, the best one first."""
    ordered = sorted(models, key=lambda model: -model.lnz)
    best = ordered[0]
    weights = [math.exp(model.lnz - best.lnz) for model in ordered]
    return [
        Compared(
            model.name, model.lnz, model.error, model.lnz - best.lnz,
            0.0 if model is best else math.hypot(model.error, best.error), weight / sum(weights),
        )
        for model, weight in zip(ordered, weights, strict=True)
    ]  # fmt: skip


def _evidence_lines(rows: Sequence[Compared]) -> Iterator[str]:
    width = max(len("Model"), *(len(row.model) for row in rows))
    heads = f"{'ln Z':>12} {'s.e.':>8} {'ln BF':>10} {'s.e.':>8} {'probability':>12}"
    yield f"{'Model':<{width}} {heads}"
    for row in rows:
        yield (
            f"{row.model:<{width}} {row.lnz:12.3f} {row.lnz_error:8.3f} "
            f"{row.ln_bayes_factor:10.3f} {row.error:8.3f} {row.probability:12.4g}"
        )


# ArviZ.


def library_of_arviz() -> Any:
    """The module. Raises: ImportError where it is not installed."""
    with catch_warnings():
        simplefilter("ignore")  # what is to come in its next versions
        return library("arviz", "'mltree[sample]'")


def _expect_arviz() -> None:
    try:
        library_of_arviz()
    except ImportError as error:
        raise InputError(f"--netcdf: {error}") from None


def _inference_data(posterior: Posterior) -> Any:
    """Parameters as ``posterior``; lnL and statistics of the trees as ``sample_stats``."""
    arviz = library_of_arviz()
    samples = {name.replace("/", "_"): values for name, values in posterior.parameters.items()}
    of_trees = _tree_statistics(posterior)
    stats = of_trees if samples else {}
    if (lnl := next((name for name in LNL if name in samples), None)) is not None:
        stats = {"lp": samples[lnl], **stats}
    return arviz.from_dict(posterior=samples or of_trees, sample_stats=stats or None)


def _tree_statistics(posterior: Posterior) -> dict[str, Any]:
    """Statistics of each tree, [R, n]; none where there are more or fewer trees than values."""
    n = posterior.values.shape[2]
    if posterior.table is None or (n and n != posterior.n_trees):
        return {}
    found: dict[str, Any] = {
        "log_clade_credibility": posterior.credibilities,
        "topology": posterior.topologies.of_tree.reshape(posterior.n_runs, -1),
    }
    return found | ({"tree_length": posterior.tree_lengths} if posterior.has_lengths else {})


def _write_netcdf(workspace: Workspace, summary: PosteriorSummary) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "sample.nc")
        summary.to_netcdf(path)
        write_together({workspace.path(NETCDF): path.read_bytes()})
