"""Many loci, a tree each: as the search of each alone, whatever stands beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mltree.analyses import loci as module
from mltree.analyses.loci import LociJournal, LociSearch, Locus, LocusTree, without_gaps
from mltree.data.alphabet import DNA
from mltree.fit.settings import preset
from mltree.models.grammar import parse_model
from mltree.models.partitioned import alone
from mltree.runs.engines import Resources
from mltree.runs.problem import read_problem
from mltree.runs.trees import prepare_search
from mltree.system.errors import InputError
from mltree.system.events import Event, LocusDone, LocusSkipped, Notice, ignore
from mltree.tree.newick import write_newick

FAST = preset("fast").nni_only()


def written(path: Path, taxa: int, sites: int, seed: int, gaps: int = 0) -> Locus:
    """An alignment of random sequences that descend from each other; the last ones are gaps."""
    rng = np.random.default_rng([5, seed])
    rows = [rng.choice(list("ACGT"), sites)]
    while len(rows) < taxa:
        changes = rng.random(sites) < 0.15
        parent = rows[rng.integers(len(rows))]
        rows.append(np.where(changes, rng.choice(list("ACGT"), sites), parent))
    lines = ["".join(row) for row in rows] + ["-" * sites] * gaps
    path.write_text("".join(f">s{seed}_{n}\n{line}\n" for n, line in enumerate(lines)))
    return Locus(path.name, lambda: read_problem(str(path), "HKY+G2"))


@pytest.fixture
def loci(tmp_path: Path) -> list[Locus]:
    """Of 4 to 9 taxa; one with a taxon of gaps, one with the same sequence twice."""
    sizes = ((6, 80, 0), (4, 40, 0), (9, 120, 1), (5, 30, 0))
    return [
        written(tmp_path / f"locus{n}.fa", taxa, sites, n, gaps)
        for n, (taxa, sites, gaps) in enumerate(sizes)
    ]


def searched(
    loci: list[Locus], path: Path, events: list[Event] | None = None, **options: object
) -> list[LocusTree | None]:
    settings = {"settings": FAST, "resources": Resources(), "seed": 3} | options
    search = LociSearch(**settings)  # type: ignore[arg-type]
    with LociJournal(path) as journal:
        return search.run(loci, journal, ignore if events is None else events.append)


def test_a_locus_has_the_tree_of_its_own_search(loci: list[Locus], tmp_path: Path) -> None:
    found = searched(loci, tmp_path / "journal")
    for locus, tree in zip(loci, found, strict=True):
        problem, _ = without_gaps(locus.read())
        alone = prepare_search(problem, FAST, seed=3).run()
        assert tree is not None
        assert tree.lnl == pytest.approx(alone.lnl, abs=1e-8)
        assert tree.newick == write_newick(alone.tree, problem.taxa, outgroup=[0])
        assert (tree.taxa, tree.sites) == (len(problem.taxa), problem.n_sites)
        assert tree.tree_length == pytest.approx(alone.tree.lengths.sum())
        assert tree.model.startswith("HKY{")


def test_no_bit_depends_on_the_others(
    loci: list[Locus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = searched(loci, tmp_path / "a")
    backwards = searched(loci[::-1], tmp_path / "b")
    assert backwards == together[::-1]
    monkeypatch.setattr(module, "AT_ONCE", 3)
    monkeypatch.setattr(module, "CPU_BYTES", 1)  # each by itself
    assert searched(loci, tmp_path / "c") == together


def test_several_are_summed_as_one_is(
    loci: list[Locus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In chunks no larger than their own, though all of them would be summed in larger ones."""
    for least in ("MIN_CPU_CHUNK", "MAX_CHUNKS", "MAX_GPU_CHUNKS"):
        monkeypatch.setattr(f"mltree.device.layout.{least}", 4)
    together = searched(loci, tmp_path / "all")
    alone = [searched([locus], tmp_path / f"{locus.name}.journal") for locus in loci]
    assert [[tree] for tree in together] == alone


