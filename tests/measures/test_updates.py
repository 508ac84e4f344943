"""Updates, against a dense computation of the weights before and after each step."""

import numpy as np
import pytest
import torch
from torch import nn

import rankscope as rs
from measures.training import train
from rankscope.measures.updates import cosine, leading_share
from rankscope.tracker.gauging import checked_measures


def spectrum(W: torch.Tensor) -> np.ndarray:
    return torch.linalg.svdvals(W).numpy()


@pytest.mark.parametrize("order", ["before step", "first"])
def test_updates_are_those_of_the_step_that_follows_the_snapshot(tmp_path, order: str) -> None:
    _, weights = train(tmp_path / "run", [rs.Updates(leading=2)], order=order)
    ds = rs.open(tmp_path / "run").sel(matrix="out")
    W = [before["out.weight"] for before in weights]
    for step in range(5):
        update = W[step + 1] - W[step]
        row = ds.sel(step=step)
        np.testing.assert_allclose(row.update_singular_values[:3], spectrum(update), rtol=1e-7)
        ratio = float(update.norm() / W[step].norm())
        np.testing.assert_allclose(row.update_norm_ratio, ratio, rtol=1e-9)
        U, _, Vh = torch.linalg.svd(W[step])
        share = ((U[:, :2].mT @ update @ Vh[:2].mT).norm() / update.norm()) ** 2
        np.testing.assert_allclose(row.update_share, float(share), rtol=1e-6)
        if step:
            last, way = W[step] - W[step - 1], W[step] - W[0]
            np.testing.assert_allclose(row.update_cosine_last, cosine(update, last), rtol=1e-6)
            np.testing.assert_allclose(row.update_cosine_start, cosine(update, way), rtol=1e-6)
    assert np.isnan(ds.update_cosine_last[0]) and np.isnan(ds.update_cosine_start[0])


def test_a_loop_that_observes_after_the_step_has_its_updates_one_later(tmp_path) -> None:
    _, weights = train(tmp_path / "run", [rs.Updates()], order="after step")
    ds = rs.open(tmp_path / "run").sel(matrix="first")
    assert list(ds.step.values) == [1, 2, 3, 4, 5]
    for step in range(1, 5):
        update = weights[step + 1]["first.weight"] - weights[step]["first.weight"]
        row = ds.update_singular_values.sel(step=step)[:6]
        np.testing.assert_allclose(row, spectrum(update), rtol=1e-7)
    assert np.isnan(ds.update_singular_values.sel(step=5)).all()  # no step follows


def test_updates_of_products_are_changes_of_the_product(tmp_path) -> None:
    _, weights = train(tmp_path / "run", [rs.Updates()])
    ds = rs.open(tmp_path / "run")
    products = [rs.matrices.manifest(nn.MultiheadAttention(8, 2, bias=False)).products[0]] * 2
    dense = []
    for step, product in zip((2, 3), products, strict=True):
        named = {"in_proj_weight": weights[step]["attention.in_proj_weight"]}
        factors = product.product(named)
        dense.append(factors.left @ factors.right.mT)
    row = ds.product_update_singular_values.sel(step=2, product="attention.h0.kq")[:8]
    np.testing.assert_allclose(row, spectrum(dense[1] - dense[0]), rtol=1e-5, atol=1e-12)
    ranks = ds.rankscope.stable_rank(of="product_update_singular_values")
    assert float(ranks.min()) >= 1


def test_only_the_first_of_two_optimizers_reaches_its_parameters(tmp_path) -> None:
    """Matrices that another optimizer holds have their own updates; those of none are NaN."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    one = torch.optim.SGD(model[0].parameters(), lr=0.1)
    two = torch.optim.SGD(model[1].parameters(), lr=0.2)
    with rs.Tracker(model, tmp_path / "run", schedule=1, measure=rs.Updates()) as tracker:
        for step in range(3):
            tracker.observe(step)
            model(torch.randn(8, 4)).square().mean().backward()
            before = model[1].weight.detach().clone()
            one.step()
            two.step()
            after = model[1].weight.detach().clone()
    ds = rs.open(tmp_path / "run")
    measured = ds.update_singular_values.sel(step=2)
    expected = spectrum(after.double() - before.double())
    np.testing.assert_allclose(measured.sel(matrix="1"), expected, rtol=1e-4)
    assert np.isfinite(measured.sel(matrix="0")).all() and np.isnan(measured.sel(matrix="2")).all()


def test_shares_and_cosines_of_closed_forms() -> None:
    torch.manual_seed(0)
    U = torch.linalg.qr(torch.randn(7, 7, dtype=torch.float64)).Q
    V = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64)).Q
    W = U[:, :5] @ torch.diag(torch.tensor([5.0, 4, 3, 2, 1], dtype=torch.float64)) @ V.mT
    inside, outside = torch.outer(U[:, 0], V[:, 1]), torch.outer(U[:, 6], V[:, 0])
    assert leading_share(inside, W, V[:, :2]) == pytest.approx(1)
    assert leading_share(outside, W, V[:, :2]) == pytest.approx(0)
    assert leading_share(inside + outside, W, V[:, :2]) == pytest.approx(0.5)
    assert cosine(inside, -3 * inside) == pytest.approx(-1)
    assert cosine(inside, outside) == pytest.approx(0, abs=1e-12)
    assert np.isnan(cosine(inside, torch.zeros(7, 5)))


def test_an_update_that_rounds_to_nothing_is_zero(tmp_path) -> None:
    train(
        tmp_path / "run",
        [rs.Updates()],
        make=lambda model: torch.optim.SGD(model.parameters(), lr=0.0),
    )
    ds = rs.open(tmp_path / "run").sel(step=0, matrix="out")
    assert (ds.update_singular_values[:3] == 0).all() and ds.update_norm_ratio == 0
    assert np.isnan(ds.update_share)


def test_bad_options_are_refused(tmp_path) -> None:
    model = nn.Linear(3, 3)
    with pytest.raises(ValueError, match="leading is at least 1"):
        rs.Tracker(model, tmp_path / "run", measure=[rs.Updates(leading=0)])
    with pytest.raises(ValueError, match="'updates' is listed twice"):
        rs.Tracker(model, tmp_path / "run", measure=[rs.Updates(), rs.Updates()])
    for wrong in (["updates"], [rs.Updates]):
        with pytest.raises(ValueError, match=r"expected a list such as \[rankscope.Updates\(\)\]"):
            checked_measures(wrong)


def test_all_measures_work_where_leading_values_are_kept(tmp_path) -> None:
    measure = [
        rs.Updates(leading=2),
        rs.Gradients(),
        rs.Moments(),
        rs.Rotation(leading=2),
        rs.Attention(),
        rs.Activations("first"),
    ]
    _, weights = train(tmp_path / "run", measure, spectrum=3)
    ds = rs.open(tmp_path / "run")
    update = weights[2]["out.weight"] - weights[1]["out.weight"]
    row = ds.sel(step=1, matrix="out").update_leading_values
    np.testing.assert_allclose(row, spectrum(update)[:3], rtol=1e-6)
    ranks = ds.rankscope.stable_rank(of="update_singular_values").sel(step=1, matrix="out")
    S = spectrum(update)
    np.testing.assert_allclose(ranks, (S**2).sum() / S[0] ** 2, rtol=1e-5)
    assert np.isfinite(ds.rotation_start.sel(matrix="out")).all() and np.isnan(ds.intruders).all()
    assert np.isfinite(ds.attention_logit_bound).all()
    assert np.isfinite(ds.update_share.sel(matrix="out")).all()
