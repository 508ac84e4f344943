import numpy as np
import pytest
from matplotlib.figure import Figure

from rankscope.figures.time_axis import TrainingTime, short_number

DENSE = TrainingTime(np.array([0, 0.25, 0.5, 0.75, 1.0, 2.0, 5.0, 20.0, 100.0]), "epoch")
EVEN = TrainingTime(np.arange(0, 1000, 100))


def test_a_schedule_that_is_dense_early_has_a_logarithmic_axis_with_round_ticks() -> None:
    axes = Figure().add_subplot()
    axes.plot(DENSE.values, DENSE.values)
    DENSE.draw(axes)
    assert axes.get_xscale() == "symlog"
    assert axes.get_xlabel() == "epoch (log scale)"
    assert list(axes.get_xticks()) == [0, 1, 10, 100]
    assert axes.get_xlim() == (0, 100)


def test_even_snapshots_have_a_linear_axis() -> None:
    axes = Figure().add_subplot()
    axes.plot(EVEN.values, EVEN.values)
    EVEN.draw(axes)
    assert axes.get_xscale() == "linear"
    assert axes.get_xlabel() == "training step"
    np.testing.assert_allclose(EVEN.edges(), [0, *np.arange(50, 900, 100), 900])


def test_short_logarithmic_axes_have_ticks_at_two_and_five() -> None:
    short = TrainingTime(np.array([0, 1, 2, 3, 4, 8, 16, 25]))
    assert short.is_dense_early
    assert short.ticks() == [0, 2, 5, 10, 20]


def test_edges_lie_between_neighbours_as_drawn() -> None:
    edges = DENSE.edges()
    assert len(edges) == len(DENSE.values) + 1
    assert (edges[0], edges[-1]) == pytest.approx((0, 100))
    inner = edges[1:-1]
    assert (inner > DENSE.values[:-1]).all() and (inner < DENSE.values[1:]).all()
    np.testing.assert_allclose(inner[-1], np.sqrt(20 * 100))  # half-way on a log scale


@pytest.mark.parametrize("values", [[7.0], [0.0, 5.0]])
def test_few_snapshots_have_cells_too(values: list[float]) -> None:
    time = TrainingTime(np.array(values))
    assert (np.diff(time.edges()) > 0).all()
    time.draw(Figure().add_subplot())


def test_thousands_are_short() -> None:
    assert [short_number(value) for value in (0, 0.5, 999, 1000, 20_000)] == [
        "0",
        "0.5",
        "999",
        "1k",
        "20k",
    ]
