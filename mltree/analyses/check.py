"""Checks of data and devices, without files: ``mltree check``, ``devices`` and ``compare``."""

from __future__ import annotations

import math
import timeit
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mltree.analyses.options import CheckOptions, CompareOptions, DevicesOptions
from mltree.data.alignments import Source
from mltree.data.alphabet import DNA
from mltree.data.partitions import read_partitioned
from mltree.data.parts import read_partitions
from mltree.data.patterns import Patterns
from mltree.device.discovery import REFERENCE, DeviceInfo, choose_devices, find_devices, no_device
from mltree.device.layout_choice import Calibration, load, notices
from mltree.device.speed import build_all, calibrate
from mltree.fit.settings import BranchSettings
from mltree.models.grammar import parse_model
from mltree.models.partitioned import (
    PartitionModel,
    in_our_words,
    model_alphabet,
    model_names,
    part_models,
)
from mltree.program.cases import Case
from mltree.report import tables
from mltree.report.lines import describe
from mltree.runs.calls import Call, in_python, taking
from mltree.runs.engines import Engines, Resources, Workload
from mltree.runs.problem import (
    Problem,
    chi_square_tail,
    is_choice,
    load_problem,
    part_notices,
    read_problem,
    refuse_gap_taxa,
    terms_of_choice,
)
from mltree.runs.results import Table
from mltree.runs.trees import check_possible, read_tree, search_workload
from mltree.system.arrays import Float64
from mltree.system.errors import DeviceError, MltreeError, NumericalError
from mltree.system.events import (
    AlignmentChecked,
    AlignmentSummary,
    Busy,
    Emit,
    EnginesCompared,
    EngineScore,
    Notice,
    PartFacts,
    PartitionsLoaded,
)
from mltree.system.values import Value
from mltree.tree.topology import Tree, random_topology

if TYPE_CHECKING:
    from mltree.report.progress import Reporter


TOLERANCE, MIXED_TOLERANCE = 1e-9, 1e-5
"""Relative difference in lnL between two fp64 engines, rounding over some 1e4 patterns, with room
(the tests ask for the same); and with fp32 likelihoods."""

OK = "ok"
"""How the verdict on a device begins that computes what the reference does."""

REPETITIONS = 5
"""Timed evaluations; the shortest counts."""

AVX_WIDTH, NARROW_ON_GPU = 1, 8
"""Patterns of a narrow block: VW of RAxML's AVX layout; on a GPU, whose work-items need neighbours
to read with."""


def run_check(options: CheckOptions, reporter: Reporter) -> None:
    """Show an alignment, or its parts.

    Raises: MltreeError: a search would refuse it; facts that can be shown are shown before.
    """
    problem = _read(options, options.alignment)
    if (facts := _facts_of_parts(options, problem, options.alignment, reporter)) is not None:
        reporter(facts)
        values = asdict(facts)
        if options.symmetry:
            data = problem.data
            assert data is not None, "it has parts"
            parts = {part.name: data.patterns(n) for n, part in enumerate(data.parts)}
            values["symmetry"] = _show_symmetry(parts, reporter)
        reporter.finish("check", values)
        return
    checked, no_memory = _facts_of_alignment(options, problem)
    reporter(checked)
    line = no_memory if checked.memory is None else describe(checked.memory)
    reporter.say(f"Memory       {line.removeprefix('memory: ')}")
    values = {
        **asdict(checked.summary),
        "warnings": tables.warning_lines(checked.summary),
        "model": problem.model.text,
        "memory": None if checked.memory is None else asdict(checked.memory),
    }
    if options.symmetry:
        values["symmetry"] = _show_symmetry({"all": problem.patterns}, reporter)
    refuse_gap_taxa(problem)
    reporter.finish("check", values)


def _read(options: CheckOptions, source: Source) -> Problem:
    """The data under their model. Raises: DeviceError: there is no such device."""
    chooses = is_choice(options.model)
    model = terms_of_choice(options.model) if chooses else options.model
    problem = read_problem(
        source, model, options.data_type, partitions=options.partitions, chooses=chooses,
        site_rates=True,
    )  # fmt: skip
    if options.device is not None:
        choose_devices(options.device)
    return problem


