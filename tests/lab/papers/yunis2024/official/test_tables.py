from pathlib import Path

import pytest

from lab.papers.archived import RESULTS
from lab.papers.yunis2024.official.made_evaluation import runs
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.official.tables import official_tables


def test_ranks_alignment_and_losses_stand_side_by_side(folder: Path) -> None:
    ranks, pairs, losses = official_tables(runs(), folder)
    assert ranks.columns[1:5] == (
        "theirs, step 10",
        "ours, step 9",
        "theirs, step 20",
        "ours, step 21",
    )
    row = dict(zip(ranks.columns, ranks.rows[0], strict=True))
    assert row["matrix"] == "conv1" and row["theirs, step 20"] == "0.250"
    assert row["ours, step 9"] == "0.625 (0.500 to 0.750)" and row["difference"] == "+0.375"
    assert [r[:4] for r in pairs.rows] == [
        ("conv1 > conv2", "a", "0.300", "0.200 (0.200 to 0.200)"),
        ("conv1 > conv2", "background", "0.100", "0.050 (0.050 to 0.050)"),
    ]
    by_name = {r[0]: r[1:] for r in losses.rows}
    assert by_name["held-out error"][:2] == ("0.500", "0.250 (0.250 to 0.250)")


def test_ranks_of_ours_are_theirs_in_every_matrix(archived: Runs) -> None:
    """A published evaluation with its tolerance: the mean over seeds within 0.011."""
    ranks, _, losses = official_tables(archived, RESULTS)
    assert len(ranks.rows) == 14
    assert max(abs(float(str(row[-1]))) for row in ranks.rows) <= 0.011
    top = {row[0]: row for row in losses.rows}["training loss of the top half"]
    for theirs, mine in ((top[1], top[2]), (top[3], top[4])):
        assert float(str(mine).split()[0]) == pytest.approx(float(str(theirs)), rel=0.1)
