from mltree.settings import preset


def test_the_window_widens_with_the_alignment_and_never_narrows() -> None:
    fast = preset("fast")
    assert fast.for_sites(100).rounds.window == fast.rounds.window
    wide = fast.for_sites(50_000)
    assert wide.rounds.window == 50_000 * fast.rounds.window_per_site > fast.rounds.window
    assert wide.for_sites(50_000) == wide
