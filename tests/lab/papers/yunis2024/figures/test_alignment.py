import numpy as np
import xarray as xr

from lab.papers.yunis2024.figures.closed_form import (
    STEPS,
    base_trainings,
    cells,
    heat_map,
    looks,
    mean_alignment,
    panels,
    sweep,
    training,
)
from rankscope.lab.papers.yunis2024.figures.alignment import figure_3

MIDDLE = training(1, decay=1e-4)  # the mean over seeds of the VGG


def test_a_row_shows_one_pair_all_pairs_and_levels_of_the_one() -> None:
    figure = figure_3(base_trainings("vgg", "lm"))
    diagonal, pairs, levels = panels(figure)[:3]
    assert diagonal.get_title(loc="left").startswith("VGG: ")
    assert pairs.get_title(loc="left") == "weight decay 0.0001 (base), 3 seeds"
    np.testing.assert_allclose(cells(diagonal), MIDDLE["alignment"].to_numpy()[:, 1].T)
    a = mean_alignment(MIDDLE).T
    np.testing.assert_allclose(cells(pairs), a / 0.02)  # two pairs, and no other tap
    drawn = [line.get_ydata() for line in levels.lines]
    for line, level in zip(drawn, (0.06, 2 * a[1], 0.02, a[1], 0.01), strict=True):
        np.testing.assert_allclose(line, level)
    (legend,) = figure.legends
    assert looks(levels.lines) == looks(legend.get_lines())
    assert len(looks(levels.lines)) == 5


def test_all_networks_share_their_colours() -> None:
    axes = panels(figure_3(base_trainings("vgg", "lm")))
    for column in (0, 1):
        assert heat_map(axes[column]).get_clim() == heat_map(axes[3 + column]).get_clim()
    low, high = heat_map(axes[1]).get_clim()
    np.testing.assert_allclose(low * high, 1)  # chance in the middle


def test_pairs_of_different_width_at_chance_look_alike() -> None:
    runs = base_trainings("vgg")
    wide = xr.DataArray([1.0, 3.0, 1.0], dims="pair")
    for ds in runs.only.values():
        ds["alignment_background"] = ds["alignment_background"] * wide
        ds["alignment"] = xr.ones_like(ds["alignment"]) * ds["alignment_background"]
    np.testing.assert_allclose(cells(panels(figure_3(runs))[1]), 1.0)


def test_heads_of_a_layer_share_a_row() -> None:
    runs = base_trainings("vgg")
    for ds in runs.only.values():
        ds["earlier"][:2], ds["later"][:2] = "layers.1.weight", "layers.2.weight"
        ds["alignment_background"] = xr.full_like(ds["alignment_background"], 0.02)
    a = mean_alignment(MIDDLE)
    np.testing.assert_allclose(cells(panels(figure_3(runs))[1])[0], a.mean(axis=1) / 0.02)


def test_a_short_pair_has_as_many_rows_as_directions() -> None:
    runs = base_trainings("vgg")
    for ds in runs.only.values():
        ds.attrs["shown_pair"] = "layers.0 > layers.1"
    assert cells(panels(figure_3(runs))[0]).shape == (5, 6)


def test_overlaps_of_matrices_that_decayed_to_nothing_are_left_out() -> None:
    """The middle matrix, of both pairs, falls to 1e-42 at the fourth of six snapshots."""
    runs = sweep("vgg", 0.1, seeds=2)
    for ds in runs.only.values():
        ds["singular_values"][3:, 1] *= 1e-42
    diagonal, pairs, levels = panels(figure_3(runs))
    assert cells(diagonal).shape[1] == cells(pairs).shape[1] == 3
    *lines, _ = levels.lines  # the last is the level of chance
    assert all(list(line.get_xdata()) == STEPS[:3] for line in lines)
