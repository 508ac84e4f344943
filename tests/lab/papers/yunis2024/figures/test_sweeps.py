from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.papers.yunis2024.figures.closed_form import (
    cells,
    heat_map,
    mean_alignment,
    panels,
    ranks,
    sweep,
    training,
    trainings,
)
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.figures.sweeps import figure_4, figure_5

DECAYS = (0.0, 10.0)


def drawn(draw: Callable[[Runs], Figure]) -> list[Axes]:
    """Return the panels of two decays."""
    (part,) = draw(sweep("vgg", *DECAYS)).subfigs
    return panels(part)


def scales(axes: list[Axes]) -> set[tuple[float, float]]:
    return {tuple(heat_map(panel).get_clim()) for panel in axes}


@pytest.mark.parametrize("draw", [figure_4, figure_5])
def test_rows_are_all_decays_and_collapsed_runs_are_named(draw: Callable[[Runs], Figure]) -> None:
    vgg, lstm = draw(trainings("lstm", "vgg", seeds=1)).subfigs
    assert vgg.get_suptitle().startswith("VGG\nlayers.1") and ", and all" in vgg.get_suptitle()
    headings = [text for axes in panels(vgg) if (text := axes.get_title(loc="left"))]
    headings[-1] = " ".join(headings[-1].split())  # it has two lines
    assert headings == [
        "weight decay 0, 1 seed",
        "weight decay 0.0001 (base), 1 seed",
        "weight decay 0.001, 1 seed",
        "weight decay 0.01, 1 seed",
        "weight decay 0.1, 1 seed, collapsed: training loss 2.5, a constant predictor's is 2.5",
    ]
    headings = [text for axes in panels(lstm) if (text := axes.get_title(loc="left"))]
    assert headings == [f"weight decay {decay}, 1 seed" for decay in ("0", "0.1 (base)", "1", "10")]


def test_spectra_and_ranks_of_each_decay() -> None:
    axes = drawn(figure_4)
    for lines, ranked, decay in zip(axes[:2], axes[2:], DECAYS, strict=True):
        ds = training(1, decay=decay)
        shown = ds["singular_values"].sel(matrix="layers.1.weight").to_numpy()
        np.testing.assert_allclose([line.get_ydata() for line in lines.lines], shown.T[::-1])
        np.testing.assert_allclose(cells(ranked), ranks(ds).T)


def test_the_rows_of_a_network_share_colours_that_span_all_of_them() -> None:
    maps = drawn(figure_4)[2:]
    values = np.concatenate([cells(axes) for axes in maps])
    assert scales(maps) == {(float(values.min()), float(values.max()))}
    axes = drawn(figure_5)
    for column in (axes[:2], axes[2:4]):
        highest = max(float(np.nanmax(cells(panel))) for panel in column)
        assert scales(column) == {(0.0, highest)}


def test_alignment_over_background_is_on_one_scale_around_chance() -> None:
    axes = drawn(figure_5)
    raw, relative = axes[2:4], axes[6:]
    for pairs, ratios in zip(raw, relative, strict=True):
        np.testing.assert_allclose(cells(ratios), cells(pairs) / 0.02)
    farthest = max(float(cells(panel).max()) for panel in relative)
    ((low, high),) = scales(relative)
    np.testing.assert_allclose((low, high), (1 / farthest, farthest))


def test_alignment_has_levels_under_each_row_on_one_height() -> None:
    axes = drawn(figure_5)
    assert len(axes) == 8
    for levels, decay in zip(axes[4:6], DECAYS, strict=True):
        a = mean_alignment(training(1, decay=decay))[:, 1]
        np.testing.assert_allclose(levels.lines[3].get_ydata(), a)
        np.testing.assert_allclose(levels.lines[1].get_ydata(), 2 * a)
    assert axes[4].get_ylim() == axes[5].get_ylim()
    assert axes[4].get_ylim()[0] == 0


def test_a_run_that_ended_early_leaves_its_place_empty() -> None:
    runs = sweep("vgg", *DECAYS)
    short = {key: {s: ds.isel(step=[0, 1]) for s, ds in runs[key].items()} for key in runs}
    first, second = runs
    (part,) = figure_4(Runs({first: runs[first], second: short[second]})).subfigs
    late = cells(panels(part)[3])
    assert late.shape == (3, 6)
    assert np.isnan(late).all(axis=0).tolist() == [False, False, True, True, True, True]


def test_overlaps_of_matrices_that_decayed_to_nothing_are_left_out() -> None:
    """The middle matrix, of both pairs, falls to 1e-42 at the fourth of six snapshots."""
    runs = sweep("vgg", 0.1, seeds=2)
    for ds in runs.only.values():
        ds["singular_values"][3:, 1] *= 1e-42
    diagonal, pairs, levels, relative = panels(figure_5(runs).subfigs[0])
    for axes in (diagonal, pairs, relative):
        measured = np.isfinite(cells(axes))
        assert measured[:, :3].all() and not measured[:, 3:].any()
    *lines, _ = levels.lines  # the last is the level of chance
    assert all(np.isnan(line.get_ydata()[3:]).all() for line in lines)