def _facts_of_parts(
    options: CheckOptions, problem: Problem, source: Source, emit: Emit
) -> PartitionsLoaded | None:
    """The parts of an alignment: what each is and holds, and its model; None where it has none."""
    if options.partitions is None and problem.summary is not None:
        return None
    partitions = options.partitions or options.model
    model = options.model if options.partitions and not is_choice(options.model) else None
    assert partitions is not None, "one of them names the parts"
    scheme = in_our_words(read_partitions(partitions))
    data = read_partitioned(source, scheme, model_alphabet, options.data_type)
    models = part_models(data, model)
    data = data.ascertained([model.ascertainment for model in models])
    for text in part_notices(data):
        emit(Notice(text))
    patterns_of = map(data.patterns, range(len(data.parts)))
    facts = tuple(
        PartFacts(
            name=part.name,
            data_type=patterns.alphabet.name,
            model=name,
            sites=patterns.n_sites,
            patterns=patterns.n_patterns,
            gap_share=patterns.gap_share,
            taxa=int(has_data.sum()),
        )
        for part, name, patterns, has_data in zip(
            data.parts, model_names(data, model), patterns_of, data.has_data, strict=True
        )
    )
    return PartitionsLoaded(partitions, len(data.taxa), data.n_sites, facts)


def _facts_of_alignment(options: CheckOptions, problem: Problem) -> tuple[AlignmentChecked, str]:
    """Everything worth knowing about an alignment before a search; why no memory is known."""
    assert problem.summary is not None, "it has no parts"
    resources, memory, why = Resources(device=options.device), None, "no device's"
    try:
        memory = Engines(resources, search_workload(problem, resources=resources)).memory
    except DeviceError as error:
        if options.device is not None:
            raise
        why = f"unknown: {error.message}"
    return AlignmentChecked(problem.summary, memory), why


@dataclass(frozen=True, eq=False, repr=False)
class AlignmentCheck(Table):
    """An alignment looked over before a search: a row a taxon, or a part."""

    facts: AlignmentChecked | PartitionsLoaded = field(repr=False)
    """All facts, by their names; of parts where there are any."""

    @property
    def taxa(self) -> int:
        """Number of taxa, T."""
        return self._facts_of_data.taxa

    @property
    def sites(self) -> int:
        """Number of sites, of all parts together."""
        return self._facts_of_data.sites

    @property
    def patterns(self) -> int:
        """Number of distinct columns, of all parts together."""
        facts = self.facts
        if isinstance(facts, PartitionsLoaded):
            return sum(part.patterns for part in facts.parts)
        return facts.summary.patterns

    @property
    def data_type(self) -> str:
        """Type of the data, ``DNA`` or ``AA``; of parts all types, with plus signs between."""
        facts = self.facts
        if isinstance(facts, PartitionsLoaded):
            return " + ".join(dict.fromkeys(part.data_type for part in facts.parts))
        return facts.summary.datatype

    @property
    def warnings(self) -> list[str]:
        """A line for each thing to look at; empty where there is none, and of parts."""
        facts = self.facts
        if isinstance(facts, PartitionsLoaded):
            return []
        return [in_python(line, CheckOptions) for line in tables.warning_lines(facts.summary)]

    @property
    def memory(self) -> int | None:
        """Bytes that a search takes on the device; None where that is not known, and of parts."""
        planned = None if isinstance(self.facts, PartitionsLoaded) else self.facts.memory
        return None if planned is None else planned.on_devices

    def columns(self) -> dict[str, Sequence[Any]]:
        """Shares of gaps, and p-values of the composition test, of taxa; or the facts of parts."""
        facts = self.facts
        if isinstance(facts, PartitionsLoaded):
            names = [name.name for name in fields(PartFacts)]
            return {name: [getattr(part, name) for part in facts.parts] for name in names}
        summary = facts.summary
        return {
            "taxon": summary.names,
            "gap_share": summary.taxon_gap_shares,
            "composition_p": summary.composition_p_values,
        }

    def to_dict(self) -> dict[str, Any]:
        """All facts as plain values, under the names of ``mltree check --json``."""
        return asdict(self.facts)

    @property
    def _facts_of_data(self) -> AlignmentSummary | PartitionsLoaded:
        return self.facts if isinstance(self.facts, PartitionsLoaded) else self.facts.summary

    def _facts(self) -> dict[str, str]:
        size = f"{self.taxa:,} taxa × {self.sites:,} sites, {self.patterns:,} patterns"
        facts = {"data": f"{self.data_type}, {size}"}
        if not isinstance(self.facts, PartitionsLoaded):
            facts["gaps"] = f"{self.facts.summary.gap_share:.1%}"
            facts["informative sites"] = f"{self.facts.summary.informative_sites:,}"
        return facts | ({"warnings": "; ".join(self.warnings)} if self.warnings else {})

    def __str__(self) -> str:
        return "\n".join(f"{name}: {text}" for name, text in self._facts().items())

    def __repr__(self) -> str:
        return f"AlignmentCheck({self._facts()['data']}, {len(self.warnings)} warnings)"


