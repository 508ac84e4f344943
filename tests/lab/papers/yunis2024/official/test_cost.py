from pathlib import Path

from lab.papers.archived import RESULTS, archive
from lab.papers.yunis2024.official.made_evaluation import runs
from rankscope.lab.judging.selected_runs import all_runs
from rankscope.lab.papers.yunis2024.official.cost import (
    busy_seconds,
    cost_tables,
    seconds_of_theirs,
)


def test_runs_side_by_side_cost_once() -> None:
    assert busy_seconds([(0.0, 10.0), (2.0, 5.0), (8.0, 12.0), (20.0, 21.0)]) == 13
    assert busy_seconds([]) == 0


def test_cost_is_machine_time_over_runs(folder: Path) -> None:
    (table,) = cost_tables(runs(), folder)
    (row,) = table.rows
    assert (
        seconds_of_theirs({"epochs": 10.0, "seconds_per_epoch": 2.0, "seconds_per_checkpoint": 3.0})
        == 50
    )
    assert row[1:] == (2, 4, "25 s", "12 s", "50 s", "4")


def test_archived_runs_have_a_cost() -> None:
    selected, _ = archive("yunis2024").select(all_runs)
    (table,) = cost_tables(selected, RESULTS)
    assert {"yunis2024/vgg", "yunis2024/grok"} <= {row[0] for row in table.rows}
