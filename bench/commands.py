"""What each benchmark takes on the command line, and the run that it becomes."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from bench import (
    cases,
    golden,
    kernels,
    precision,
    quality,
    reach,
    render,
    sample,
    scale,
    table1,
    unifrac,
)
from bench.contenders import Contender, contenders
from bench.data import PAPER_SIZES, Source, sha256
from bench.provenance import cores, provenance
from bench.race import Race
from bench.results import FOLDER, Run, load
from bench.rivals import Rival, find_rivals

__all__ = ["main"]

CACHE = Path.home() / ".cache" / "mltree-bench"
"""Where simulated alignments are kept."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark that the arguments name."""
    options = _parser().parse_args(arguments)
    options.run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.set_defaults(run=_table1)
    benches = parser.add_subparsers(metavar="BENCH", required=True)
    _add_table1(benches)
    _add_search(benches)
    _add_analyses(benches)
    _add_kernels(benches)
    _add_cases(benches)
    _add_scale(benches)
    _add_reach(benches)
    _add_unifrac(benches)
    _add_precision(benches)
    _add_sample(benches)
    _add_golden(benches)
    _add_judge(benches)
    _add_merge(benches)
    benches.add_parser("render", help="results to Markdown, plots and README").set_defaults(
        run=_render
    )
    return parser


Benches = argparse._SubParsersAction


def _bench(
    benches: Benches[argparse.ArgumentParser], name: str, about: str
) -> argparse.ArgumentParser:
    """A subcommand with what they all have."""
    parser = benches.add_parser(name, help=about, description=about)
    add = parser.add_argument
    add("--smoke", action="store_true", help="a run of seconds that only shows that it works")
    add("--out", type=Path, metavar="FILE", help="result file (default: bench/results/BENCH.json)")
    add("--label", help="result file bench/results/BENCH-LABEL.json")
    add("--append", action="store_true", help="add to the result file; same rows are replaced")
    add("--remark", metavar="TEXT", help="what a reader has to know; stored and shown")
    add("--commit", help="commit to store (default: MLTREE_COMMIT, then git)")
    add("--data", type=Path, metavar="FOLDER", help="alignments to use before the shipped ones")
    add("--cache", type=Path, default=CACHE, help="folder of simulated alignments")
    add("--seed", type=int, default=1)
    add("--repetitions", type=int, default=None, help="runs of everything; medians are stored")
    return parser


def _race_options(parser: argparse.ArgumentParser) -> None:
    """What benchmarks of whole searches have beside that."""
    add = parser.add_argument
    add("--timeout", type=float, default=600.0, help="seconds for one process (default 600)")
    add("--start", choices=("parsimony", "random", "own"), default="parsimony",
        help="the tree that all start from; own: each program makes its own")  # fmt: skip
    add("--rival", action="append", default=[], metavar="NAME=FILE", help="a program to run")
    add("--rivals", metavar="NAMES", help="only these, comma-separated; 'none' for none")
    add("--threads", type=_numbers, help="threads of CPU programs (default: one, and all cores)")
    add("--only", metavar="TEXT", help="only mltree's contenders whose name contains TEXT")
    add("--no-mltree", action="store_true", help="rivals only")
    add("--no-judge", action="store_true", help="leave the judging for `bench judge`")


def _add_table1(benches: Benches[argparse.ArgumentParser]) -> None:
    parser = _bench(benches, "table1", "the PLL paper's Table I on this machine")
    _race_options(parser)
    parser.add_argument("--sizes", type=_numbers, default=PAPER_SIZES, help="patterns: 1024,2048")
    parser.set_defaults(run=_table1)


def _add_search(benches: Benches[argparse.ArgumentParser]) -> None:
    parser = _bench(benches, "search", "quality and time of searches against other programs")
    _race_options(parser)
    add = parser.add_argument
    add("--sets", type=_words, default=quality.SHIPPED, help="alignments by name, comma-separated")
    add("--seeds", type=_numbers, default=None, help="seeds, comma-separated (default: --seed)")
    add("--presets", type=_words, default=("fast", "default"))
    add("--jobs", type=int, default=1, help="rivals side by side; more than one: no wall times")
    add("--within", type=float, default=float("inf"), help="seconds for the whole run")
    add("--resume", action="store_true", help="add what the result file still lacks")
    parser.set_defaults(run=_search)


