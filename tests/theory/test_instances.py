"""Networks of boix2023 against Eq. 1 and Example 3.2 written out token by token."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.theory import (
    diagonal_attention,
    diagonal_head,
    diagonal_transformer,
    whitened_network,
)
from theory.cases import normal, vector

examples = settings(max_examples=10, deadline=None)
seeds = st.integers(0, 999)


def one_sample(x: Tensor, kq: Tensor, vo: Tensor) -> Tensor:
    """Compute Eq. 1 for one sample token by token: smax(X W_K W_Q^T X^T) X W_V W_O^T."""
    rows = []
    for token in x:
        scores = [torch.einsum("i,i,i->", token, kq, other) for other in x]
        weights = [score.exp() for score in scores]
        mean = sum(w * other for w, other in zip(weights, x, strict=True)) / sum(weights)
        rows.append(mean * vo)
    return torch.stack(rows)


def loop_transformer(x: Tensor, z: Tensor, heads: int, feedforward) -> Tensor:
    """Compute Example 3.2 for one sample, one layer and one head after another."""
    d = x.shape[-1]
    for layer, (W_A, W_B) in enumerate(feedforward):
        attended = torch.zeros_like(x)
        for head in range(heads):
            first = (layer * heads + head) * 2 * d
            attended = attended + one_sample(x, z[first : first + d], z[first + d : first + 2 * d])
        middle = x + attended
        inner = torch.einsum("ni,ih->nh", middle, W_A)
        gelu = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
        x = middle + torch.einsum("nh,ih->ni", gelu, W_B)
    return x


def loop_error(outputs: list[Tensor], target: Tensor) -> Tensor:
    tokens = target.shape[0] * target.shape[1]
    return sum(((a - b) ** 2).sum() for a, b in zip(outputs, target, strict=True)) / (2 * tokens)


@examples
@given(seeds)
def test_the_head_is_equation_1(seed: int) -> None:
    x, target, z = normal(4, 3, 2, seed=seed), normal(4, 3, 2, seed=seed + 1), normal(4, seed=seed)
    network = diagonal_head(x, target)

    def written(z: Tensor) -> Tensor:
        return loop_error([one_sample(sample, z[:2], z[2:]) for sample in x], target)

    torch.testing.assert_close(
        diagonal_attention(x, z[:2], z[2:]), torch.stack([one_sample(a, z[:2], z[2:]) for a in x])
    )
    assert network.loss(z) == pytest.approx(float(written(z)), rel=1e-12)
    torch.testing.assert_close(network.g(z), -torch.autograd.functional.jacobian(written, z))
    torch.testing.assert_close(network.hessian(z), torch.autograd.functional.hessian(written, z))


def test_key_query_coordinates_have_no_drive_while_value_output_is_zero() -> None:
    x, target = normal(4, 3, 2, seed=0), normal(4, 3, 2, seed=1)
    network = diagonal_head(x, target)
    g = network.g(torch.cat([normal(2, seed=2), vector(0, 0)]))
    assert bool((g[:2] == 0).all()) and bool((g[2:] != 0).all())
    assert [coordinate.kind for coordinate in network.coordinates] == ["kq", "kq", "vo", "vo"]


@examples
@given(seeds, st.integers(1, 2), st.integers(1, 3))
def test_the_transformer_is_example_3_2(seed: int, layers: int, heads: int) -> None:
    d, x, target = 2, normal(3, 3, 2, seed=seed), normal(3, 3, 2, seed=seed + 1)
    feedforward = [tuple(normal(2, d, 4, seed=seed + 2 + layer)) for layer in range(layers)]
    z = normal(layers * heads * 2 * d, seed=seed + 9) / 2
    network = diagonal_transformer(x, target, heads=heads, feedforward=feedforward)

    def written(z: Tensor) -> Tensor:
        return loop_error([loop_transformer(a, z, heads, feedforward) for a in x], target)

    assert network.p == len(z)
    assert network.loss(z) == pytest.approx(float(written(z)), rel=1e-12)
    torch.testing.assert_close(network.g(z), -torch.autograd.functional.jacobian(written, z))


def test_coordinates_of_the_transformer_are_named_in_the_order_of_z() -> None:
    feedforward = [tuple(normal(2, 2, 4, seed=i)) for i in range(2)]
    x = normal(3, 3, 2, seed=5)
    network = diagonal_transformer(x, x, heads=2, feedforward=feedforward)
    names = [str(coordinate) for coordinate in network.coordinates]
    assert names == [
        f"l{layer}.h{head}.{kind}.{i}"
        for layer in range(2)
        for head in range(2)
        for kind in ("kq", "vo")
        for i in range(2)
    ]


@examples
@given(seeds)
def test_the_whitened_network_is_a_squared_distance(seed: int) -> None:
    optimum, z = normal(5, seed=seed), normal(5, seed=seed + 1)
    network = whitened_network(optimum)
    assert network.loss(z) == pytest.approx(float((z - optimum).square().sum()) / 2)
    torch.testing.assert_close(network.g(z), optimum - z)
    torch.testing.assert_close(network.hessian(z), torch.eye(5, dtype=torch.float64))
