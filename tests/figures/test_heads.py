from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from matplotlib.collections import QuadMesh
from torch import nn

import rankscope as rs
from rankscope.figures import head_ranks_over_time, product_spectra_over_time


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    path, net = tmp_path_factory.mktemp("runs") / "heads", nn.MultiheadAttention(8, 2)
    with rs.Tracker(net, path, schedule=[0, 1, 2]) as tracker:
        for step in range(3):
            tracker.observe(step)
            with torch.no_grad():
                net.in_proj_weight[:8] += 0.3
    return rs.open(path)


def test_cells_are_stable_ranks_of_products_and_changes(run: xr.Dataset) -> None:
    figure = head_ranks_over_time(run)
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == [
        "queries-keys: product",
        "queries-keys: change of the product",
        "values-output: product",
        "values-output: change of the product",
    ]
    (mesh,) = (item for item in panels[0].collections if isinstance(item, QuadMesh))
    ranks = run.rankscope.stable_rank(of="product_singular_values")
    expected = ranks.sel(product=["h0.kq", "h1.kq"]).transpose("product", "step")
    np.testing.assert_allclose(mesh.get_array(), expected, rtol=1e-6)
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["h0", "h1"]


def test_lines_of_one_product(run: xr.Dataset) -> None:
    left, right, *_ = product_spectra_over_time(run, "h0.kq").axes
    assert len(left.lines) == 4 and len(right.lines) == 8  # a change has twice the inner width
    with pytest.raises(ValueError, match=r"no product 'h9.kq'; it has h0.kq"):
        product_spectra_over_time(run, "h9.kq")


def test_a_run_without_heads_says_so(tmp_path: Path) -> None:
    with rs.Tracker(nn.Linear(3, 4), tmp_path / "plain", schedule=[0]) as tracker:
        tracker.observe(0)
    with pytest.raises(ValueError, match="no products"):
        head_ranks_over_time(rs.open(tmp_path / "plain"))
