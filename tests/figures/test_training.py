from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from torch import nn

import rankscope as rs
from rankscope.figures.training import (
    alignment_over_time,
    effective_rank_by_depth,
    mean_alignment_by_pair,
    overview,
    singular_values_over_time,
)

STEPS = np.array([0, 1, 2, 5, 10, 100, 1000])
SHAPES = {"embedding": (6, 300), "fc1": (4, 6), "fc1.part": (2, 6), "fc2": (150, 300)}
PAIRS = {"embedding > fc1": 4, "fc1 > fc2": 20}


def run() -> xr.Dataset:
    """Two large values grow, the rest stays: value i of a matrix is 1 + (i < 2) * snapshot."""
    k = max(min(shape) for shape in SHAPES.values())
    S = np.full((len(STEPS), len(SHAPES), k), np.nan)
    for j, shape in enumerate(SHAPES.values()):
        S[:, j, : min(shape)] = 1.0
        S[:, j, :2] += np.arange(len(STEPS))[:, None]
    S[3, 1] = np.nan  # a snapshot whose solver failed
    alignment = np.full((len(STEPS), len(PAIRS), 100), np.nan)
    for j, r in enumerate(PAIRS.values()):
        alignment[:, j, :r] = np.linspace(1, 0, r) * np.linspace(0.1, 0.7, len(STEPS))[:, None]
    return xr.Dataset(
        {
            "singular_values": (("step", "matrix", "k"), S),
            "alignment": (("step", "pair", "i"), alignment),
            "alignment_background": (("step", "pair"), np.tile([0.25, 0.5], (len(STEPS), 1))),
        },
        coords={
            "step": STEPS,
            "matrix": list(SHAPES),
            "m": ("matrix", [m for m, _ in SHAPES.values()]),
            "n": ("matrix", [n for _, n in SHAPES.values()]),
            "kind": ("matrix", ["linear"] * len(SHAPES)),
            "part_of": ("matrix", ["", "", "fc1", ""]),
            "pair": list(PAIRS),
            "pair_kind": ("pair", ["linear"] * len(PAIRS)),
            "i": np.arange(1, 101),
        },
    )


def mesh_values(axes: Axes) -> np.ndarray:
    """The numbers of a heat map, rows from the top; NaN where nothing is drawn."""
    (mesh,) = (artist for artist in axes.collections if isinstance(artist, QuadMesh))
    assert axes.yaxis_inverted()
    return np.ma.filled(mesh.get_array().astype(float), np.nan)


def labels(axis: object) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def test_each_singular_value_is_a_line_over_the_steps() -> None:
    axes, bar = singular_values_over_time(run(), "fc1").axes
    lines = [line.get_ydata() for line in axes.lines]
    grow = np.where(np.arange(7) == 3, np.nan, 1.0 + np.arange(7))
    flat = np.where(np.arange(7) == 3, np.nan, 1.0)
    np.testing.assert_array_equal(lines, [flat, flat, grow, grow])
    assert axes.get_title() == "fc1"
    numbered = run().assign_coords(matrix=list(map(str, range(run().sizes["matrix"]))))
    assert singular_values_over_time(numbered, "0").axes[0].get_title() == "matrix 0"
    assert axes.get_ylabel() == "singular value"
    assert bar.get_ylabel() == "index (1 = largest)"
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), STEPS)
    assert labels(axes.xaxis) == ["0", "10", "100", "1k"]
    assert axes.get_xlabel() == "training step (log scale)"


def test_many_values_are_thinned_evenly_keep_both_ends_and_darken_with_size() -> None:
    ds = run()
    ds["singular_values"].loc[{"matrix": "fc2"}] = np.arange(150, 0, -1)
    axes = singular_values_over_time(ds, "fc2").axes[0]
    drawn = [line.get_ydata()[0] for line in axes.lines]
    assert len(drawn) == 100
    assert (drawn[0], drawn[-1]) == (1, 150)
    assert set(np.diff(drawn)) == {1, 2}
    lightness = [float(np.dot(line.get_color()[:3], (0.3, 0.6, 0.1))) for line in axes.lines]
    assert lightness == sorted(lightness, reverse=True)
    assert lightness[0] - lightness[-1] > 0.5


def test_effective_rank_rows_are_whole_matrices_in_model_order() -> None:
    axes, bar = effective_rank_by_depth(run()).axes
    assert bar.get_ylabel() == "effective rank / min(m, n)"
    assert labels(axes.yaxis) == ["embedding", "fc1", "fc2"]
    ranks = mesh_values(axes)
    # All values equal: full rank. One snapshot failed.
    np.testing.assert_allclose(ranks[:, 0], 1.0)
    assert np.argwhere(np.isnan(ranks)).tolist() == [[1, 3]]
    p = np.array([7, 7, 1, 1]) / 16
    np.testing.assert_allclose(ranks[1, 6], np.exp(-(p * np.log(p)).sum()) / 4)


