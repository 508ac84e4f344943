"""Digests against closed forms, and how many numbers they hold."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn

import rankscope as rs
from rankscope.accessor import METRICS
from rankscope.sinks import digest
from rankscope.sinks.digest import MOST, heat_map
from sinks.runs import known_run


def test_roll_ups_are_means_and_extremes(tmp_path: Path) -> None:
    snapshot = digest(known_run(tmp_path / "run"), metrics=["effective_rank"])
    assert snapshot.step == 2
    assert snapshot.scalars == pytest.approx(
        {  # effective ranks 4, 2 and 4; changes 0, sqrt(2) of sqrt(2), and 2/3
            "effective_rank/mean": 10 / 3,
            "effective_rank/lowest": 2,
            "effective_rank/highest": 4,
            "effective_rank/kind/linear": 3,
            "effective_rank/kind/embedding": 4,
            "relative_change/mean": 5 / 9,
            "relative_change/lowest": 0,
            "relative_change/highest": 1,
            "relative_change/kind/linear": 0.5,
            "relative_change/kind/embedding": 2 / 3,
        }
    )
    assert snapshot.names == {
        "effective_rank/lowest": "b",
        "effective_rank/highest": "a",
        "relative_change/lowest": "a",
        "relative_change/highest": "b",
    }
    labelled = snapshot.labelled()
    assert labelled["rankscope/effective_rank/lowest"] == pytest.approx(2)
    assert labelled["rankscope/effective_rank/lowest_of"] == "b"


def test_single_matrices_are_added_on_request(tmp_path: Path) -> None:
    run = known_run(tmp_path / "run")
    plain = digest(run, metrics=["stable_rank"])
    snapshot = digest(run, metrics=["stable_rank"], matrices=["[ab]"])
    added = snapshot.scalars.keys() - plain.scalars.keys()
    assert added == {f"{m}/matrix/{n}" for m in ("stable_rank", "relative_change") for n in "ab"}
    assert snapshot.scalars["stable_rank/matrix/b"] == pytest.approx(2)


class Varied(nn.Module):
    """More kinds of matrices than a digest has room for."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
        self.embedding = nn.Embedding(3, 2)
        self.conv, self.bag = nn.Conv1d(2, 2, 2), nn.EmbeddingBag(3, 2)
        self.attention = nn.MultiheadAttention(2, 1)
        self.recurrent = nn.ModuleList([nn.LSTM(2, 2), nn.GRU(2, 2), nn.RNN(2, 2)])
        self.bilinear = nn.Bilinear(2, 2, 2)


def test_there_are_at_most_forty(tmp_path: Path) -> None:
    with rs.Tracker(Varied(), tmp_path / "run", strict=True) as tracker:
        tracker.observe(0)
    run = rs.open(tmp_path / "run")
    assert len(set(run.rankscope.whole().kind.values)) >= 7
    for count in (1, 3, 7, 12):
        metrics = METRICS[:count]
        assert count < len(digest(run, metrics=metrics).scalars) <= MOST == 40
    assert "stable_rank/kind/linear" in digest(run).scalars  # the most frequent kind stays


def test_matrices_without_values_are_left_out(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    with torch.no_grad():
        model[0].weight.fill_(math.nan)
        model[1].weight.zero_()
    with (
        pytest.warns(RuntimeWarning, match="cannot be decomposed"),
        rs.Tracker(model, tmp_path / "run") as tracker,
    ):
        tracker.observe(0)
    snapshot = digest(rs.open(tmp_path / "run"), matrices="*")
    assert snapshot.scalars == {
        f"spectral_norm/{name}": 0.0
        for name in ("mean", "lowest", "highest", "kind/linear", "matrix/1")
    }
    assert heat_map(rs.open(tmp_path / "run")).shape[-1] == 3


def test_a_run_of_leading_values_has_a_digest_too(tmp_path: Path) -> None:
    leading = known_run(tmp_path / "leading", spectrum=2)
    full = known_run(tmp_path / "full")
    assert "singular_values" not in leading
    exact = digest(full, metrics=["stable_rank", "spectral_norm", "frobenius_norm"])
    snapshot = digest(leading)
    assert snapshot.scalars == pytest.approx(exact.scalars, rel=1e-3, abs=1e-6)
    assert snapshot.names.keys() == exact.names.keys()
    assert heat_map(leading).std() > 10
    with pytest.raises(ValueError, match="effective_rank needs the full spectrum"):
        digest(leading, metrics=["effective_rank"])
    assert rs.StopIf("stable_rank < 3", matrices="b").check(leading)
    assert rs.StopIf("stable_rank < 3", of="change_singular_values").check(leading)


@pytest.mark.parametrize("metric", METRICS)
def test_each_metric_can_be_logged_and_watched(shared: xr.Dataset, metric: str) -> None:
    values = getattr(shared.rankscope, metric)().isel(step=-1)
    mean = digest(shared, metrics=[metric]).scalars.get(f"{metric}/mean", math.nan)
    finite = values.where(np.isfinite(values))
    assert mean == pytest.approx(float(finite.mean()), rel=1e-5, nan_ok=True)
    expected = bool((values > 1).any())
    assert rs.StopIf(f"{metric} > 1").check(shared) == expected


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    return known_run(tmp_path_factory.mktemp("shared") / "run").load()


def test_bad_metrics_are_refused() -> None:
    with pytest.raises(ValueError, match="there is no metric 'rank'; there are effective_rank, "):
        rs.sinks.TensorBoard("logs", metrics=["rank"])
    with pytest.raises(ValueError, match="metrics: expected at most 12, got 13"):
        rs.sinks.WandB(metrics=["stable_rank"] * 13)


def test_the_heat_map_darkens_where_values_are_small(tmp_path: Path) -> None:
    figure = rs.figures.spectra_by_matrix(known_run(tmp_path / "run"))
    axes = figure.axes[0]
    (mesh,) = (artist for artist in axes.collections)
    rows = np.ma.filled(mesh.get_array().reshape(3, -1), -math.inf)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "e"]
    assert (rows[[0, 2]] == 0).all()
    assert (rows[1, :25] == 0).all() and (rows[1, 25:] < -5).all()  # two of four values are zero
    pixels = heat_map(rs.open(tmp_path / "run"))
    assert pixels.dtype == np.uint8 and pixels.std() > 10
