import numpy as np
import pytest
import xarray as xr

from lab.papers.yunis2024.figures.closed_form import (
    NAMES,
    PAIRS,
    base_trainings,
    cells,
    looks,
    mean_alignment,
    panels,
    ranks,
    sweep,
    training,
)
from rankscope.lab.papers.yunis2024.figures.networks import figure_1, figure_2, figure_3

MIDDLE = training(1, decay=1e-4)  # the mean over seeds of the VGG
HEADING = "VGG\nweight decay 0.0001 (base), 3 seeds"


def test_spectra_of_the_shown_matrices_averaged() -> None:
    first, second = panels(figure_1(base_trainings("vgg", "lstm")))
    assert first.get_title() == f"{HEADING}\nlayers.1.weight"
    assert second.get_title() == "LSTM\nweight decay 0.1 (base), 3 seeds\nlayers.1.weight"
    shown = MIDDLE["singular_values"].sel(matrix="layers.1.weight").to_numpy()
    np.testing.assert_allclose([line.get_ydata() for line in first.lines], shown.T[::-1])
    steps = [label.get_text() for label in first.get_xticklabels()]
    assert steps == ["0", "10", "40", "160", "250"]


def test_ranks_of_whole_matrices() -> None:
    (axes,) = panels(figure_2(base_trainings("vgg")))
    assert axes.get_title() == HEADING
    np.testing.assert_allclose(cells(axes), ranks(MIDDLE).T)
    assert [label.get_text() for label in axes.get_yticklabels()] == NAMES


def test_alignment_in_four_rows() -> None:
    figure = figure_3(base_trainings("vgg", "lm"))
    diagonal, pairs, relative, levels = panels(figure)[::2]
    assert diagonal.get_title() == f"{HEADING}\nlayers.1 > layers.2"
    np.testing.assert_allclose(cells(diagonal), MIDDLE["alignment"].to_numpy()[:, 1].T)
    of_all = mean_alignment(MIDDLE).T
    np.testing.assert_allclose(cells(pairs), of_all)
    np.testing.assert_allclose(cells(relative), of_all / 0.02)
    assert [label.get_text() for label in pairs.get_yticklabels()] == PAIRS  # and no other tap
    for line, level in zip(levels.lines, (0.06, 2 * of_all[1], 0.02, of_all[1], 0.01), strict=True):
        np.testing.assert_allclose(line.get_ydata(), level)
    (legend,) = figure.legends
    assert looks(levels.lines) == looks(legend.get_lines())
    assert len(looks(levels.lines)) == 5


def test_pairs_of_different_width_at_chance_look_alike_in_the_third_row_only() -> None:
    runs = base_trainings("vgg")
    wide = xr.DataArray([1.0, 3.0, 1.0], dims="pair")
    for ds in runs.only.values():
        ds["alignment_background"] = ds["alignment_background"] * wide
        ds["alignment"] = xr.ones_like(ds["alignment"]) * ds["alignment_background"]
    _, pairs, relative, _ = panels(figure_3(runs))
    np.testing.assert_allclose(cells(pairs), [[0.02] * 6, [0.06] * 6])
    np.testing.assert_allclose(cells(relative), 1.0)


@pytest.mark.parametrize("draw", [figure_1, figure_2, figure_3])
def test_networks_that_collapsed_are_named(draw) -> None:
    runs = sweep("vgg", 1e-4, collapsed=[(1e-4, seed) for seed in range(3)])
    title = panels(draw(runs))[0].get_title()
    assert "3 seeds, collapsed: training loss 2.5" in " ".join(title.split())


def test_a_short_pair_has_as_many_rows_as_directions() -> None:
    runs = base_trainings("vgg")
    for ds in runs.only.values():
        ds.attrs["shown_pair"] = "layers.0 > layers.1"
    assert cells(panels(figure_3(runs))[0]).shape == (5, 6)


def test_a_shown_matrix_that_is_not_there_is_named() -> None:
    runs = base_trainings("vgg")
    runs.only[0].attrs["shown_matrix"] = "conv9"
    with pytest.raises(ValueError, match="no matrix 'conv9'"):
        figure_1(runs)
