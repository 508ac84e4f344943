"""Figures of measures show the stored values, and runs with measures draw like any other."""

import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

import rankscope as rs
from measures.training import train
from rankscope import figures

ALL = [
    rs.Updates(),
    rs.Gradients(),
    rs.Moments(),
    rs.Activations(["first", "attention"]),
    rs.Attention(),
    rs.Rotation(leading=2),
]
NAMES = ["updates", "gradients", "activations", "attention", "rotation", "tails"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    path = tmp_path_factory.mktemp("runs") / "all"
    train(path, ALL)
    return rs.open(path)


def panels(figure: Figure) -> dict[str, np.ndarray]:
    """Return the values of each heat map by its title."""
    meshes = {}
    for axes in figure.axes:
        drawn = [c for c in axes.collections if isinstance(c, QuadMesh)]
        if drawn and axes.get_title():
            meshes[axes.get_title()] = drawn[0].get_array().filled(np.nan)
    return meshes


def test_heat_maps_hold_the_stored_values(run: xr.Dataset) -> None:
    whole = run.rankscope.whole()
    drawn = panels(figures.updates_over_time(run))
    np.testing.assert_allclose(
        drawn["inside the leading directions"], whole.update_share.T, rtol=1e-6
    )
    np.testing.assert_allclose(drawn["size of the update"], np.log10(whole.update_norm_ratio).T)
    drawn = panels(figures.gradients_over_time(run))
    assert list(drawn) == ["gradient", "first moment", "second moment"]
    np.testing.assert_allclose(drawn["gradient"], whole.gradient_stable_rank.T)
    drawn = panels(figures.attention_over_time(run))
    np.testing.assert_allclose(drawn["bound on any logit"], run.attention_logit_bound.T)
    drawn = panels(figures.rotation_over_time(run))
    np.testing.assert_allclose(drawn["intruder directions"], whole.intruders.T)


def test_lines_of_activations_hold_the_stored_values(run: xr.Dataset) -> None:
    left, _, right = figures.activations_over_time(run).axes
    solid = [line for line in left.get_lines() if line.get_linestyle() == "-"]
    expected = run.activation_effective_rank.sel(activation="first")
    np.testing.assert_allclose(solid[0].get_ydata(), expected)
    assert [line.get_label() for line in right.get_lines()] == ["first", "attention"]


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_is_drawn_and_saved(run: xr.Dataset, name: str, tmp_path) -> None:
    figure = getattr(figures, f"{name}_over_time")(run)
    png, svg = figures.save(figure, tmp_path / name)
    assert png.stat().st_size > 5000 and svg.stat().st_size > 5000


def test_a_run_with_all_measures_is_compared_and_summarised_like_any_other(
    run: xr.Dataset, tmp_path
) -> None:
    train(tmp_path / "plain")
    plain = rs.open(tmp_path / "plain")
    figures.compare_runs({"all": run, "plain": plain})
    figures.compare_matrices({"all": run, "plain": plain})
    figures.overview(run)
    table = rs.summary(run)
    assert list(table.index) == list(rs.summary(plain).index)
    np.testing.assert_allclose(run.singular_values, plain.singular_values, rtol=1e-12)


@pytest.mark.parametrize("name", NAMES[:-1])
def test_a_run_without_the_measure_is_refused(tmp_path, name: str) -> None:
    train(tmp_path / "plain", steps=1)
    with pytest.raises(ValueError, match="this run has no"):
        getattr(figures, f"{name}_over_time")(rs.open(tmp_path / "plain"))
