from itertools import pairwise

import pytest

from mltree.fit.settings import (
    FEW_SITES,
    HARD_SPREAD,
    HARD_SPREAD_OF_FEW,
    PRESETS,
    REPLICATE,
    SearchSettings,
    preset,
)


def test_the_window_widens_with_the_alignment_and_never_narrows() -> None:
    fast = preset("fast")
    assert fast.for_data(50, 100).rounds.window == fast.rounds.window
    wide = fast.for_data(50, 50_000)
    assert wide.rounds.window == 50_000 * fast.rounds.window_per_site > fast.rounds.window


def test_less_is_hopeless_in_trees_of_many_taxa_and_alignments_of_many_sites() -> None:
    fast = preset("fast")
    assert fast.for_data(50, 1_000).rounds.rejection == fast.rounds.rejection
    few, more, most, too = (fast.for_data(n, 1_000).rounds.rejection for n in (60, 120, 200, 9_999))
    assert fast.rounds.rejection < few < more < most == too
    wide = fast.for_data(50, 50_000).rounds
    assert wide.rejection / wide.window == fast.rounds.rejection / fast.rounds.window


@pytest.mark.parametrize("name", PRESETS)
def test_large_trees_get_a_wide_look_before_the_last_phase(name: str) -> None:
    own = preset(name)
    assert own.for_data(100, 1_000).phases == own.phases
    looks = []
    for taxa in (101, 200, 400, 10_000):
        *before, look, last = own.for_data(taxa, 1_000).phases
        assert (*before, last) == own.phases
        looks.append(look)
    for some, more in pairwise([own.phases[-1], *looks]):
        assert some.cut <= more.cut
        assert some.breadth <= more.breadth
    assert looks[0].breadth < looks[-1].breadth


def test_few_taxa_get_more_starts_and_a_search_without_parsimony_none() -> None:
    starts = [preset("fast").for_data(taxa, 1_000).parsimony_starts for taxa in (4, 15, 40, 700)]
    assert starts == sorted(starts, reverse=True)
    assert starts[1] > starts[-1] == preset("fast").parsimony_starts == 1
    assert SearchSettings(parsimony_starts=0).for_data(4, 1_000).parsimony_starts == 0


def test_branches_may_be_as_short_as_the_field_has_them_and_shorter_in_long_alignments() -> None:
    """Half a substitution in the whole alignment is still a length."""
    branches = preset("default").branches
    for sites in (100, 5_000, 99_999, 100_000, 10**6, 10**8):
        shortest, longest = branches.bounds(sites)
        assert 0 < shortest <= min(1e-6, 0.5 / sites)
        assert longest == 100


@pytest.mark.parametrize("name", PRESETS)
def test_one_by_one_as_many_copies_are_tried(name: str) -> None:
    side_by_side = preset(name)
    alone = side_by_side.one_by_one(all_starts=False)
    before, after = side_by_side.perturbation, alone.perturbation
    assert after.copies < before.copies
    assert after.copies * after.patience == before.copies * before.patience
    assert alone.starts_at_once is not None
    assert side_by_side.one_by_one(all_starts=True).starts_at_once is None


def test_side_by_side_a_search_of_one_start_has_several_of_which_the_best_goes_on() -> None:
    fast = preset("fast")
    beside = fast.for_data(700, 1_000).side_by_side(700)
    assert beside.parsimony_starts == fast.starts_in_company > 1 == beside.max_survivors
    few = fast.for_data(4, 1_000)
    assert few.side_by_side(4) == few, "it has more anyway"
    for other in (preset("default"), preset("thorough"), SearchSettings(parsimony_starts=0)):
        assert other.side_by_side(100) == other
    given = fast.for_data(700, 1_000).side_by_side(700, usual_starts=False)
    assert given.parsimony_starts == fast.parsimony_starts


def test_side_by_side_copies_of_large_trees_are_resolved_anew_with_more_patience() -> None:
    usual = preset("default").perturbation
    large = preset("default").side_by_side(101).perturbation
    assert large.resolves
    assert not usual.resolves
    assert large.patience * usual.returns == large.returns * usual.patience
    assert large.patience > usual.patience


def test_an_unperturbed_search_has_its_rounds() -> None:
    assert REPLICATE.perturbation.patience > 0
    bare = REPLICATE.unperturbed()
    assert bare.perturbation.patience == 0
    assert bare.most_trees == bare.parsimony_starts
    assert bare.phases == REPLICATE.phases


@pytest.mark.parametrize("name", ["default", "thorough"])
def test_where_parsimony_trees_differ_random_ones_are_searched_to_the_end(name: str) -> None:
    easy = preset(name).for_data(100, FEW_SITES + 1)
    assert easy.for_spread(HARD_SPREAD - 0.01) is easy
    short = preset(name).for_data(100, FEW_SITES)
    assert short.for_spread(HARD_SPREAD - 0.01) is not short
    assert short.for_spread(HARD_SPREAD_OF_FEW - 0.01) is short
    hard = easy.for_spread(HARD_SPREAD)
    starts = hard.parsimony_starts, hard.random_starts
    assert starts == easy.hard_starts
    assert 0 < hard.chance < 1
    assert easy.chance == 0
    beside = easy.one_by_one(all_starts=False).for_spread(HARD_SPREAD).starts_at_once
    assert beside is not None
    assert hard.parsimony_starts <= beside < hard.starts_at_once <= easy.most_trees
    assert hard.phases[0].breadth < easy.phases[0].breadth
    assert hard.phases[1:] == easy.phases[1:]
    assert hard.perturbation.resolves
    assert not easy.perturbation.resolves


@pytest.mark.parametrize(("name", "taxa"), [("default", 101), ("thorough", 101), ("fast", 50)])
def test_many_taxa_and_the_fast_preset_get_no_random_starts(name: str, taxa: int) -> None:
    fitted = preset(name).for_data(taxa, 1_000)
    assert fitted.for_spread(1.0) is fitted
