import pytest
import xarray as xr

from findings import labels
from lab.claims.training_runs import flat, training_run
from rankscope.lab.papers.yunis2024.claims.labels import RANDOM, TRUE


def mlp(*left: int, loss: tuple[float, ...]) -> xr.Dataset:
    """The middle layer of three has so many equal values at each snapshot, of twenty."""
    every = flat(20, [20] * len(left))
    return training_run({"first": every, "fc2": flat(20, left), "last": every}, loss=loss)


def test_layers_are_lower_by_as_much_as_y8_says(table, evidence) -> None:
    ends = {(seed, name): end for seed, name, _, end in table(labels.ranks).rows}
    for seed, _, layers, *_ in evidence("yunis2024/mlp", "Y8"):
        for name, by in map(str.split, str(layers).split(", ")):
            assert ends[seed, name] == pytest.approx(float(by), rel=5e-3)


def test_labels_are_learnt_below_a_tenth_of_loss(keep) -> None:
    true = mlp(20, 16, 12, 6, loss=(1.0, 0.101, 0.099, 0.01))
    random = mlp(20, 18, 18, 17, loss=(1.0, 0.5, 0.2, 0.09))
    assert (labels.learnt_at(true), labels.learnt_at(random)) == (2, 3)
    keep("yunis2024/mlp", {TRUE: true, RANDOM: random})
    ((seed, name, learnt, end),) = labels.ranks().rows
    assert (seed, name) == (0, "fc2")
    assert (learnt, end) == pytest.approx((5 / 20, 11 / 20))


def test_labels_that_are_never_learnt_are_said_so(keep) -> None:
    keep("yunis2024/mlp", {TRUE: mlp(9, 6, loss=(1, 0.01)), RANDOM: mlp(9, 8, loss=(1, 0.9))})
    assert labels.ranks().rows == ((0, "fc2", "never", pytest.approx(0.1, rel=1e-5)),)


def test_singular_values_are_read_in_order(keep) -> None:
    ds = mlp(20, 10, loss=(1, 0.01))
    keep("yunis2024/mlp", {TRUE: ds, RANDOM: mlp(20, 20, loss=(1, 0.01))})
    true, random = labels.singular_values().rows
    assert true[3:] == (1.0, 0.5, 1.0, 1.0, 1.0, 0.0)  # half of twenty are left
    assert random[3:] == (1.0,) * 6
