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
from theory.cases import attention_by_token, normal, vector

examples = settings(max_examples=10, deadline=None)
seeds = st.integers(0, 999)


def loop_transformer(x: Tensor, z: Tensor, heads: int, feedforward) -> Tensor:
    """Compute Example 3.2, one layer and one head after another."""
    d = x.shape[-1]
    for layer, (W_A, W_B) in enumerate(feedforward):
        products = z.view(-1, heads, 2, d)[layer]
        middle = x + sum(attention_by_token(x, kq.diag(), vo.diag()) for kq, vo in products)
        inner = torch.einsum("sni,ih->snh", middle, W_A)
        gelu = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
        x = middle + torch.einsum("snh,ih->sni", gelu, W_B)
    return x


@examples
@given(seeds)
def test_the_head_is_equation_1(seed: int) -> None:
    x, z = normal(4, 3, 2, seed=seed), normal(4, seed=seed)
    expected = attention_by_token(x, z[:2].diag(), z[2:].diag())
    torch.testing.assert_close(diagonal_attention(x, z[:2], z[2:]), expected)
    assert diagonal_head(x, expected).loss(z) < 1e-25


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
        error = loop_transformer(x, z, heads, feedforward) - target
        return error.square().sum() / (2 * 3 * 3)

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
