"""Norms of the parts of a head's change, against dense matrices."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from rankscope import Tracker, store
from rankscope.lab.models.vit import VitConfig
from rankscope.lab.papers.findings import clock
from rankscope.lab.tasks.head_changes import HeadChanges, change_norms, number_name
from rankscope.lab.training.sweep import from_scale
from rankscope.matrices import Product, products


def drawn(seed: int, *, m: int = 7, n: int = 9, r: int = 3, size: float = 1.0) -> Product:
    generator = torch.Generator().manual_seed(seed)
    left, right = (
        size * torch.randn(side, r, generator=generator, dtype=torch.float64) for side in (m, n)
    )
    return Product(left, right)


def moved(before: Product, by: Product) -> Product:
    return Product(before.left + by.left, before.right + by.right)


def dense_parts(now: Product, before: Product) -> tuple[torch.Tensor, torch.Tensor]:
    """The linearised and the bilinear part as matrices."""
    d_left, d_right = now.left - before.left, now.right - before.right
    linearised = d_left @ before.right.mT + before.left @ d_right.mT
    return linearised, d_left @ d_right.mT


@pytest.mark.parametrize("size", [10.0, 1.0, 1e-3])
def test_norms_are_those_of_dense_matrices(size: float) -> None:
    before = drawn(0)
    now = moved(before, drawn(1, size=size))
    linearised, bilinear = dense_parts(now, before)
    change = now.left @ now.right.mT - before.left @ before.right.mT
    torch.testing.assert_close(linearised + bilinear, change, rtol=1e-9, atol=1e-12)
    dense = torch.stack([part.norm() for part in (linearised, bilinear, linearised + bilinear)])
    torch.testing.assert_close(change_norms(now, before), dense, rtol=1e-10, atol=0)


def test_tiny_changes_lose_no_digits() -> None:
    """At a relative change of 1e-12 the bilinear part is 1e-24 of the product."""
    before, direction = drawn(0), drawn(1)
    small = change_norms(moved(before, drawn(1, size=1e-12)), before)
    parts = dense_parts(moved(before, direction), before)
    expected = [1e-12 * float(parts[0].norm()), 1e-24 * float(parts[1].norm())]
    np.testing.assert_allclose(small[:2], expected, rtol=1e-3)


def test_no_change_is_zero_and_one_moving_factor_has_no_bilinear_part() -> None:
    before = drawn(0)
    assert change_norms(before, before).tolist() == [0.0, 0.0, 0.0]
    now = Product(before.left + 1.0, before.right)
    linearised, bilinear, change = change_norms(now, before).tolist()
    assert bilinear == 0.0 and linearised == pytest.approx(change) and change > 0


def test_a_small_start_is_all_bilinear() -> None:
    """With K0 and Q0 scaled by s the ratio of the parts grows as 1 / s."""
    by, ratios = drawn(1), []
    for scale in (1e-2, 1e-4):
        before = drawn(0, size=scale)
        linearised, bilinear, _ = change_norms(moved(before, by), before).tolist()
        ratios.append(bilinear / linearised)
    assert ratios[1] == pytest.approx(100 * ratios[0], rel=1e-6)


def test_a_model_without_heads_is_refused() -> None:
    with pytest.raises(ValueError, match="Linear has no K-Q products"):
        HeadChanges(nn.Linear(3, 3))


def test_a_tracker_stores_the_norms_of_every_head(tmp_path: Path) -> None:
    model = VitConfig(image=8, patch=4, depth=2, heads=2, width=16, hidden=16, head_width=4).build()
    before = products(model)
    names = [name for name in before if name.endswith(".kq")]
    before = {n: Product(before[n].left.clone(), before[n].right.clone()) for n in names}
    with Tracker(model, tmp_path / "run", schedule=[0, 1], probe=HeadChanges(model)) as tracker:
        tracker.snapshot(0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        tracker.snapshot(1)
    ds, now = store.open(tmp_path / "run"), products(model)
    assert len(names) == 4
    for head, name in enumerate(names):
        parts = dense_parts(now[name], before[name])
        for part, dense in zip(("linearised", "bilinear"), parts, strict=True):
            stored = ds[number_name(part, head)].to_numpy()
            assert stored[0] == 0 and stored[1] == pytest.approx(float(dense.norm()), rel=1e-4)


def test_a_training_has_them_and_the_order_is_that_of_its_products(tmp_path: Path) -> None:
    run = clock.with_clock(from_scale(replace(clock.VIT["smoke"], steps=10), 0.3))
    run.execute(tmp_path / "run", seed=0, progress=lambda fraction, note="": None)
    ds = store.open(tmp_path / "run")
    at = np.flatnonzero(ds["product_kind"].to_numpy() == "kq")
    spectra = ds["product_change_singular_values"].transpose("step", "product", "k")[:, at]
    norms = np.sqrt((spectra.to_numpy().astype(np.float64) ** 2).sum(-1))
    stored = [ds[number_name("change", head)].to_numpy() for head in range(len(at))]
    np.testing.assert_allclose(np.stack(stored, axis=1), norms, rtol=1e-5)
    assert (norms[1:] > 0).all()