def _add_analyses(benches: Benches[argparse.ArgumentParser]) -> None:
    about = "whole analyses on one core beside IQ-TREE: model, tree, SH-aLRT, ultrafast bootstrap"
    parser = _bench(benches, "analyses", about)
    add = parser.add_argument
    add("--sets", type=_words, default=quality.ANALYSED, help="alignments by name, comma-separated")
    add("--iqtree", required=True, metavar="FILE",
        help="IQ-TREE's program, or the Python of an environment with piqtree")  # fmt: skip
    add("--timeout", type=float, default=3600.0, help="seconds for one process (default 3600)")
    parser.set_defaults(run=_analyses)


def _add_kernels(benches: Benches[argparse.ArgumentParser]) -> None:
    parser = _bench(benches, "kernels", "every likelihood operation against the device's limits")
    add = parser.add_argument
    add("--cases", type=_sizes, default=kernels.SIZES, help="KIND:TAXA:PATTERNS,... (DNA:15:1024)")
    add("--precisions", type=_words, default=("double", "mixed"))
    add("--only", metavar="TEXT", help="only contenders whose name contains TEXT")
    parser.set_defaults(run=_kernels)


def _add_cases(benches: Benches[argparse.ArgumentParser]) -> None:
    parser = _bench(benches, "cases", "many small problems in one launch")
    parser.add_argument("--only", metavar="TEXT", help="only contenders whose name contains TEXT")
    parser.set_defaults(run=_cases)


def _add_scale(benches: Benches[argparse.ArgumentParser]) -> None:
    parser = _bench(benches, "scale", "cost as taxa, patterns and starts grow")
    parser.add_argument("--axes", type=_words, default=tuple(scale.AXES))
    parser.add_argument("--only", metavar="TEXT", help="only contenders whose name contains TEXT")
    parser.set_defaults(run=_scale)


def _add_reach(benches: Benches[argparse.ArgumentParser]) -> None:
    parser = _bench(benches, "reach", "whole runs as loci, taxa, sites and ranks grow")
    for axis, points in reach.AXES.items():
        parser.add_argument(f"--{axis}", type=_points, default=points, help="SIZE:RANKS,...")
    parser.add_argument("--mpi", action="store_true", help="ranks by mpiexec, not by --ranks")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for one run")
    parser.set_defaults(run=_reach)


def _add_unifrac(benches: Benches[argparse.ArgumentParser]) -> None:
    parser = _bench(benches, "unifrac", "UniFrac on tables of published shapes, beside ssu")
    add = parser.add_argument
    add("--shapes", type=_words, default=("1000",),
        help=f"by samples: {','.join(unifrac.SHAPES)} (default 1000)")  # fmt: skip
    add("--table", metavar="FILE", help="a table (BIOM 2.1) rather than simulated ones")
    add("--tree", metavar="FILE", help="and its tree")
    add("--metrics", type=_words, default=("unweighted", "weighted_normalized"))
    add("--precisions", type=_words, default=("double",), help="double,single")
    add("--matrix", default="hdf5", help="hdf5, npy or none")
    add("--ssu", metavar="FILE", help="program to run beside")
    add("--threads", type=int, help="threads of both programs (default: all)")
    add("--device", help="device of mltree")
    add("--timeout", type=float, default=3600.0, help="seconds for one process (default 3600)")
    parser.set_defaults(run=_unifrac)


def _add_precision(benches: Benches[argparse.ArgumentParser]) -> None:
    parser = _bench(benches, "precision", "mixed precision against fp64")
    add = parser.add_argument
    add("--sets", type=_words, default=("primates", "laurasiatherian", "proteins"))
    add("--taxa", type=_numbers, default=(1000, 5000), help="also simulated sets of so many taxa")
    add("--search-up-to", type=int, default=200, help="search sets of at most so many taxa")
    add("--timeout", type=float, default=600.0)
    parser.set_defaults(run=_precision)


def _add_sample(benches: Benches[argparse.ArgumentParser]) -> None:
    parser = _bench(benches, "sample", "Bayesian samples to agreement and to ESS, beside MrBayes")
    parser.add_argument("--sets", type=_words, default=tuple(sample.SETS), help="alignments")
    parser.add_argument("--cpu", type=float, default=600.0, help="CPU seconds of each program")
    parser.set_defaults(run=_sample)


def _add_golden(benches: Benches[argparse.ArgumentParser]) -> None:
    parser = _bench(benches, "golden", "log-likelihoods that RAxML-NG and IQ-TREE agree on")
    parser.set_defaults(run=_golden)