@taking(CheckOptions, "model")
def check(options: CheckOptions, source: Source, call: Call) -> AlignmentCheck:
    """Look an alignment over before a search, as ``mltree check`` does."""
    problem = _read(options, source)
    if (parts := _facts_of_parts(options, problem, source, call)) is not None:
        return AlignmentCheck(parts)
    refuse_gap_taxa(problem)
    return AlignmentCheck(_facts_of_alignment(options, problem)[0])


# Matched-pair tests of symmetry: models take the process of evolution to be stationary, reversible
# and alike on all branches. Then any two sequences have as many sites with i here and j there as
# the other way round.
#
# With n_ij sites at which one sequence has state i and the other j, and sums over states n_i. and
# n_.i (Bowker 1948, Stuart 1955, Ababneh et al. 2006):
#
#     symmetry   S_B = sum over i < j of (n_ij - n_ji)^2 / (n_ij + n_ji), a degree of freedom a term
#     marginal   S_S = u^T V^-1 u,  u_i = n_i. - n_.i,  V_ii = n_i. + n_.i - 2 n_ii,
#                V_ij = -(n_ij + n_ji), of all states but one
#     internal   S_B - S_S, with the difference of their degrees of freedom
#
# Pairs are not independent; the most divergent one stands for all (Naser-Khdour et al. 2019).

SYMMETRY_TESTS = ("symmetry", "marginal", "internal")

REJECTED = 0.05
"""P-value below which a pair counts as asymmetric: IQ-TREE's."""


class SymmetryTests(Value):
    """Matched-pair tests of the sequences of a part."""

    p_values: Float64
    """f64 [3, T (T - 1) / 2]: of `SYMMETRY_TESTS`, for each pair; NaN where there is none."""
    pair: tuple[str, str]
    """The two taxa that differ at the largest share of their sites."""
    divergent: int
    """Number of that pair."""


def symmetry_tests(patterns: Patterns) -> SymmetryTests:
    """Test every pair of sequences at the sites at which both have one state."""
    tips, states = patterns.n_tips, patterns.alphabet.n_states
    state_of = np.full(patterns.alphabet.n_codes, states)
    state_of[patterns.alphabet.state_codes] = np.arange(states)
    sequences, bins = state_of[patterns.codes], states + 1
    p_values, shares, pairs = [], [], []
    for one in range(tips - 1):
        others = sequences[one + 1 :] + bins * sequences[one]
        table = others + bins**2 * np.arange(len(others))[:, None]
        weights = np.broadcast_to(patterns.weights, table.shape).ravel()
        counts = np.bincount(table.ravel(), weights, minlength=len(others) * bins**2)
        counts = counts.reshape(-1, bins, bins)[:, :-1, :-1]
        for other, of_pair in enumerate(counts, one + 1):
            p_values.append(_symmetry_p_values(of_pair))
            total = of_pair.sum()
            shares.append(1.0 - np.trace(of_pair) / total if total else 0.0)
            pairs.append((patterns.taxa[one], patterns.taxa[other]))
    divergent = int(np.argmax(shares))
    return SymmetryTests(np.array(p_values).T, pairs[divergent], divergent)


