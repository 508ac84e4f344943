"""Flow and descent of the full head against closed forms, conservation laws and symmetries."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.theory.full_flow import FullTrajectory, descend_full, flow_full
from rankscope.theory.full_head import FullHead, attention
from rankscope.theory.rises import rise_times
from theory.cases import normal, rotation, vector

examples = settings(max_examples=3, deadline=None)
LOG_ALPHA = math.log(1e-4)


def task(seed: int = 0, *, scale: float = 0.8) -> FullHead:
    x = normal(20, 4, 3, seed=seed)
    return FullHead(x, attention(x, *(scale * normal(4, 3, 3, seed=seed + 1))))


def whitened(values: Tensor, seed: int = 0) -> tuple[FullHead, Tensor, Tensor]:
    """Return a head on one token with whitened x and target x U diag(values) V^T; then U and V."""
    d = len(values)
    U, V = rotation(d, seed=seed), rotation(d, seed=seed + 1)
    x = math.sqrt(2 * d) * torch.linalg.qr(normal(2 * d, d, seed=seed + 2)).Q
    return FullHead(x[:, None], (x @ U * values @ V.mT)[:, None]), U, V


def imbalance(weights: Tensor) -> Tensor:
    """Return W_K^T W_K - W_Q^T W_Q and W_V^T W_V - W_O^T W_O, which the flow conserves."""
    left, right = weights[0::2], weights[1::2]
    return left.mT @ left - right.mT @ right


@pytest.mark.parametrize("log10_alpha", [-2, -8, -32])
def test_one_token_learns_each_singular_value_by_its_logistic_curve(log10_alpha: int) -> None:
    # Softmax over one token is 1: a linear network. From the balanced, aligned start
    # W_V = alpha U R, W_O = alpha V R each value s solves ds/dt = 2 s (sigma - s).
    sigma = vector(2.0, 1.0, 0.5)
    head, U, V = whitened(sigma)
    R = rotation(3, seed=9)
    weights0 = torch.stack([normal(3, 3, seed=3), normal(3, 3, seed=4), U @ R, V @ R])
    log_alpha = log10_alpha * math.log(10)
    flow = flow_full(head, weights0, log_alpha, 4, tolerance=1e-5, points=201)
    t = flow.time[:, None] * -log_alpha
    ratio = math.exp(2 * log_alpha) / (sigma - math.exp(2 * log_alpha))  # s / (sigma - s) at 0
    logits = ratio.log() + 2 * sigma * t
    expected = sigma * torch.sigmoid(logits)
    error = (flow.singular_values[:, 1] - expected.sort(-1, descending=True).values).abs()
    # Spectra of products are exact to about 1e-13 of the largest value.
    assert (error <= 1e-3 * expected + 1e-12 * expected.amax(-1, keepdim=True)).all()
    still = flow.singular_values[:, 0]
    torch.testing.assert_close(still, still[:1].expand_as(still))  # nothing to attend to
    left = (sigma - flow.singular_values[:, 1]).square().sum(-1) / 2
    torch.testing.assert_close(flow.loss, left, rtol=1e-3, atol=1e-9)
    assert flow.finished and flow.time[-1] == 4
    half = rise_times(flow.time, expected).half  # only the flow's own grid between them
    torch.testing.assert_close(
        rise_times(flow.time, flow.singular_values[:, 1]).half, half, rtol=1e-4, atol=0
    )


@examples
@given(st.integers(0, 99))
def test_the_flow_conserves_the_imbalance_of_each_product(seed: int) -> None:
    weights0 = normal(4, 3, 2, seed=seed + 5)
    flow = flow_full(task(seed), weights0, math.log(0.1), 3, tolerance=1e-9, points=11)
    assert flow.loss[-1] < flow.loss[0]  # it moved
    # The inner basis may have been turned on the way, which leaves the eigenvalues.
    before, after = (
        torch.linalg.eigvalsh(imbalance(weights)) for weights in (0.1 * weights0, flow.weights)
    )
    torch.testing.assert_close(after, before, rtol=0, atol=1e-7)


def test_descent_changes_the_imbalance_by_the_square_of_its_rate() -> None:
    # One step changes W_V^T W_V - W_O^T W_O by rate^2 (O^T G^T G O - V^T G G^T V): the terms linear
    # in the rate cancel.
    head, weights0, rate = task(), normal(4, 3, 3, seed=5), 0.3
    start = 0.5 * weights0
    step = descend_full(head, weights0, 0.5, rate=rate, steps=1)
    change = rate**2 * imbalance(head.gradient(start))
    torch.testing.assert_close(imbalance(step.weights) - imbalance(start), change)
    assert change.abs().max() > 1e-4


def test_turning_inputs_and_targets_changes_nothing() -> None:
    head, weights0 = task(), normal(4, 3, 3, seed=5)
    R = rotation(3, seed=1)
    turned = FullHead(head.x @ R, head.target @ R)
    a = flow_full(head, weights0, LOG_ALPHA, 3, tolerance=1e-8, points=21)
    b = flow_full(turned, R.mT @ weights0, LOG_ALPHA, 3, tolerance=1e-8, points=21)
    torch.testing.assert_close(a.singular_values, b.singular_values, rtol=1e-4, atol=1e-10)


def test_larger_targets_speed_up_time() -> None:
    # With one token, targets c times as large and weights sqrt(c) times as large obey the same
    # equations c times as fast.
    head, _, _ = whitened(vector(1.0, 0.4))
    weights0, c = normal(4, 2, 2, seed=5), 4.0
    larger = FullHead(head.x, c * head.target)
    plain, fast = (
        flow_full(case, size * weights0, LOG_ALPHA, until, tolerance=1e-7, points=31)
        for case, size, until in ((head, 1.0, 6.0), (larger, 2.0, 6.0 / c))
    )
    torch.testing.assert_close(fast.time, plain.time / c)
    vo = plain.singular_values[:, 1]
    torch.testing.assert_close(fast.singular_values[:, 1], c * vo, rtol=1e-5, atol=1e-12)


def test_descent_with_small_steps_is_the_flow() -> None:
    head, weights0, alpha = task(), normal(4, 3, 3, seed=5), 0.1
    until, steps = 2.0, 800
    flow = flow_full(head, weights0, math.log(alpha), until, tolerance=1e-8, points=5)
    errors = []
    for factor in (1, 2):
        rate = until * math.log(1 / alpha) / (factor * steps)
        run = descend_full(
            head, weights0, alpha, rate=rate, steps=factor * steps, every=factor * steps // 4
        )
        torch.testing.assert_close(run.time, flow.time)
        errors.append(float((run.singular_values - flow.singular_values).abs().max()))
    assert errors[0] < 3e-2
    assert errors[1] / errors[0] == pytest.approx(0.5, abs=0.05)  # Euler's method is of order 1


def test_descent_records_the_start_every_few_steps_and_the_end() -> None:
    head, weights0, alpha, rate = task(), normal(4, 3, 3, seed=5), 0.3, 0.01
    run = descend_full(head, weights0, alpha, rate=rate, steps=7, every=3)
    steps = vector(0, 3, 6, 7)
    torch.testing.assert_close(run.time, steps * rate / math.log(1 / alpha))
    assert run.loss[-1].item() == pytest.approx(head.loss(run.weights))
    assert run.finished and run.gradient_evaluations == 8


def test_descent_that_diverges_says_so_and_keeps_its_records() -> None:
    run = descend_full(task(), normal(4, 3, 3, seed=5), 0.9, rate=1e3, steps=200)
    assert not run.finished and "try a rate below 1000" in run.message
    assert 1 <= len(run.time) < 201 and run.loss.isfinite().all()


def flow_of_task(**options: float) -> FullTrajectory:
    return flow_full(task(), normal(4, 3, 3, seed=5), LOG_ALPHA, 8, points=81, **options)


def test_a_small_enough_loss_ends_the_flow() -> None:
    run, whole = flow_of_task(stop_below=0.5), flow_of_task()
    assert run.finished and "below 0.5" in run.message
    assert run.loss[-1] <= 0.5 * run.loss[0] < run.loss[-2]
    n = len(run.time)
    assert n < len(whole.time) == 81 and torch.equal(run.loss, whole.loss[:n])
    assert run.gradient_evaluations < whole.gradient_evaluations


def test_a_solver_that_cannot_go_on_keeps_what_was_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    derivatives, calls = FullHead.derivatives, iter(range(10**6))

    def failing(self: FullHead, weights: Tensor) -> tuple[float, Tensor, Tensor]:
        loss, gradient, slopes = derivatives(self, weights)
        return loss, gradient * (math.nan if next(calls) > 200 else 1), slopes

    monkeypatch.setattr(FullHead, "derivatives", failing)
    run = flow_of_task()
    assert not run.finished and "could not go on" in run.message
    assert 1 < len(run.time) < 81 and run.singular_values.isfinite().all()


def test_progress_is_a_share_that_rises_to_1_and_inputs_stay() -> None:
    shares: list[float] = []
    weights0 = normal(4, 3, 2, seed=5)
    before = weights0.clone()
    run = flow_full(task(), weights0, LOG_ALPHA, 2, points=11, progress=shares.append)
    assert shares == pytest.approx([i / 10 for i in range(1, 11)])
    assert torch.equal(weights0, before)
    assert run.singular_values.shape == (11, 2, 2)


def test_the_flow_keeps_its_symmetry_far_below_rounding() -> None:
    # At 1e-32 the second direction is 1e-16 of the first when that has risen, the third less. In
    # a random inner basis rounding would seed them anew, differently in each basis.
    sigma = vector(2.0, 0.9, 0.4)
    head, _, _ = whitened(sigma)
    weights0 = normal(4, 3, 3, seed=5)
    halves = [
        rise_times(flow.time, flow.singular_values[:, 1]).half
        for flow in (
            flow_full(head, weights0 @ R, math.log(1e-32), 3.5, points=151, tolerance=1e-3)
            for R in (torch.eye(3, dtype=torch.float64), rotation(3, seed=6))
        )
    ]
    torch.testing.assert_close(halves[0], halves[1], rtol=1e-4, atol=0)
    # boix2023's T_k for the diagonal network, up to O(1 / log(1 / alpha)).
    torch.testing.assert_close(halves[0] * sigma, torch.ones(3).double(), rtol=0.05, atol=0)


@pytest.mark.parametrize("value", [0.0, 1.0, -math.inf, math.nan])
def test_alpha_lies_between_0_and_1(value: float) -> None:
    with pytest.raises(ValueError, match="log_alpha: expected the natural logarithm"):
        flow_full(task(), normal(4, 3, 3, seed=0), value, 1)
    with pytest.raises(ValueError, match="alpha: expected a scale between 0 and 1"):
        descend_full(task(), normal(4, 3, 3, seed=0), value, rate=0.1, steps=1)


def test_bad_weights_and_bounds_are_refused() -> None:
    good = normal(4, 3, 3, seed=0)
    with pytest.raises(ValueError, match="finite"):
        flow_full(task(), good * math.nan, LOG_ALPHA, 1)
    with pytest.raises(ValueError, match="underflow"):
        flow_full(task(), good, -400, 1)
    with pytest.raises(ValueError, match="until"):
        flow_full(task(), good, LOG_ALPHA, 0)
    with pytest.raises(ValueError, match="points"):
        flow_full(task(), good, LOG_ALPHA, 1, points=1)
    with pytest.raises(ValueError, match="rate=0"):
        descend_full(task(), good, 0.5, rate=0.0, steps=1)
