from mltree.settings import preset


def test_the_window_widens_with_the_alignment_and_never_narrows() -> None:
    fast = preset("fast")
    assert fast.for_sites(100).rounds.window == fast.rounds.window
    wide = fast.for_sites(50_000)
    assert wide.rounds.window == 50_000 * fast.rounds.window_per_site > fast.rounds.window
    assert wide.for_sites(50_000) == wide


def test_branches_may_be_as_short_as_the_field_has_them_and_shorter_in_long_alignments() -> None:
    """Half a substitution in the whole alignment is still a length."""
    branches = preset("default").branches
    for sites in (100, 5_000, 99_999, 100_000, 10**6, 10**8):
        shortest, longest = branches.bounds(sites)
        assert 0 < shortest <= min(1e-6, 0.5 / sites)
        assert longest == 100