def _symmetry_p_values(counts: Float64) -> tuple[float, float, float]:
    """P-values of `SYMMETRY_TESTS` from counts f64 [S, S]."""
    both, difference = counts + counts.T, counts - counts.T
    above = np.triu(both > 0.0, 1)
    freedom, marginal_freedom = int(above.sum()), len(counts) - 1
    bowker = float((difference[above] ** 2 / both[above]).sum())
    u = difference.sum(axis=1)[:-1]
    variance = (np.diag(both.sum(axis=1)) - both)[:-1, :-1]
    symmetry = chi_square_tail(bowker, freedom) if freedom else math.nan
    if np.linalg.matrix_rank(variance) < marginal_freedom:
        return symmetry, math.nan, math.nan
    stuart = float(u @ np.linalg.solve(variance, u))
    internal = math.nan
    if freedom > marginal_freedom:
        internal = chi_square_tail(bowker - stuart, freedom - marginal_freedom)
    return symmetry, chi_square_tail(stuart, marginal_freedom), internal


def _show_symmetry(parts: Mapping[str, Patterns], reporter: Reporter) -> list[dict[str, Any]]:
    """Show the tests of every part, a line each; returns them for JSON."""
    width = max(map(len, parts))
    tips = next(iter(parts.values())).n_tips
    counts = 2 * len(f"{tips * (tips - 1) // 2:,}") + len("  of ")
    head = "".join(f"{test:>{counts + 9}}" for test in SYMMETRY_TESTS)
    title = f"pairs rejected with p < {REJECTED}, and p of the most divergent pair"
    reporter.say(f"Symmetry: {title}")
    reporter.say(f"{'':{width}}{head}  most divergent pair")
    rows: list[dict[str, Any]] = []
    for name, patterns in parts.items():
        tested = symmetry_tests(patterns)
        row: dict[str, Any] = {"part": name, "pair": tested.pair}
        cells = ""
        for test, p_values in zip(SYMMETRY_TESTS, tested.p_values, strict=True):
            known, p = int(np.isfinite(p_values).sum()), float(p_values[tested.divergent])
            rejected = int(np.count_nonzero(p_values < REJECTED))
            row[test] = {"rejected": rejected, "pairs": known, "p": p}
            cells += f"{f'{rejected:,} of {known:,}':>{counts}}{p:>9.3g}"
        reporter.say(f"{name:{width}}{cells}  {', '.join(tested.pair)}")
        rows.append(row)
    return rows


def run_devices(options: DevicesOptions, reporter: Reporter) -> None:
    """Every device with what matters, and whether it computes rightly.

    Measures what layouts suit the device where nobody has, or where that is asked for.
    """
    devices = find_devices()
    if not devices:
        raise no_device()
    for text in notices(devices):
        reporter(Notice(text))
    due = [device for device in devices if options.calibrate or not load(device).layouts]

    def tell(text: str) -> None:
        reporter(Busy(text))

    build_all(due, tell)
    listed = []
    for device in devices:
        verdict, known = self_test(device), load(device)
        if not is_ok(verdict):
            known = Calibration()
        elif device in due:
            known = calibrate(device, tell)
        reporter.say("\n".join(tables.device_lines(device, verdict, known)))
        names = [field.name for field in fields(device) if field.name != "handle"]
        facts = {name: getattr(device, name) for name in names}
        listed.append({**facts, "self_test": verdict, "copy_bytes": known.copy_bytes})
    reporter.finish("devices", {"devices": listed})


