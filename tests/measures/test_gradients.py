"""Gradients, against a dense SVD of what the optimizer is given."""

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import rankscope as rs


def loop(
    path,
    measure: rs.Gradients,
    *,
    model: nn.Module | None = None,
    fused: bool = False,
    scale: float = 0.0,
    clip: float = 0.0,
    batches: int = 1,
    steps: int = 3,
    strict: bool = True,
) -> list[dict[str, dict[str, Tensor]]]:
    """Train and return the gradients of each step: "raw" after backward, "given" when stepping."""
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 4))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.01, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale > 0)
    history = []

    def gradients() -> dict[str, Tensor]:
        return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    with rs.Tracker(model, path, schedule=1, measure=measure, strict=strict) as tracker:
        for step in range(steps):
            for _ in range(batches):
                x = torch.randn(16, 9)
                scaler.scale(model(x).square().mean()).backward()
            raw = gradients()
            tracker.observe(step)
            if clip:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(trained, clip)
            given = gradients()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            history.append({"raw": raw, "given": given})
    assert tracker.failed is None
    return history


def assert_spectra(ds, step: int, name: str, G: Tensor, *, factor: float = 1.0) -> None:
    S = torch.linalg.svdvals(G.double()).numpy() * factor
    here = ds.sel(step=step, matrix=name)
    values = here.gradient_leading_values.values
    np.testing.assert_allclose(values[: len(S)], S[: len(values)], rtol=1e-5, atol=1e-6 * S[0])
    np.testing.assert_allclose(here.gradient_norm, np.linalg.norm(S), rtol=1e-5)
    np.testing.assert_allclose(here.gradient_stable_rank, (S**2).sum() / S[0] ** 2, rtol=1e-5)


@pytest.mark.parametrize("batches", [1, 3])
def test_gradients_are_those_the_optimizer_gets(tmp_path, batches: int) -> None:
    measure = rs.Gradients(leading=3, full=True)
    history = loop(tmp_path / "run", measure, clip=0.01, batches=batches)
    ds = rs.open(tmp_path / "run")
    for step, gradients in enumerate(history):
        G = gradients["given"]["0.weight"]
        assert_spectra(ds, step, "0", G)
        S = torch.linalg.svdvals(G)
        full = ds.gradient_singular_values.sel(step=step, matrix="0")[:7]
        np.testing.assert_allclose(full, S, rtol=1e-4, atol=1e-6 * float(S[0]))
    (measured,) = ds.rankscope.measures
    assert "clipped" in measured.options["meaning"] and measured.options["at"] == "step"
    ranks = ds.rankscope.stable_rank(of="gradient_singular_values").sel(matrix="0")
    np.testing.assert_allclose(ranks, ds.gradient_stable_rank.sel(matrix="0"), rtol=1e-4)


def test_gradients_can_be_read_before_clipping(tmp_path) -> None:
    history = loop(tmp_path / "run", rs.Gradients(at="backward"), clip=0.01, batches=2)
    ds = rs.open(tmp_path / "run")
    for step, gradients in enumerate(history):
        assert_spectra(ds, step, "2", gradients["raw"]["2.weight"])
        assert gradients["raw"]["2.weight"].norm() > 2 * gradients["given"]["2.weight"].norm()
    assert "neither unscaled nor clipped" in ds.rankscope.measures[0].options["meaning"]


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("clip", [0.0, 1e9])
def test_the_scale_of_the_loss_is_taken_out(tmp_path, fused: bool, clip: float) -> None:
    """Fused optimizers unscale inside their step, unless the loop unscales to clip."""
    history = loop(tmp_path / "run", rs.Gradients(), fused=fused, scale=2.0**12, clip=clip)
    ds = rs.open(tmp_path / "run")
    for step, gradients in enumerate(history):
        assert_spectra(ds, step, "0", gradients["raw"]["0.weight"], factor=2.0**-12)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("at", ["step", "backward"])
