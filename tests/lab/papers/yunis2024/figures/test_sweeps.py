from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lab.papers.yunis2024.figures.closed_form import (
    STEPS,
    mean_alignment,
    panels,
    ranks,
    sweep,
    training,
    trainings,
)
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.figures.sweeps import binned, figure_4, figure_5

DECAYS = (0.0, 10.0)


def solid(lines: list[Line2D]) -> list[np.ndarray]:
    """Return the heights of broad lines, the last decay first."""
    return [np.asarray(line.get_ydata()) for line in lines if line.get_linewidth() > 1.5]


@pytest.mark.parametrize("draw", [figure_4, figure_5])
def test_rows_are_networks_and_collapsed_decays_are_dotted(draw: Callable[[Runs], Figure]) -> None:
    axes = panels(draw(trainings("lstm", "vgg", seeds=1)))
    assert len(axes) == 6
    assert axes[0].get_title(loc="left").startswith("VGG, ")
    assert axes[3].get_title(loc="left").startswith("LSTM, ")
    legend = axes[2].get_legend()
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["0", "0.0001 (base)", "0.001", "0.01", "0.1, collapsed"]
    assert [line.get_linestyle() for line in legend.get_lines()] == [*"----", ":"]


def test_spectra_and_ranks_of_each_decay() -> None:
    values, ranked, spectrum = panels(figure_4(sweep("vgg", *DECAYS)))
    runs = [training(1, decay=decay) for decay in DECAYS[::-1]]
    shown = [ds["singular_values"].sel(matrix="layers.1.weight").to_numpy() for ds in runs]
    np.testing.assert_allclose(solid(values.lines), [S[:, 0] for S in shown])
    thin = [line.get_ydata() for line in values.lines if line.get_linestyle() == "--"]
    np.testing.assert_allclose(thin, [np.median(S, axis=1) for S in shown])
    np.testing.assert_allclose(solid(ranked.lines), [np.median(ranks(ds), axis=1) for ds in runs])
    np.testing.assert_allclose(solid(spectrum.lines), [S[-1] / S[-1, 0] for S in shown])
    assert values.get_ylim()[0] == 0 and values.get_ylim()[1] > max(S.max() for S in shown)


def test_alignment_of_each_decay_over_its_background() -> None:
    shown, pairs, directions = panels(figure_5(sweep("vgg", *DECAYS)))
    runs = [training(1, decay=decay) for decay in DECAYS[::-1]]
    a = [mean_alignment(ds) / 0.02 for ds in runs]
    np.testing.assert_allclose(solid(shown.lines), [ratio[:, 1] for ratio in a])
    np.testing.assert_allclose(solid(pairs.lines), [ratio.mean(axis=1) for ratio in a])
    first = [np.median(ds["alignment"].to_numpy()[-1, :2, 0]) / 0.02 for ds in runs]
    assert [line[0] for line in solid(directions.lines)] == pytest.approx(first)
    assert all(axes.get_ylim()[0] == 0 for axes in (shown, pairs, directions))


def test_directions_are_averaged_in_bins_that_double() -> None:
    centres, means = binned(np.arange(1.0, 12.0))
    np.testing.assert_allclose(means, [1, 2, 3.5, 6.5, 10])
    np.testing.assert_allclose(centres, np.sqrt([1, 4, 12, 40, 99]))
    _, means = binned(np.array([np.nan, 2.0, np.nan]))
    np.testing.assert_array_equal(means, [np.nan, 2.0, np.nan])


def test_a_run_that_ended_early_has_a_short_line() -> None:
    runs = sweep("vgg", *DECAYS)
    first, second = runs
    short = {seed: ds.isel(step=[0, 1]) for seed, ds in runs[second].items()}
    values, *_ = panels(figure_4(Runs({first: runs[first], second: short})))
    drawn = [list(line.get_xdata()) for line in values.lines if line.get_linewidth() > 1.5]
    assert drawn == [STEPS[:2], STEPS]
    assert values.get_xlim() == (0, STEPS[-1])
