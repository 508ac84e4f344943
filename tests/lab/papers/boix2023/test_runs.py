"""Readings of attention heads, against dense products and hand-made runs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import rankscope as rs
from lab.papers.boix2023.vit_runs import EPOCHS, RATES, courses, vit_run
from rankscope.lab.papers.boix2023.runs import (
    CHANGE,
    INITIAL,
    change_effective_ranks,
    change_ranks,
    epoch_steps,
    growth_start,
    growth_window,
    initial_ranks,
    learning_rate_sums,
    moment,
    spectra,
    stop_of,
    time_unit,
    times,
)

EVERY = {"snapshots": {"class": "Every", "steps": 10}, **RATES}


class Two(nn.Module):
    """Two attentions of two heads; the second is called first by name."""

    def __init__(self) -> None:
        super().__init__()
        self.z = nn.MultiheadAttention(6, 2, batch_first=True)
        self.a = nn.MultiheadAttention(6, 2, batch_first=True)


def products(model: Two, kind: str) -> np.ndarray:
    """(block, head, 6, 6), multiplied out."""
    each_head = []
    for attention in (model.z, model.a):
        query, key, value = attention.in_proj_weight.detach().double().split(6)
        output = attention.out_proj.weight.detach().double()
        for rows in (slice(0, 3), slice(3, 6)):
            kq, vo = key[rows].T @ query[rows], output[:, rows] @ value[rows]
            each_head.append((kq if kind == "kq" else vo).numpy())
    return np.stack(each_head).reshape(2, 2, 6, 6)


def stable(W: np.ndarray) -> np.ndarray:
    return np.square(np.linalg.norm(W, axis=(-2, -1)) / np.linalg.norm(W, 2, axis=(-2, -1)))


@pytest.mark.parametrize("kind", ["kq", "vo"])
def test_ranks_and_spectra_are_those_of_the_dense_products(tmp_path: Path, kind: str) -> None:
    model = Two()
    before = products(model, kind)
    with rs.Tracker(model, tmp_path / "run", schedule=1, pairs=()) as tracker:
        tracker.observe(0)
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(0.5).add_(0.3 * torch.randn(weight.shape))
        tracker.observe(1)
    ds, after = rs.open(tmp_path / "run"), products(model, kind)
    np.testing.assert_allclose(initial_ranks(ds, kind), stable(before), rtol=1e-4)
    ranks = change_ranks(ds, kind)
    assert ranks.dims == ("step", "block", "head")
    assert ranks["block"].values.tolist() == ranks["head"].values.tolist() == [1, 2]
    assert np.isnan(ranks[0]).all()
    np.testing.assert_allclose(ranks[1], stable(after - before), rtol=1e-4)
    change = np.linalg.svd(after - before, compute_uv=False)
    effective = change_effective_ranks(ds, kind)
    assert effective.dims == ("step", "block", "head") and np.isnan(effective[0]).all()
    shares = change / change.sum(-1, keepdims=True)
    entropy = -np.sum(shares * np.log(np.where(shares > 0, shares, 1)), axis=-1)
    np.testing.assert_allclose(effective[1], np.exp(entropy), rtol=1e-3)
    np.testing.assert_allclose(spectra(ds, kind, of=CHANGE)[1], change, atol=1e-5)
    start = np.linalg.svd(before, compute_uv=False)[..., :3]
    np.testing.assert_allclose(spectra(ds, kind, of=INITIAL)[0, ..., :3], start, atol=1e-5)


def test_a_run_without_heads_is_refused() -> None:
    ds = vit_run(courses([0, 1]))
    with pytest.raises(ValueError, match="no products of kind 'vo'"):
        change_ranks(ds.isel(product=slice(0, None, 2)), "vo")


STEPS = [0, 5, 10, 20, 30, 40]


@pytest.mark.parametrize(
    ("loss", "window", "snapshots"),
    [
        ([1, 1, 0.5, 0.1, 9e-4, 2e-3], (2, 4, True), 3),
        ([1, 1, 0.5, 0.1, 1e-3, 2e-3], (2, 5, False), 4),
        ([1, 1e-4, 0, 0, 0, 0], (2, 1, True), 0),
    ],
)
def test_the_window_is_from_epoch_one_to_the_settled_loss(
    loss: list[float], window: tuple[int, int, bool], snapshots: int
) -> None:
    measured = growth_window(vit_run(courses(range(6)), steps=STEPS, loss=loss))
    assert measured == window and measured.snapshots == snapshots


def warming_up(rate: float) -> dict:
    """A peak rate reached over 20 steps, constant from there."""
    rates = {"class": "Cosine", "span": 20, "warm_up": 20, "floor": 1.0}
    return EPOCHS | {"optimizer": {"class": "AdamW", "rate": rate}, "rate": rates}


def test_learning_rates_are_summed_over_the_steps_before_a_snapshot() -> None:
    ds = vit_run(courses(range(6)), steps=STEPS, declaration=warming_up(0.1))
    warm = [0.1 * step * (step + 1) / 2 / 20 for step in (0, 5, 10, 20)]
    np.testing.assert_allclose(learning_rate_sums(ds), [*warm, warm[-1] + 1, warm[-1] + 2])
    constant = vit_run(courses(range(6)), steps=STEPS)
    np.testing.assert_allclose(learning_rate_sums(constant), 2.5e-4 * np.array(STEPS))


@pytest.mark.parametrize(
    ("declaration", "position"),
    [
        (EPOCHS, 2),  # 2.5e-3 at step 10
        (warming_up(2.5e-3 / 2.75), 2),  # as much at step 10
        (warming_up(2.5e-3 / 2.76), 3),
        (EPOCHS | {"optimizer": {"class": "AdamW", "rate": 2.5e-3}}, 1),
        (EPOCHS | {"optimizer": {"class": "AdamW", "rate": 6e-5}}, None),
    ],
)
def test_growth_starts_when_the_learning_rates_sum_to_so_much(
    declaration: dict, position: int | None
) -> None:
    ds = vit_run(courses(range(6)), steps=STEPS, declaration=declaration)
    assert growth_start(ds) == position


def test_without_epochs_the_window_is_all_after_step_0_and_time_is_the_step() -> None:
    ds = vit_run(courses(range(4)), steps=[0, 1, 5, 30], declaration=EVERY)
    assert epoch_steps(ds) is None and growth_window(ds).first == 1
    assert (time_unit(ds), times(ds).tolist()) == ("step", [0, 1, 5, 30])
    by_epochs = vit_run(courses(range(4)), steps=[0, 5, 10, 30])
    assert (time_unit(by_epochs), times(by_epochs).tolist()) == ("epoch", [0, 0.5, 1, 3])
    assert (moment(ds, 3), moment(by_epochs, 1)) == ("step 30", "epoch 0.5")


@pytest.mark.parametrize(
    ("schedule", "stopped_at", "moment", "wait"),
    [(EPOCHS, 1430, "epoch 143", "5 epochs"), (EVERY, 143, "step 143", "50 steps")],
)
def test_how_a_run_stopped(schedule: dict, stopped_at: int, moment: str, wait: str) -> None:
    declaration = schedule | {"stop": {"class": "Settled", "loss": 0.001, "steps": 50}}
    ds = vit_run(courses([0, 1]), declaration=declaration)
    assert stop_of(ds) == ""
    assert stop_of(ds.assign_attrs(stopped_at=stopped_at)) == (
        f"stopped at {moment}, at the first snapshot {wait} or more after one with training "
        "loss < 0.001"
    )
