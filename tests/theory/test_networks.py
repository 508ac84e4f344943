"""Loss, drive and Hessian of a network against autograd on a loss written out beside it."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.theory import DiagonalNetwork, linear_network, square_error
from theory.cases import normal, vector

examples = settings(max_examples=15, deadline=None)
seeds = st.integers(0, 999)


def curved(x: Tensor, z: Tensor) -> Tensor:
    return torch.tanh(x * z).sum(-1) + (x @ z) ** 2


@examples
@given(seeds, st.sampled_from([0.0, 0.3]))
def test_derivatives_are_autograds_of_the_loss_written_out(seed: int, decay: float) -> None:
    x, target, z = normal(6, 3, seed=seed), normal(6, seed=seed + 1), normal(3, seed=seed + 2)
    network = DiagonalNetwork(curved, square_error, (x, target), 3, decay=decay)

    def written(z: Tensor) -> Tensor:
        return (curved(x, z) - target).square().mean() / 2 + decay / 2 * z @ z

    gradient = torch.autograd.functional.jacobian(written, z)
    hessian = torch.autograd.functional.hessian(written, z)
    assert network.loss(z) == pytest.approx(float(written(z)), rel=1e-12)
    torch.testing.assert_close(network.g(z), -gradient)
    torch.testing.assert_close(network.hessian(z), hessian)
    torch.testing.assert_close(network.hessian(z, [2, 0]), hessian[:, [2, 0]])
    assert network.hessian(z, []).shape == (3, 0)


@examples
@given(seeds)
def test_drive_of_the_linear_network_is_r_minus_A_z(seed: int) -> None:
    x, target, z = normal(7, 4, seed=seed), normal(7, seed=seed + 1), normal(4, seed=seed + 2)
    A, r = torch.einsum("ni,nj->ij", x, x) / 7, torch.einsum("ni,n->i", x, target) / 7
    network = linear_network(x, target)
    torch.testing.assert_close(network.g(z), r - A @ z)
    torch.testing.assert_close(network.hessian(z), A)


def test_a_loss_linear_in_z_has_a_zero_hessian() -> None:
    network = DiagonalNetwork(
        lambda x, z: x @ z, lambda p, t: p.mean(), (normal(3, 2, seed=0), vector(0)), 2
    )
    assert bool((network.hessian(vector(1, 2)) == 0).all())


def test_inputs_and_the_autograd_mode_are_left_alone() -> None:
    x, target, z = normal(5, 2, seed=0), normal(5, seed=1), normal(2, seed=2)
    copies = x.clone(), target.clone(), z.clone()
    network = linear_network(x, target)
    with torch.no_grad():
        assert not network.g(z).requires_grad
        assert not network.hessian(z).requires_grad
        assert not torch.is_grad_enabled()
    network.loss(z)
    assert torch.is_grad_enabled() and not z.requires_grad
    assert all(torch.equal(a, b) for a, b in zip(copies, (x, target, z), strict=True))


def test_single_precision_data_are_computed_with_in_double() -> None:
    x, target = normal(5, 2, seed=0).float(), normal(5, seed=1).float()
    network = linear_network(x, target)
    assert network.g(vector(0, 0)).dtype == torch.float64
    torch.testing.assert_close(network.g(vector(0, 0)), x.double().T @ target.double() / 5)


def test_square_error_is_a_mean_over_samples_of_half_squared_distances() -> None:
    prediction, target = normal(4, 3, 2, seed=0), normal(4, 3, 2, seed=1)
    by_hand = sum(
        ((prediction[i, j] - target[i, j]) ** 2).sum() / 2 for i in range(4) for j in range(3)
    )
    torch.testing.assert_close(square_error(prediction, target), by_hand / 12)
    torch.testing.assert_close(square_error(vector(3, 0), vector(0, 0)), vector(2.25)[0])


def test_coordinates_are_named() -> None:
    network = linear_network(normal(4, 2, seed=0), normal(4, seed=1))
    assert [str(coordinate) for coordinate in network.coordinates] == ["z.0", "z.1"]
    assert network.p == 2


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_data_that_are_not_finite_are_refused(bad: float) -> None:
    x, target = normal(4, 2, seed=0), normal(4, seed=1)
    with pytest.raises(ValueError, match="target holds NaN"):
        linear_network(x, target.index_fill(0, torch.tensor([1]), bad))
    with pytest.raises(ValueError, match="x holds NaN"):
        linear_network(x.index_fill(0, torch.tensor([1]), bad), target)


def test_class_numbers_stay_integers_for_cross_entropy() -> None:
    x, target = normal(5, 3, seed=0), torch.tensor([0, 1, 2, 1, 0])
    network = DiagonalNetwork(lambda x, z: x * z, F.cross_entropy, (x, target), 3)
    z = normal(3, seed=1)
    scores = x * z
    log_sum = [row.exp().sum().log() for row in scores]
    expected = sum(log_sum[i] - scores[i, target[i]] for i in range(5)) / 5
    assert network.loss(z) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize("h", [lambda x, z: F.relu(x * z).sum(-1), lambda x, z: (x @ z).abs()])
def test_a_kinked_h_is_allowed_with_a_warning(h) -> None:
    data = normal(4, 2, seed=0), normal(4, seed=1)
    with torch.no_grad(), pytest.warns(UserWarning, match="Theorem 4.5 does not cover"):
        network = DiagonalNetwork(h, square_error, data, 2)
    assert network.g(vector(0.1, 0.2)).shape == (2,)


@pytest.mark.parametrize(
    ("h", "loss", "match"),
    [
        (lambda x, z: x @ z, lambda p, t: (p - t) ** 2, r"shape \(3,\)"),
        (lambda x, z: x * z, square_error, "alike"),
        (lambda x, z: (x @ z).square().sqrt(), square_error, "not finite at z = 0"),
        (lambda x, z: (x @ z).log(), square_error, "not finite at z = 0"),
        (lambda x, z: x @ z.detach(), square_error, "does not depend on z"),
    ],
)
def test_networks_without_a_loss_and_a_gradient_are_refused(h, loss, match: str) -> None:
    x = torch.ones(3, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match=match):
        DiagonalNetwork(h, loss, (x, x[:, 0]), 2)