def test_a_run_goes_on_with_what_its_journal_lacks(
    loci: list[Locus], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a kill has cut it, with loci added, and not with another one's settings."""
    path = tmp_path / "journal"
    expected = searched(loci[:3], path)
    whole = path.read_bytes()
    ends = [n + 1 for n, byte in enumerate(whole) if byte == ord("\n")]
    path.write_bytes(whole[: ends[1] + 20])  # one locus, and a piece of the next
    begun: list[int] = []
    side_by_side = LociSearch._side_by_side
    monkeypatch.setattr(
        LociSearch,
        "_side_by_side",
        lambda self, own: (begun.extend(locus.number for locus in own), side_by_side(self, own))[1],
    )
    events: list[Event] = []
    found = searched(loci, path, events)
    assert found[:3] == expected
    assert len(begun) == 3
    done = [event for event in events if isinstance(event, LocusDone)]
    assert [event.done for event in done] == [1, 2, 3, 4]
    assert searched(loci, path) == found
    assert len(begun) == 3
    with pytest.raises(InputError, match="loci of other data, options"):
        searched(loci, path, seed=4)


def test_bad_loci_are_told_of_and_the_others_go_on(loci: list[Locus], tmp_path: Path) -> None:
    texts = {
        "three.fa": ">a\nACGT\n>b\nACGA\n>c\nACCC\n",
        "gaps.fa": ">a\n----\n>b\n----\n>c\n----\n>d\n----\n",
        "few.fa": ">a\nACGT\n>b\n----\n>c\nACCA\n>d\nACCC\n",
        "odd.fa": "hello",
        "empty.fa": "",
    }
    bad = []
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        bad.append(Locus(name, lambda name=name: read_problem(str(tmp_path / name), "HKY+G2")))
    events: list[Event] = []
    found = searched([*bad[:2], loci[2], *bad[2:]], tmp_path / "journal", events)
    assert [tree is not None for tree in found] == [False, False, True, False, False, False]
    skipped = {event.name: event.why for event in events if isinstance(event, LocusSkipped)}
    assert set(skipped) == set(texts)
    assert "3 taxa have data: a tree needs 4" in skipped["few.fa"]
    assert "0 taxa have data" in skipped["gaps.fa"]
    (notice,) = (event.text for event in events if isinstance(event, Notice))
    assert notice == "locus2.fa: left out 1 taxon without data"


def test_models_that_cannot_be_are_told_of_and_the_others_go_on(
    loci: list[Locus], tmp_path: Path
) -> None:
    """What models stand for is found for all at once; here two have no frequencies yet."""

    def without_frequencies(locus: Locus) -> Locus:
        unknown = alone(parse_model("HKY+FC+G2", DNA))
        return Locus(locus.name, lambda: replace(locus.read(), model=unknown))

    own = [locus if n % 2 == 0 else without_frequencies(locus) for n, locus in enumerate(loci)]
    events: list[Event] = []
    found = searched(own, tmp_path / "journal", events)
    expected = searched(loci, tmp_path / "others")
    assert found == [expected[0], None, expected[2], None]
    skipped = [event for event in events if isinstance(event, LocusSkipped)]
    assert [event.number for event in skipped] == [2, 4]
    assert all("frequencies" in event.why for event in skipped)


@pytest.mark.parametrize("ranks", [1, 2, 8])
@pytest.mark.parametrize("count", [0, 1, 3, 24, 1000, 10_000])
def test_batches_have_every_locus_once_and_get_smaller(count: int, ranks: int) -> None:
    """So that of several ranks none has more than a few to do when the others are through."""
    batches = list(module._batches(count, ranks))
    assert [n for batch in batches for n in batch] == list(range(count))
    sizes = list(map(len, batches))
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes, default=0) <= module.AT_ONCE
    if ranks > 1:
        left = [count - batch.start for batch in batches]
        fair = [max(module.LEAST_SHARE, own / ranks) for own in left]
        assert all(size <= own for size, own in zip(sizes, fair, strict=True))


@pytest.mark.parametrize("count", [0, 1, 3, 24, 1000, 10_000])
def test_batches_on_gpus_are_as_large_as_each_other(count: int) -> None:
    batches = list(module._batches(count, 8, on_gpus=True))
    assert sorted(n for batch in batches for n in batch) == list(range(count))
    sizes = list(map(len, batches))
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    assert max(sizes, default=0) <= module.AT_ONCE
    assert len(batches) % 8 == 0 or count < 8


def test_a_journal_without_a_locus_goes(tmp_path: Path) -> None:
    searched([], tmp_path / "journal")
    assert not (tmp_path / "journal").exists()