def test_names_are_thinned_where_they_would_overlap() -> None:
    count = 130
    ds = run().isel(matrix=[1] * count).assign_coords(matrix=[f"layer{j}" for j in range(count)])
    axes = effective_rank_by_depth(ds).axes[0]
    assert mesh_values(axes).shape == (count, 7)
    names = labels(axes.yaxis)
    assert names == [f"layer{j}" for j in range(0, count, 3)]  # 44; every second would be 65
    assert [f"layer{int(tick)}" for tick in axes.get_yticks()] == names


def test_overview_shows_the_middle_matrix_unless_named() -> None:
    left, right = overview(run()).axes[:2]
    assert left.get_title() == "fc1"
    assert mesh_values(right).shape == (3, 7)
    assert overview(run(), "fc2").axes[0].get_title() == "fc2"


def test_alignment_of_one_pair_with_its_background() -> None:
    ds = run()
    upper, lower, bar = alignment_over_time(ds, "fc1 > fc2").axes
    assert "A_{ii}" in bar.get_ylabel()
    want = ds["alignment"].sel(pair="fc1 > fc2").to_numpy()[:, :20]
    np.testing.assert_array_equal(mesh_values(upper), want.T)
    assert labels(upper.yaxis)[0] == "1" and labels(upper.yaxis)[-1] == "20"
    mean, background = (line.get_ydata() for line in lower.lines)
    np.testing.assert_allclose(mean, want[:, :10].mean(1))
    np.testing.assert_array_equal(background, np.full(7, 0.5))
    assert lower.get_legend() is not None


def test_mean_alignment_averages_over_what_there_is() -> None:
    ds = run()
    figure = mean_alignment_by_pair(ds)
    a = ds["alignment"].to_numpy()
    want = np.stack([a[:, 0, :4].mean(1), a[:, 1, :10].mean(1)])
    np.testing.assert_allclose(mesh_values(figure.axes[0]), want)
    assert labels(figure.axes[0].yaxis) == list(PAIRS)
    marks = [line for line in figure.axes[1].lines if line.get_color() == "white"]
    assert [set(mark.get_ydata()) for mark in marks] == [{0.25}, {0.5}]


def test_a_run_of_one_snapshot_draws_points() -> None:
    axes = singular_values_over_time(run().isel(step=[0]), "fc1").axes[0]
    assert {line.get_marker() for line in axes.lines} == {"."}
    assert labels(axes.xaxis) == ["0"]


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(ValueError, match="no matrix 'fc3'; it has embedding, fc1, "):
        singular_values_over_time(run(), "fc3")
    plain = run().drop_dims(["pair", "i"])
    with pytest.raises(ValueError, match="no pair 'fc1 > fc2'; it has none"):
        alignment_over_time(plain, "fc1 > fc2")
    with pytest.raises(ValueError, match="no variable 'alignment'"):
        mean_alignment_by_pair(plain)


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("draw", [overview, effective_rank_by_depth, mean_alignment_by_pair])
def test_any_tracked_run_can_be_drawn(tmp_path: Path, draw, steps: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 1), nn.Linear(1, 8))
    nn.init.zeros_(model[1].weight)
    with rs.Tracker(model, tmp_path / "run", schedule=1, pairs=[rs.Pair("0", "1")]) as tracker:
        for step in range(steps):
            tracker.observe(step)
    figure: Figure = draw(rs.open(tmp_path / "run"))
    figure.draw_without_rendering()


def test_a_run_without_matrices(tmp_path: Path) -> None:
    with rs.Tracker(nn.Linear(2, 2), tmp_path / "run") as tracker:
        tracker.observe(0)
    ds = rs.open(tmp_path / "run").isel(matrix=slice(0), k=slice(0))
    for draw in (overview, effective_rank_by_depth):
        with pytest.raises(ValueError, match="no matrices; look at its attribute 'coverage'"):
            draw(ds)


def test_archived_runs_are_drawn_where_they_have_spectra() -> None:
    ds = run()
    before = mesh_values(effective_rank_by_depth(ds).axes[0]).shape[1]
    thinned = ds.assign(singular_values=ds["singular_values"].where(ds["step"] != ds["step"][1]))
    thinned.attrs["compaction"] = {"class": "Thinned"}
    assert mesh_values(effective_rank_by_depth(thinned).axes[0]).shape[1] == before - 1
    name = str(ds["matrix"][0].item())
    lines = singular_values_over_time(thinned, name).axes[0].lines
    assert len(lines[0].get_ydata()) == ds.sizes["step"] - 1
