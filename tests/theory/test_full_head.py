"""Full head against autograd, attention written out, and the diagonal head."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.theory import diagonal_head
from rankscope.theory.full_head import FullHead
from theory.cases import attention_by_token, normal

examples = settings(max_examples=20, deadline=None)
seeds = st.integers(0, 999)


def head(seed: int) -> FullHead:
    return FullHead(normal(6, 4, 3, seed=seed), normal(6, 4, 3, seed=seed + 1000))


def written_out(x: Tensor, W: Tensor) -> Tensor:
    return attention_by_token(x, W[0] @ W[1].mT, W[2] @ W[3].mT)


@examples
@given(seeds, st.integers(1, 5))
def test_output_and_loss_are_those_of_attention_written_out(seed: int, r: int) -> None:
    case, weights = head(seed), normal(4, 3, r, seed=seed + 1)
    expected = written_out(case.x, weights)
    torch.testing.assert_close(case.output(weights), expected)
    errors = [float((a - b).square().sum()) / 2 for a, b in zip(expected, case.target, strict=True)]
    assert case.loss(weights) == pytest.approx(sum(errors) / (6 * 4))


@examples
@given(seeds, st.integers(1, 5))
def test_gradient_is_autograds(seed: int, r: int) -> None:
    case = head(seed)
    weights = normal(4, 3, r, seed=seed + 1).requires_grad_()
    loss = (written_out(case.x, weights) - case.target).square().sum(-1).mean() / 2
    (expected,) = torch.autograd.grad(loss, weights)
    value, gradient, (dKQ, dVO) = case.derivatives(weights)
    torch.testing.assert_close(gradient, expected)
    torch.testing.assert_close(dKQ @ weights[1], expected[0])
    torch.testing.assert_close(dVO @ weights[3], expected[2])
    torch.testing.assert_close(case.gradient(weights), expected)
    assert value == pytest.approx(loss.item())


@examples
@given(seeds)
def test_diagonal_weights_give_the_diagonal_head(seed: int) -> None:
    case, (w_K, w_Q, w_V, w_O) = head(seed), normal(4, 3, seed=seed + 1)
    z = torch.cat([w_K * w_Q, w_V * w_O])
    weights = torch.diag_embed(torch.stack([w_K, w_Q, w_V, w_O]))
    diagonal = diagonal_head(case.x, case.target)
    assert case.loss(weights) == pytest.approx(diagonal.loss(z))
    _, _, slopes = case.derivatives(weights)
    drive = -slopes.diagonal(dim1=-2, dim2=-1).flatten()
    torch.testing.assert_close(drive, diagonal.g(z))


def test_inputs_are_left_alone_and_no_graph_is_kept() -> None:
    case, weights = head(0), normal(4, 3, 2, seed=1)
    before = [tensor.clone() for tensor in (case.x, case.target, weights)]
    gradient = case.gradient(weights.requires_grad_())
    assert not gradient.requires_grad
    assert all(map(torch.equal, before, (case.x, case.target, weights)))


@pytest.mark.parametrize("name", ["x", "target"])
def test_data_that_are_not_finite_are_named(name: str) -> None:
    data = {"x": normal(2, 3, 4, seed=0), "target": normal(2, 3, 4, seed=1)}
    data[name][1, 2, 3] = math.nan
    with pytest.raises(ValueError, match=f"{name} has 1 entries that are not finite"):
        FullHead(**data)


def test_no_data_are_refused() -> None:
    nothing = torch.zeros(0, 3, 4, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"samples, tokens, d.*got \(0, 3, 4\)"):
        FullHead(nothing, nothing)


def test_weights_of_another_width_are_refused() -> None:
    with pytest.raises(ValueError, match=r"stacked to \(4, 3, r\), got shape \(4, 5, 2\)"):
        head(0).loss(normal(4, 5, 2, seed=0))