def test_matrices_without_gradients_are_told_once(tmp_path, at: str, strict: bool) -> None:
    """A frozen or computed weight is no failure, so `strict` does not raise."""
    computed = nn.utils.parametrizations.weight_norm(nn.Linear(7, 4))
    model = nn.Sequential(nn.Linear(9, 7).requires_grad_(False), computed, nn.Linear(4, 3))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop(tmp_path / "run", rs.Gradients(at=at), model=model, strict=strict)
    (message,) = [str(w.message) for w in caught]
    assert "2 of 3 matrices have no gradient" in message
    assert "(frozen: '0'; computed from other tensors: '1')" in message
    norms = rs.open(tmp_path / "run").gradient_norm
    assert np.isnan(norms.sel(matrix=["0", "1"])).all() and np.isfinite(norms.sel(matrix="2")).all()


def test_a_parameter_outside_the_loss_is_told(tmp_path) -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = nn.Linear(9, 7), nn.Linear(9, 7)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    with pytest.warns(RuntimeWarning, match="not part of the loss: 'idle'"):
        loop(tmp_path / "run", rs.Gradients(), model=Half(), strict=False)
    assert np.isfinite(rs.open(tmp_path / "run").gradient_norm.sel(matrix="used")).all()


def test_sparse_gradients_are_read(tmp_path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(12, 5, sparse=True), nn.Linear(5, 3))
    sparse = torch.optim.SparseAdam(model[0].parameters(), lr=0.01)
    dense = torch.optim.SGD(model[1].parameters(), lr=0.01)
    measure = [rs.Gradients(), rs.Updates()]
    with rs.Tracker(model, tmp_path / "run", schedule=1, measure=measure) as tracker:
        for step in range(2):
            model(torch.tensor([[1, 2, 2, 7]])).square().mean().backward()
            tracker.observe(step)
            G = model[0].weight.grad.to_dense().clone()
            sparse.step()
            dense.step()
            model.zero_grad()
    ds = rs.open(tmp_path / "run")
    assert_spectra(ds, 1, "0", G.mT)
    assert np.isfinite(ds.update_norm_ratio).all()


def test_a_gradient_with_nan_is_nan_and_the_rest_is_measured(tmp_path) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with rs.Tracker(model, tmp_path / "run", schedule=1, measure=rs.Gradients()) as tracker:
        for step in range(1):
            model(torch.randn(8, 4)).square().mean().backward()
            model[0].weight.grad[0, 0] = float("nan")
            tracker.observe(step)
            model[1].weight.grad.zero_()
            optimizer.step()
    ds = rs.open(tmp_path / "run")
    assert np.isnan(ds.gradient_norm.sel(matrix="0")).all()
    assert (ds.gradient_norm.sel(matrix="1") == 0).all()
    assert np.isnan(ds.gradient_stable_rank.sel(matrix="1")).all()


def test_bad_options_are_refused(tmp_path) -> None:
    model = nn.Linear(3, 3)
    for measure, message in (
        (rs.Gradients(leading=0), "leading is at least 1"),
        (rs.Moments(leading=0), "leading is at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            rs.Tracker(model, tmp_path / "run", measure=[measure])


@pytest.mark.parametrize("by_name", [False, True], ids=["position", "name"])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.LBFGS])
def test_gradients_of_a_closure_are_those_of_its_first_run(tmp_path, kind, by_name: bool) -> None:
    """Lightning and LBFGS compute gradients inside the optimizer's step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(9, 7), nn.Tanh(), nn.Linear(7, 4))
    optimizer, history = kind(model.parameters(), lr=0.1), []
    with rs.Tracker(
        model, tmp_path / "run", schedule=1, measure=rs.Gradients(), strict=True
    ) as tracker:
        for step in range(3):
            tracker.observe(step)
            inputs, runs = torch.randn(16, 9), []

            def closure(inputs: Tensor = inputs, runs: list[Tensor] = runs) -> Tensor:
                optimizer.zero_grad()
                loss = model(inputs).square().mean()
                loss.backward()
                runs.append(model[0].weight.grad.clone())
                return loss

            loss = optimizer.step(closure=closure) if by_name else optimizer.step(closure)
            assert loss.ndim == 0 and (kind is torch.optim.SGD or len(runs) > 1)
            history.append(runs[0])
    ds = rs.open(tmp_path / "run")
    for step, gradient in enumerate(history):
        assert_spectra(ds, step, "0", gradient)
