"""Tables of searches: who is no worse than whom, and by how much."""

from __future__ import annotations

from bench import search_tables
from bench.results import Row, repeated


def row(contender: str, seed: int, lnl: float, dataset: str = "frogs") -> Row:
    kind = "mltree" if "preset" in contender else "rival"
    return {
        "contender": contender, "kind": kind, "threads": 1, "dataset": dataset, "seed": seed,
        "status": "done", "user_s": repeated([3.0 if kind == "mltree" else 6.0]),
        "judged_lnl": lnl, "topology": 1,
    }  # fmt: skip


def rows(*mine: float, rival: float = -100.0, dataset: str = "frogs") -> list[Row]:
    """mltree's lnLs over seeds, and a rival that scores half an lnL less with every other seed."""
    return [
        entry
        for seed, lnl in enumerate(mine, 1)
        for entry in (
            row("default preset, a device", seed, lnl, dataset),
            row("IQ-TREE 2", seed, rival - (seed % 2) / 2, dataset),
        )
    ]


def test_one_seed_has_no_standings() -> None:
    assert search_tables.standings(rows(-100.0)) == ""


def test_the_median_is_held_against_the_best_tree_of_any_rival() -> None:
    table = search_tables.standings(rows(-100.3, -100.05, -99.0))
    assert "| frogs | -100.00, IQ-TREE | -0.05 (+1.00) | -0.50 (0.00) | no worse |" in table


def test_worse_and_better_medians_are_told_and_counted() -> None:
    found = [
        *rows(-100.2, -100.2, -100.0, dataset="worse"),
        *rows(-98.9, -98.9, -100.0, dataset="better"),
    ]
    table = search_tables.standings(found)
    assert "-0.20 (0.00) | -0.50 (0.00) | worse |" in table
    assert "+1.10 (+1.10) | -0.50 (0.00) | better |" in table
    assert "On 1 of 2 alignments" in table
    assert "the best tree of any rival, and on 1 more than 1 unit above it" in table
    assert "the best median of any rival, and on 1 more than 1 unit above it" in table


def test_all_that_found_the_best_tree_are_named() -> None:
    found = [*rows(-100.0, -100.0), row("RAxML 8.2.12", 1, -100.004), row("PhyML 3", 1, -100.1)]
    assert "| frogs | -100.00, IQ-TREE, RAxML |" in search_tables.standings(found)


def test_a_rival_that_is_quoted_can_be_the_best() -> None:
    table = search_tables.standings(rows(-21864.0, -21864.0, rival=-21870.0, dataset="garli_rana"))
    assert "-21864.13, *RAxML-NG*" in table
    assert "+0.13 (+0.13)" in table


def test_missing_seeds_and_late_programs_are_told() -> None:
    found = rows(-100.0, -100.0)
    late = {**row("PhyML 3", 1, 0.0), "status": "timeout", "limit_s": 60.0}
    del late["judged_lnl"]
    table = search_tables.standings([*found[:-1], late])
    assert "0.00 (0.00), 1 of 2" in table
    assert "> 60" in table


def test_times_are_relative_to_one_program_unless_it_ran_beside_others() -> None:
    found = rows(-100.0)
    assert "| mltree, default preset, a device, 1 thread | 0.50 / – |" in search_tables._ratios(
        found
    )
    found[1]["side_by_side"] = 15
    assert search_tables._ratios(found) == ""


def test_claims_are_compared_with_the_judge() -> None:
    found = rows(-100.0, -100.0)
    for number, entry in enumerate(found):
        entry["claimed_lnl"] = entry["judged_lnl"] - number / 100
    assert "| frogs | 0.00 to +0.02 | +0.01 to +0.03 |" in search_tables._claims(found)


def test_the_bar_on_effort_holds_cpu_time_and_lnl_against_both_yardsticks() -> None:
    """mltree takes 3 s, the others 6 s each."""
    found = []
    for name, mine, raxml in (("good", -100.05, -100.0), ("short", -100.2, -100.0)):
        found += [row("default preset, a device", 1, mine, name), row("IQ-TREE 2", 1, -101.0, name)]
        found.append(row("RAxML 8.2.12", 1, raxml, name))
    slow = row("default preset, a device", 1, -100.0, "slow") | {"user_s": repeated([6.5])}
    found += [slow, row("IQ-TREE 2", 1, -100.0, "slow"), row("RAxML 8.2.12", 1, -100.0, "slow")]
    found += [row("default preset, a device", 1, -1.0, "alone")]
    table = search_tables.effort(found)
    assert "Met on 1 of 3 alignments" in table
    assert "| good | 3.00 | 6.00 | 6.00 | -0.05 | met |" in table
    assert "| short | 3.00 | 6.00 | 6.00 | -0.20 | missed |" in table
    assert "| slow | 6.50 | 6.00 | 6.00 | 0.00 | missed |" in table
    assert "alone" not in table
    assert search_tables.effort(rows(-1.0)) == ""