def self_test(device: DeviceInfo) -> str:
    """Compare a device with the reference: ``ok (VW=8 fp64)``, or what failed."""
    rng = np.random.default_rng(1)
    patterns = _random_patterns(rng)
    tree = random_topology(patterns.n_tips, rng)
    model = parse_model("GTR{1/3/1/1/4/1}+FU{0.3/0.2/0.2/0.3}+G4{0.5}", DNA)
    case, bounds = Case((model.arrays(),)), BranchSettings().bounds(patterns.n_sites)
    work = Workload.of_patterns(patterns, model.arrays().n_categories, bounds)
    try:
        engines = Engines(Resources(device=str(device.index)), work)
        lnl, d1, d2 = engines.likelihood.derivatives(tree, case)
    except MltreeError as error:
        return error.message
    reference = Engines(Resources(device=REFERENCE), work).likelihood
    expected, e1, e2 = reference.derivatives(tree, case)
    is_same = is_close(lnl, expected, mixed=not engines.is_exact)
    if engines.is_exact:
        is_same = is_same and np.allclose(d1, e1) and np.allclose(d2, e2)
    if not is_same:
        return f"wrong: lnL {lnl:.6f}, not {expected:.6f}"
    return f"{OK} ({engines.layouts[0]})"


def is_ok(verdict: str) -> bool:
    """True if a self-test found nothing wrong."""
    return verdict.startswith(f"{OK} ")


def _random_patterns(rng: np.random.Generator) -> Patterns:
    """Ten taxa, 101 patterns (so that the last block is never full), ambiguities and gaps too."""
    tips, patterns = 10, 101
    return Patterns(
        taxa=tuple(f"t{tip}" for tip in range(tips)),
        codes=rng.integers(1, 16, (tips, patterns)).astype(np.uint8),
        weights=rng.integers(1, 4, patterns).astype(np.float64),
        site_pattern=np.arange(patterns, dtype=np.int32),
        alphabet=DNA,
    )


def run_compare(options: CompareOptions, reporter: Reporter) -> None:
    """The same likelihood from every engine, side by side.

    Raises:
        NumericalError: engines disagree by more than rounding explains.
    """
    mixed = options.precision == "mixed"
    problem = load_problem(options.alignment, options.model, reporter, options.data_type)
    tree = read_tree(options.tree, problem, reporter)
    check_possible(tree, problem.groups)
    for text in notices(find_devices()):
        reporter(Notice(text))
    scores = []
    for score in score_everywhere(problem.patterns, tree, problem.model, mixed):
        scores.append(score)
        if score.problem:
            reporter(Notice(f"{score.engine}: {score.problem}"))
    reporter(EnginesCompared(tuple(scores)))
    reference, *others = scores
    wrong = [s for s in others if s.problem or not is_close(s.lnl, reference.lnl, mixed)]
    if wrong:
        names = ", ".join(score.engine for score in wrong)
        raise NumericalError(f"not equal to the reference: {names}", hint="see the table")
    reporter.finish("compare", {"scores": [asdict(score) for score in scores]})


def score_everywhere(
    patterns: Patterns, tree: Tree, model: PartitionModel, mixed: bool
) -> Iterator[EngineScore]:
    """The reference's score, then every device's in a narrow layout and in that of a search."""
    bounds = BranchSettings().bounds(patterns.n_sites)
    work = Workload.of_patterns(patterns, max(model.categories), bounds, systems=max(model.systems))
    score = partial(_score, tree, Case(model.arrays()), work)
    yield score("NumPy reference", Resources(device=REFERENCE))
    for device in find_devices():
        for vw in (AVX_WIDTH if device.is_cpu else NARROW_ON_GPU, None):
            resources = Resources(device=str(device.index), mixed=mixed, vw=vw)
            yield score(f"{device.name} VW={vw or 'native'}", resources)


def _score(tree: Tree, case: Case, work: Workload, name: str, resources: Resources) -> EngineScore:
    """Log-likelihood and time of an engine, called ``name`` where it cannot even be opened."""
    try:
        likelihood = Engines(resources, work).likelihood
        compute = partial(likelihood.log_likelihoods, [tree], [case])
        lnl = float(compute()[0])
        seconds = min(timeit.repeat(compute, number=1, repeat=REPETITIONS))
    except MltreeError as error:
        return EngineScore(name, float("nan"), 0.0, error.message)
    return EngineScore(likelihood.engine.name, lnl, seconds)


def is_close(lnl: float, reference: float, mixed: bool) -> bool:
    """True if two lnL differ by no more than rounding explains."""
    tolerance = MIXED_TOLERANCE if mixed else TOLERANCE
    return abs(lnl - reference) <= tolerance * abs(reference)
