"""Moments, against the state of real optimizers."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import rankscope as rs
from rankscope.measures.moments import muon_step

MAKERS = {
    "adam": (lambda p: torch.optim.AdamW(p, lr=0.01), "exp_avg", "exp_avg_sq"),
    "momentum": (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), "momentum_buffer", None),
    "rmsprop": (lambda p: torch.optim.RMSprop(p, lr=0.01), None, "square_avg"),
    "muon": (lambda p: torch.optim.Muon(p, lr=0.02), "momentum_buffer", None),
}


def loop(path, make, measure: rs.Moments) -> list[tuple[dict[str, Tensor], Tensor, Tensor]]:
    """Return a copy of the first matrix's state after each step, and its weights around it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 9, bias=False), nn.Tanh(), nn.Linear(9, 6, bias=False))
    optimizer: Optimizer = make(model.parameters())
    history = []
    with rs.Tracker(model, path, schedule=1, measure=measure, strict=True) as tracker:
        for step in range(3):
            tracker.observe(step)
            before = model[0].weight.detach().clone()
            optimizer.zero_grad()
            model(torch.randn(16, 12)).square().mean().backward()
            optimizer.step()
            state = optimizer.state[model[0].weight]
            copied = {k: v.clone() for k, v in state.items() if isinstance(v, Tensor)}
            history.append((copied, before, model[0].weight.detach().clone()))
    return history


@pytest.mark.parametrize("name", MAKERS)
def test_moments_are_those_after_the_step(tmp_path, name: str) -> None:
    make, *keys = MAKERS[name]
    history = loop(tmp_path / "run", make, rs.Moments(leading=4, full=True))
    ds = rs.open(tmp_path / "run").sel(matrix="0")
    for step, (state, before, after) in enumerate(history):
        here = ds.sel(step=step)
        for order, key in zip(("first", "second"), keys, strict=True):
            if key is None:
                assert np.isnan(here[f"{order}_moment_norm"])
                continue
            S = torch.linalg.svdvals(state[key].double()).numpy()
            tolerance = {"rtol": 1e-5, "atol": 1e-6 * S[0]}
            np.testing.assert_allclose(here[f"{order}_moment_leading_values"], S[:4], **tolerance)
            np.testing.assert_allclose(here[f"{order}_moment_singular_values"][:9], S, **tolerance)
            rank = (S**2).sum() / S[0] ** 2
            np.testing.assert_allclose(here[f"{order}_moment_stable_rank"], rank, rtol=1e-5)
        if name == "muon":
            step_taken = muon_step(after, before, decay=0.02 * 0.1)
            S = torch.linalg.svdvals(step_taken)
            distance = (step_taken.square().sum() - S.sum() ** 2 / 9).sqrt() / step_taken.norm()
            np.testing.assert_allclose(here.muon_distance, float(distance), rtol=1e-4)
            assert 0.01 < float(here.muon_distance) < 0.3  # Newton-Schulz leaves values near 1
        else:
            assert np.isnan(here.muon_distance)


def test_an_optimizer_without_moments_is_told_once(tmp_path) -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.warns(RuntimeWarning, match="the state of SGD holds no moments") as caught:
        tracker = rs.Tracker(model, tmp_path / "run", schedule=1, measure=rs.Moments())
        with tracker:
            for step in range(3):
                tracker.observe(step)
                model(torch.randn(16, 4)).square().mean().backward()
                optimizer.step()
    assert len(caught) == 1 and tracker.failed is None
    assert np.isnan(rs.open(tmp_path / "run").first_moment_norm).all()


def test_distance_from_orthogonal_of_closed_forms() -> None:
    distance = rs.metrics.distance_from_orthogonal
    assert distance(np.array([3.0, 3, 3])) == pytest.approx(0, abs=1e-8)
    assert distance(np.array([3.0, 0, 0])) == pytest.approx(np.sqrt(2 / 3))
    assert np.isnan(distance(np.zeros(3)))
    torch.manual_seed(0)
    W = torch.randn(5, 8, dtype=torch.float64)
    U, S, Vh = torch.linalg.svd(W, full_matrices=False)
    nearest = S.mean() * U @ Vh
    expected = float((W - nearest).norm() / W.norm())
    assert float(distance(S)) == pytest.approx(expected)
