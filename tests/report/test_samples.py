"""The page of a sample: its charts have what the sample has."""

import json
import re
from pathlib import Path

import numpy as np

from mltree.report.samples import ladder_chart, sample_page, split_chart, trace_chart
from mltree.sampling.mrbayes_files import files_of, read_runs
from mltree.sampling.summaries import Posterior

GOLDEN = Path(__file__).parents[1] / "golden" / "samples"


def posterior() -> Posterior:
    return Posterior.of(read_runs(files_of(str(GOLDEN / "mb")))[0], 0.2)


def test_splits_that_runs_disagree_about_are_marked() -> None:
    sample = posterior()
    chart = split_chart(sample)
    apart = np.abs(np.diff(sample.frequencies, axis=1))[:, 0]
    assert chart.count('class="dot"') == (apart <= 0.1).sum()
    assert chart.count('class="dot-bad"') == (apart > 0.1).sum()


def test_traces_have_a_line_a_run_and_not_too_many_points() -> None:
    sample = posterior()
    lines = re.findall(
        r'<path style="stroke:var\(([^)]*)\)[^>]* d="([^"]*)"', trace_chart(sample, "kappa")
    )
    assert len({colour for colour, _ in lines}) == 2
    assert [line.count("L") + 1 for _, line in lines] == [49, 49]


def test_the_ladder_is_that_of_the_result(tmp_path: Path) -> None:
    result = tmp_path / "x.mltree.sample.json"
    means = [[-6000.0, -5800.0, -5750.0], [-6010.0, -5801.0, -5750.5]]
    values = {"heats": [0.0, 0.3, 1.0], "mean_lnl": means, "rejection": [0.25, 0.5],
              "lnz": -5790.25, "lnz_error": 0.125}  # fmt: skip
    result.write_text(json.dumps(values))
    page = sample_page("x", posterior(), result=str(result))
    for text in ('id="ladder"', "-5790.25 ± 0.12", "25.0%", "-6005.00"):
        assert text in page, text
    assert ladder_chart(values["heats"], np.array(means)).count("<circle") == 6
    result.write_text("{}")
    assert 'id="ladder"' not in sample_page("x", posterior(), result=str(result))


def test_names_of_taxa_are_text() -> None:
    sample = posterior()
    page = sample_page("<b>", sample)
    assert "<b>" not in page.replace("</b>", "")
