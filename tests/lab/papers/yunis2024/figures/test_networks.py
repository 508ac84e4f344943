import numpy as np
import pytest
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh

from lab.papers.yunis2024.figures.closed_form import training
from rankscope.figures.seeds import Setting
from rankscope.lab.papers.yunis2024.figures.networks import (
    alignment_of_networks,
    ranks_of_networks,
    spectra_of_networks,
)

STEPS = ["0", "10", "40", "160", "250"]  # five of 0, 10, 40, 90, 160, 250


def networks(*names: str) -> dict[str, Setting]:
    """Without the pair of another tap, which the drawing does not know about."""
    return {
        name: Setting(
            "weight decay 1", tuple(training(seed).isel(pair=[0, 1]) for seed in range(3))
        )
        for name in names
    }


def panels(axes: list[Axes]) -> list[Axes]:
    """Those that are not colour bars."""
    return [each for each in axes if each.get_label() != "<colorbar>"]


def cells(axes: Axes) -> np.ndarray:
    (mesh,) = (each for each in axes.collections if isinstance(each, QuadMesh))
    return np.ma.filled(mesh.get_array(), np.nan)


def test_spectra_of_the_shown_matrices_averaged() -> None:
    figure = spectra_of_networks(networks("VGG", "LSTM"))
    first, second = panels(figure.axes)
    assert first.get_title() == "VGG\nweight decay 1, 3 seeds\nlayers.1.weight"
    assert second.get_title() == "LSTM\nweight decay 1, 3 seeds\nlayers.1.weight"
    middle = training(1)["singular_values"].sel(matrix="layers.1.weight").to_numpy()
    drawn = [line.get_ydata() for line in first.lines]
    np.testing.assert_allclose(drawn, middle.T[::-1])
    assert [label.get_text() for label in first.get_xticklabels()] == STEPS


def test_ranks_of_whole_matrices() -> None:
    (axes,) = panels(ranks_of_networks(networks("UNet")).axes)
    S = training(1)["singular_values"].to_numpy()[:, :3]
    p = S / S.sum(-1, keepdims=True)
    want = np.exp(-(p * np.log(p)).sum(-1)) / S.shape[-1]
    np.testing.assert_allclose(cells(axes), want.T)
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["layers.0.weight", "layers.1.weight", "layers.2.weight"]


def test_alignment_in_four_rows() -> None:
    figure = alignment_of_networks(networks("VGG", "Transformer"))
    drawn = panels(figure.axes)
    assert len(drawn) == 8
    diagonal, pairs, relative, levels = drawn[::2]
    middle = training(1)
    shown = middle["alignment"].to_numpy()[:, 1]
    np.testing.assert_allclose(cells(diagonal), shown.T)
    of_all = np.stack([middle["alignment"].to_numpy()[:, 0, :5].mean(-1), shown[:, :10].mean(-1)])
    np.testing.assert_allclose(cells(pairs), of_all)
    np.testing.assert_allclose(cells(relative), of_all / 0.02)
    lines = [line.get_ydata() for line in levels.lines]
    a = shown[:, :10].mean(-1)
    want = (0.06, 2 * a, 0.02, a, 0.01)
    for line, level in zip(lines, want, strict=True):
        np.testing.assert_allclose(line, level)


def test_pairs_of_different_width_at_chance_look_alike_in_the_third_row_only() -> None:
    setting = networks("VGG")["VGG"]
    wide = xr.DataArray([1.0, 3.0], dims="pair")
    for ds in setting.runs:
        ds["alignment_background"] = ds["alignment_background"] * wide
        ds["alignment"] = xr.ones_like(ds["alignment"]) * ds["alignment_background"]
    _, pairs, relative, _ = panels(alignment_of_networks({"VGG": setting}).axes)
    np.testing.assert_allclose(cells(pairs), [[0.02] * 6, [0.06] * 6])
    np.testing.assert_allclose(cells(relative), 1.0)


def test_every_line_of_the_fourth_row_is_explained() -> None:
    figure = alignment_of_networks(networks("VGG"))
    levels = panels(figure.axes)[3]
    looks = {(line.get_color(), line.get_linestyle()) for line in levels.lines}
    (legend,) = figure.legends
    explained = {(line.get_color(), line.get_linestyle()) for line in legend.get_lines()}
    assert looks == explained
    assert len(explained) == 5


@pytest.mark.parametrize("draw", [spectra_of_networks, ranks_of_networks, alignment_of_networks])
def test_networks_that_collapsed_are_named(draw) -> None:
    setting = networks("VGG")["VGG"]._replace(collapsed=("nothing was learned",) * 3)
    title = panels(draw({"VGG": setting}).axes)[0].get_title()
    assert "3 seeds, collapsed: nothing was learned" in " ".join(title.split())


def test_a_short_pair_has_as_many_rows_as_directions() -> None:
    setting = networks("VGG")["VGG"]
    for ds in setting.runs:
        ds.attrs["shown_pair"] = "layers.0 > layers.1"
    diagonal = panels(alignment_of_networks({"VGG": setting}).axes)[0]
    assert cells(diagonal).shape == (5, 6)


def test_a_shown_matrix_that_is_not_there_is_named() -> None:
    setting = networks("VGG")["VGG"]
    setting.runs[0].attrs["shown_matrix"] = "conv9"
    with pytest.raises(ValueError, match="no matrix 'conv9'"):
        spectra_of_networks({"VGG": setting})
