from pathlib import Path

from lab.claims.training_runs import training_run
from rankscope.lab.papers.yunis2024.evidence.runs import (
    RESULTS,
    base_run,
    base_runs,
    by_column,
    decay_table,
    decays,
    seeds,
)


def test_the_folder_of_results_is_that_of_the_repository() -> None:
    assert (Path(__file__).parents[2] / "results").samefile(RESULTS)


def test_a_column_for_each_decay_at_which_some_seed_did_not_collapse(keep_sweep) -> None:
    good = {name: training_run(name=name) for name in "abcd"}
    bad = training_run(loss=(1, 1), name="bad")
    keep_sweep(
        "vgg",
        {
            10.0: {0: bad, 1: bad},
            1.0: {0: good["c"], 1: bad},
            0.1: {0: bad, 1: good["b"]},
            1e-4: {0: good["a"], 1: good["d"]},
        },
    )
    found = decay_table("title", "vgg", {"name": lambda ds: ds.attrs["name"]})
    assert decays("vgg") == [1e-4, 0.1, 1.0]
    assert found.columns == ("seed", "", "decay 0.0001", "decay 0.1", "decay 1")
    assert found.rows == ((0, "name", "a", None, "c"), (1, "name", "d", "b", None))
    assert base_run("vgg").attrs["name"] == "a"
    assert [*base_runs(["vgg"])] == [("vgg", 0), ("vgg", 1)]


def test_only_seeds_with_every_decay_are_read(keep_sweep) -> None:
    ds = training_run()
    keep_sweep("vgg", {0.0: {0: ds, 1: ds}, 0.1: {0: ds}})
    assert seeds("vgg") == [0]


def test_a_cell_without_a_value_is_empty() -> None:
    assert by_column([0.0, 1.0], {1.0: 3}, lambda value: 2 * value) == (None, 6)