def _sizes(text: str) -> tuple[kernels.Size, ...]:
    parts = [case.split(":") for case in text.split(",")]
    return tuple(kernels.Size(kind, int(taxa), int(size)) for kind, taxa, size in parts)


def _add_judge(benches: Benches[argparse.ArgumentParser]) -> None:
    parser = _bench(benches, "judge", "judge the trees of a run that was made with --no-judge")
    parser.set_defaults(start="own")
    parser.add_argument("result", type=Path, metavar="FILE", help="the run's result file")
    parser.set_defaults(run=_judge_stored)


def _add_merge(benches: Benches[argparse.ArgumentParser]) -> None:
    parser = benches.add_parser("merge", help="several results of one benchmark to one")
    parser.add_argument("results", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.set_defaults(run=_merge)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _run(bench: str, options: argparse.Namespace, repetitions: int) -> Run:
    name = f"{bench}-{options.label}" if options.label else bench
    path = options.out or (None if options.smoke else FOLDER / f"{name}.json")
    record = provenance(options.commit, options.seed, repetitions)
    run = Run(bench, record, {"smoke": options.smoke}, path=path)
    if options.remark:
        run.settings["remark"] = options.remark
    if (options.append or getattr(options, "resume", False)) and path is not None and path.exists():
        run.go_on_from(load(path))
    return run


def _source(options: argparse.Namespace) -> Source:
    return Source(options.cache, options.data, options.seed, getattr(options, "start", "parsimony"))


def _rivals(options: argparse.Namespace) -> list[Rival]:
    if options.rivals == "none":
        return []
    return find_rivals(options.rival, options.rivals.split(",") if options.rivals else None)


def _contenders(options: argparse.Namespace) -> list[Contender]:
    if options.no_mltree:
        return []
    text, threads = (options.only or "").lower(), (None, *_threads(options))
    return [
        entry for entry in contenders() if text in entry.name.lower() and entry.threads in threads
    ]


def _threads(options: argparse.Namespace) -> tuple[int, ...]:
    return options.threads or tuple(dict.fromkeys((1, cores())))


def _judge(options: argparse.Namespace) -> Contender | None:
    """Who optimises for the judge: the machine's first device, in fp64."""
    return None if options.no_judge else Contender("judge", "0")


def _table1(options: argparse.Namespace) -> None:
    repetitions = options.repetitions or (1 if options.smoke else 3)
    race = Race(repetitions, options.timeout, options.seed, "fast")
    sizes = options.sizes[:1] if options.smoke else options.sizes
    run = _run("table1", options, repetitions)
    run.settings |= {"preset": "fast", "timeout_s": options.timeout, "start": options.start}
    run.settings["origin"] = _source(options).paper(sizes[0]).origin
    table1.measure(
        run,
        race,
        _source(options),
        sizes,
        _contenders(options),
        _rivals(options),
        _threads(options),
        _judge(options),
    )
    run.save()


def _analyses(options: argparse.Namespace) -> None:
    names = ("primates",) if options.smoke else options.sets
    source = Source(options.cache, options.data, options.seed, "own")
    datasets = [source.dataset(name) for name in names]
    run = _run("analyses", options, 1)
    alignments = run.settings.setdefault("alignments", {})
    for dataset in datasets:
        digest = sha256(dataset.alignment)
        alignments[dataset.name] = {"origin": dataset.origin, "sha256": digest}
    iqtree = shutil.which(options.iqtree) or options.iqtree
    quality.measure_analyses(run, datasets, iqtree, options.seed, options.timeout)
    run.save()


def _search(options: argparse.Namespace) -> None:
    who = [entry for entry in _contenders(options) if entry.vw is None]
    repetitions = options.repetitions or 1
    race = Race(repetitions, options.timeout, options.seed, "fast", options.jobs)
    source = _source(options)
    names = ("primates",) if options.smoke else options.sets
    presets = ("fast",) if options.smoke else options.presets
    run = _run("search", options, repetitions)
    run.settings |= {"timeout_s": options.timeout, "start": options.start}
    quality.measure(
        run,
        race,
        [source.dataset(name) for name in names],
        options.seeds or (options.seed,),
        quality.Field(presets, who, _rivals(options), _threads(options)),
        _judge(options),
        within=options.within,
        resume=options.resume,
    )
    run.save()


def _kernels(options: argparse.Namespace) -> None:
    repetitions = options.repetitions or (2 if options.smoke else 11)
    run = _run("kernels", options, repetitions)
    who = _all_cores(options, options.precisions)
    sizes = kernels.SMOKE if options.smoke else options.cases
    kernels.measure(run, sizes, who, repetitions, options.seed)
    run.save()


def _cases(options: argparse.Namespace) -> None:
    repetitions = options.repetitions or (1 if options.smoke else 5)
    run = _run("cases", options, repetitions)
    who = _all_cores(options, ("double",))
    problems = cases.SMOKE if options.smoke else cases.CASES
    cases.measure(run, problems, who, repetitions, options.seed)
    run.save()


def _all_cores(options: argparse.Namespace, precisions: Sequence[str]) -> list[Contender]:
    """Contenders for timings inside this process: GPUs, and CPUs with all cores."""
    text, threads = (options.only or "").lower(), {None, cores()}
    return [
        entry
        for precision in precisions
        for entry in contenders(precision)
        if text in entry.name.lower() and entry.threads in threads
    ]


def _scale(options: argparse.Namespace) -> None:
    repetitions = options.repetitions or (1 if options.smoke else 5)
    run = _run("scale", options, repetitions)
    axes = scale.SMOKE if options.smoke else {axis: scale.AXES[axis] for axis in options.axes}
    scale.measure(run, axes, _all_cores(options, ("double",)), repetitions, options.seed)
    run.save()


def _reach(options: argparse.Namespace) -> None:
    repetitions = options.repetitions or (1 if options.smoke else 3)
    run = _run("reach", options, repetitions)
    axes = reach.SMOKE if options.smoke else {axis: getattr(options, axis) for axis in reach.AXES}
    reach.measure(run, axes, repetitions, options.timeout, options.seed, options.mpi)
    run.save()


def _points(text: str) -> tuple[tuple[int, int], ...]:
    pairs = [point.split(":") for point in text.split(",") if point]
    return tuple((int(size), int(ranks)) for size, ranks in pairs)


def _unifrac(options: argparse.Namespace) -> None:
    repetitions = options.repetitions or (1 if options.smoke else 3)
    run = _run("unifrac", options, repetitions)
    shapes = [unifrac.SMOKE] if options.smoke else [unifrac.SHAPES[one] for one in options.shapes]
    if options.table:
        data = [(Path(options.table).name, Path(options.table), Path(options.tree))]
    else:
        data = [unifrac.simulated(options.cache, *shape, options.seed) for shape in shapes]
    unifrac.measure(
        run, data, options.metrics, precisions=options.precisions, matrix=options.matrix,
        ssu=options.ssu, threads=options.threads, device=options.device, repetitions=repetitions,
        timeout=options.timeout,
    )  # fmt: skip


def _precision(options: argparse.Namespace) -> None:
    run, source = _run("precision", options, 1), _source(options)
    sets = [source.dataset(name) for name in (("primates",) if options.smoke else options.sets)]
    sets += [source.taxa(taxa) for taxa in (() if options.smoke else options.taxa)]
    race = Race(1, options.timeout, options.seed, "fast")
    precision.measure(run, sets, Contender("first device", "0"), race, options.search_up_to)
    run.save()


def _sample(options: argparse.Namespace) -> None:
    run = _run("sample", options, 1)
    sets, cpu = (("primates",), 6.0) if options.smoke else (options.sets, options.cpu)
    run.settings["cpu"] = cpu
    sample.measure(run, _source(options), sets, cpu)
    run.save()


def _golden(options: argparse.Namespace) -> None:
    run = _run("golden", options, 1)
    if options.data is None:
        raise SystemExit("bench: golden needs the folder of golden.tsv: --data FOLDER")
    found = [Contender("NumPy reference", None), *contenders()]
    once = {(entry.name, entry.vw): entry for entry in found}
    golden.measure(run, options.data, list(once.values()), limit=4 if options.smoke else None)
    run.save()


def _judge_stored(options: argparse.Namespace) -> None:
    run, source = load(options.result), _source(options)
    names = dict.fromkeys(row["dataset"] for row in run.rows)
    for name in names:
        word, _, size = name.partition(" ")
        dataset = source.paper(int(size)) if word == "paper" else source.dataset(name)
        rows = [row for row in run.rows if row["dataset"] == name]
        table1.judge_rows(run, dataset, rows, Contender("judge", "0"))
    run.save()


def _merge(options: argparse.Namespace) -> None:
    run, *others = map(load, options.results)
    for other in others:
        run.absorb(other)
    run.path = options.out
    run.save()


def _render(_: argparse.Namespace) -> None:
    for path in render.render():
        print(path.name)
