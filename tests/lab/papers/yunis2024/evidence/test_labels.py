import pytest
import xarray as xr

from lab.papers.archived import evidence, table
from lab.papers.yunis2024.closed_form_runs import flat, training_run
from rankscope.lab.judging.runs import Runs
from rankscope.lab.papers.yunis2024.claims.labels import Y8
from rankscope.lab.papers.yunis2024.evidence import labels
from rankscope.lab.running.run import RunKey


def mlp(*left: int, loss: tuple[float, ...]) -> xr.Dataset:
    """Give the middle layer of three so many equal values, of twenty, at each snapshot."""
    full = flat(20, [20] * len(left))
    return training_run({"first": full, "fc2": flat(20, left), "last": full}, loss=loss)


def labelled(*, true: xr.Dataset, random: xr.Dataset) -> Runs:
    return Runs(
        {
            RunKey("mlp", {"labels": "true"}): {0: true},
            RunKey("mlp", {"labels": "random"}): {0: random},
        }
    )


def test_layers_are_lower_by_as_much_as_y8_says() -> None:
    ends = {(seed, name): end for seed, name, _, end in table(labels.ranks).rows}
    for row in evidence("yunis2024", Y8):
        for name, by in map(str.split, row["layers"].split(", ")):
            assert ends[row["seed"], name] == pytest.approx(float(by), rel=5e-3)


def test_labels_are_learnt_below_a_tenth_of_loss() -> None:
    true = mlp(20, 16, 12, 6, loss=(1.0, 0.101, 0.099, 0.01))
    random = mlp(20, 18, 18, 17, loss=(1.0, 0.5, 0.2, 0.09))
    assert (labels.learnt_at(true), labels.learnt_at(random)) == (2, 3)
    ((seed, name, learnt, end),) = labels.ranks(labelled(true=true, random=random)).rows
    assert (seed, name) == (0, "fc2")
    assert (learnt, end) == pytest.approx((5 / 20, 11 / 20))


def test_labels_that_are_never_learnt_are_said_so() -> None:
    runs = labelled(true=mlp(9, 6, loss=(1, 0.01)), random=mlp(9, 8, loss=(1, 0.9)))
    assert labels.ranks(runs).rows == ((0, "fc2", "never", pytest.approx(0.1, rel=1e-5)),)


def test_singular_values_are_read_in_order() -> None:
    runs = labelled(true=mlp(20, 10, loss=(1, 0.01)), random=mlp(20, 20, loss=(1, 0.01)))
    true, random = labels.singular_values(runs).rows
    assert (true[1], random[1]) == ("true", "random")
    assert true[3:] == (1.0, 0.5, 1.0, 1.0, 1.0, 0.0)  # half of twenty are left
    assert random[3:] == (1.0,) * 6
