from lab.papers.yunis2024.closed_form_runs import training_run
from lab.papers.yunis2024.evidence.swept_runs import swept, together
from rankscope.lab.papers.yunis2024.evidence.runs import (
    at_base_decay,
    base_run,
    by_column,
    sweeps_of,
)


def test_a_column_for_each_decay_at_which_some_seed_did_not_collapse() -> None:
    good = {name: training_run(name=name) for name in "abcd"}
    bad = training_run(loss=(1, 1), name="bad")
    by_decay = {
        10.0: {0: bad, 1: bad},
        1.0: {0: good["c"], 1: bad},
        0.1: {0: bad, 1: good["b"]},
        1e-4: {0: good["a"], 1: good["d"]},
    }
    runs = together(swept("vgg", by_decay), swept("lm", {0.1: bad}))
    sweeps = sweeps_of(runs, "vgg")
    table = sweeps.table("title", {"name": lambda ds: ds.attrs["name"]})
    assert sweeps.decays == [1e-4, 0.1, 1.0] and list(sweeps.first) == [1e-4, 1.0]
    assert table.columns == ("seed", "", "decay 0.0001", "decay 0.1", "decay 1")
    assert table.rows == ((0, "name", "a", None, "c"), (1, "name", "d", "b", None))
    assert base_run(runs, "vgg").attrs["name"] == "a"
    assert [*at_base_decay(runs)] == [("vgg", 0), ("vgg", 1), ("lm", 0)]
    assert [*at_base_decay(runs, "vgg")] == [("vgg", 0), ("vgg", 1)]


def test_a_cell_without_a_value_is_empty() -> None:
    assert by_column([0.0, 1.0], {1.0: 3}, lambda value: 2 * value) == (None, 6)
