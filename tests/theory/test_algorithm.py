"""Algorithm 1 against the whitened network, an active-set method, its symmetries and edge cases."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope.theory import (
    DiagonalNetwork,
    Stage,
    incremental,
    linear_network,
    square_error,
    whitened_network,
)
from rankscope.theory.algorithm import time_until_active
from theory.cases import (
    LEAVING,
    LOG10,
    attention_task,
    correlated,
    leaving,
    loss_network,
    reference_stages,
    vector,
)

examples = settings(max_examples=5, deadline=None)
seeds = st.integers(0, 999)


def run_stages(network: DiagonalNetwork, max_stages: int = 20) -> list[Stage]:
    return list(incremental(network, max_stages))


def separable(decay: float) -> DiagonalNetwork:
    """Return a logistic regression: column 0 alone has a finite optimum, both together separate."""
    x = torch.tensor([[3, 0.1], [3, 0.1], [3, 0.1], [-3, 0.5]], dtype=torch.float64)
    return DiagonalNetwork(
        lambda x, z: x @ z,
        lambda prediction, sign: F.softplus(-sign * prediction).mean(),
        (x, vector(1, 1, 1, 1)),
        2,
        decay=decay,
    )


optima = st.lists(st.floats(0.05, 5), min_size=2, max_size=5, unique=True).filter(
    lambda sizes: all(
        abs(1 / a - 1 / b) > 1e-3 for i, a in enumerate(sizes) for b in sizes[i + 1 :]
    )
)


@examples
@given(optima, st.lists(st.sampled_from([-1, 1]), min_size=5, max_size=5))
def test_whitened_stages_are_the_closed_form(sizes: list[float], signs: list[int]) -> None:
    optimum = vector(*(sign * size for sign, size in zip(signs, sizes, strict=False)))
    network, stages = whitened_network(optimum), run_stages(whitened_network(optimum))
    order = optimum.abs().argsort(descending=True).tolist()
    times = [0.0] + [1 / abs(float(optimum[i])) for i in order] + [math.inf]
    assert [stage.winner for stage in stages] == [None, *order]
    assert [stage.index for stage in stages] == list(range(len(sizes) + 1))
    for k, stage in enumerate(stages):
        support = order[:k]
        theta = torch.zeros(len(sizes), dtype=torch.float64)
        theta[support] = optimum[support]
        torch.testing.assert_close(stage.z, theta, rtol=0, atol=1e-8)
        assert stage.time == pytest.approx(times[k], rel=1e-12)
        assert stage.until == pytest.approx(times[k + 1], rel=1e-12)
        b = 1 - optimum * times[k]
        b[support] = 1 - optimum[support].sgn()
        torch.testing.assert_close(stage.b, b, rtol=0, atol=1e-10)
        assert stage.loss == pytest.approx(float((theta - optimum).square().sum()) / 2, abs=1e-12)
        assert stage.support == tuple(sorted(support)) and stage.converged
        torch.testing.assert_close(stage.u * stage.v, stage.z)
        assert torch.equal(stage.u.abs(), stage.v.abs())
        assert (stage.left, stage.returned, stage.tied) == ((), False, ())
        if k:
            assert stage.sign == math.copysign(1, optimum[order[k - 1]])
            assert stage.margin == pytest.approx(times[k + 1] - times[k])
            assert stage.drive == pytest.approx(float(optimum[order[k - 1]]))
            # u -> (u^2 - a)^2 / 2 has second derivative 4 a at u^2 = a
            assert stage.certificate.hessian_u == pytest.approx(
                4 * abs(float(optimum[order[k - 1]]))
            )
            assert stage.certificate.hessian_z == pytest.approx(1)
    assert stages[-1].remarks(network) == (
        f"no coordinate ever becomes active after time {stages[-1].time:g}",
    )


def assert_reference_stages(stages: list[Stage], network: DiagonalNetwork) -> None:
    expected = reference_stages(network.x.numpy(), network.target.numpy())
    assert [stage.winner for stage in stages[1:]] == [known.winner for known in expected]
    for stage, known in zip(stages[1:], expected, strict=True):
        assert stage.time == pytest.approx(known.time, rel=1e-8)
        torch.testing.assert_close(stage.z, torch.from_numpy(known.z), rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(stage.b, torch.from_numpy(known.b), rtol=0, atol=1e-7)
        assert (stage.left, stage.returned) == (known.left, known.returned)


@pytest.mark.parametrize("name", LEAVING)
def test_a_coordinate_leaves_and_comes_back(name: str) -> None:
    network = leaving(name)
    stages = run_stages(network)
    assert_reference_stages(stages, network)
    (gone,) = (stage for stage in stages if stage.left)
    (back,) = (stage for stage in stages if stage.returned)
    assert gone.left == (back.winner,) and gone.index < back.index
    label = str(network.coordinates[back.winner])
    assert f"{label} left the support" in gone.remarks(network)
    assert f"{label} came back to the support" in back.remarks(network)


@settings(max_examples=8, deadline=None)
@given(seeds, st.integers(2, 5))
def test_correlated_stages_are_those_of_an_active_set_method(seed: int, p: int) -> None:
    network = correlated(p, seed=seed)
    assert_reference_stages(run_stages(network, 40), network)


@examples
@given(seeds, st.permutations(range(3)), st.tuples(*[st.sampled_from([-1, 1])] * 3))
def test_permuting_and_mirroring_coordinates_does_so_to_the_stages(
    seed: int, places: list[int], signs: tuple[int, ...]
) -> None:
    network = correlated(3, seed=seed)
    mirror = vector(*signs)
    other = linear_network(network.x[:, places] * mirror, network.target)
    for stage, moved in zip(run_stages(network), run_stages(other), strict=True):
        assert moved.time == pytest.approx(stage.time, rel=1e-8)
        torch.testing.assert_close(moved.z, stage.z[places] * mirror, rtol=1e-7, atol=1e-9)
        b = 1 + (stage.b[places] - 1) * mirror
        torch.testing.assert_close(moved.b, b, rtol=0, atol=1e-7)
        assert stage.winner is None or places[moved.winner] == stage.winner


@examples
@given(seeds, st.floats(1e-3, 1e3), st.sampled_from([1e-6, 1e-4, 1.0, 1e3, 1e6]))
def test_units_of_the_loss_and_of_z_do_not_matter(seed: int, factor: float, unit: float) -> None:
    network = correlated(3, seed=seed)
    data = (network.x / unit, network.target)
    scaled = DiagonalNetwork(network.h, lambda p, t: factor * square_error(p, t), data, 3)
    for stage, other in zip(run_stages(network), run_stages(scaled), strict=True):
        assert other.converged and other.winner == stage.winner
        assert other.time * factor / unit == pytest.approx(stage.time, rel=1e-7)
        assert other.until * factor / unit == pytest.approx(stage.until, rel=1e-7)
        torch.testing.assert_close(other.z / unit, stage.z, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(other.b, stage.b, rtol=0, atol=1e-7)


@pytest.mark.parametrize("seed", range(2))
def test_the_certificate_is_that_of_a_dense_computation(seed: int) -> None:
    network = attention_task(seed)
    stages = run_stages(network, 4)
    assert len(stages) == 5 and all(stage.converged for stage in stages)
    assert stages[0].certificate.hessian_u == stages[0].certificate.hessian_z == math.inf
    hessian = torch.autograd.functional.hessian
    for stage in stages[1:]:
        support, z = torch.tensor(stage.support), stage.z[list(stage.support)]

        def loss(part: Tensor, *, support: Tensor = support) -> Tensor:
            whole = torch.zeros(6, dtype=torch.float64).index_put((support,), part)
            return square_error(network.h(network.x, whole), network.target)

        def loss_of_u(u: Tensor, *, loss=loss, z: Tensor = z) -> Tensor:
            return loss(z.sgn() * u * u)

        in_u = torch.linalg.eigvalsh(hessian(loss_of_u, z.abs().sqrt()))[0]
        in_z = torch.linalg.eigvalsh(hessian(loss, z))[0]
        assert stage.certificate.hessian_u == pytest.approx(float(in_u), rel=1e-6, abs=1e-10)
        assert stage.certificate.hessian_z == pytest.approx(float(in_z), rel=1e-6, abs=1e-10)
        assert stage.certificate.gradient < 1e-10


def test_ties_are_named_and_the_first_taken() -> None:
    network = whitened_network(vector(0.3, -0.7, 0.7, 0.7))
    stages = run_stages(network)
    assert [stage.winner for stage in stages] == [None, 1, 2, 3, 0]
    assert [stage.tied for stage in stages] == [(), (2, 3), (3,), (), ()]
    assert stages[1].margin == 0
    (remark,) = stages[1].remarks(network)
    assert remark.startswith("z.2, z.3 would become active together with z.1")
    assert "Assumption 4.2" in remark
    for stage in stages[1:4]:
        assert stage.time == pytest.approx(1 / 0.7)


def test_a_tie_of_late_stages_with_a_short_wait_is_noticed() -> None:
    """Activation times are 1, 1 + 1e-6 and again 1 + 1e-6, equal to 1e-9."""
    late = 1 / (1 + 1e-6)
    stages = run_stages(whitened_network(vector(1.0, late, late * (1 + 1e-13))))
    assert sorted((*stages[2].tied, stages[2].winner)) == [1, 2]


@pytest.mark.parametrize("p", [1, 3])
def test_without_a_drive_nothing_ever_happens(p: int) -> None:
    network = whitened_network(torch.zeros(p, dtype=torch.float64))
    (stage,) = run_stages(network)
    assert stage.until == math.inf and stage.winner is None and stage.idle == tuple(range(p))
    assert stage.remarks(network) == ("no coordinate ever becomes active after time 0",)


def test_a_coordinate_without_drive_stays_idle() -> None:
    stages = run_stages(whitened_network(vector(1.0, 0.0, -0.5)))
    assert [stage.winner for stage in stages] == [None, 0, 2]
    assert all(1 in stage.idle for stage in stages)
    assert all(float(stage.b[1]) == 1 for stage in stages)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("optimum", [(1e8, 1.0), (1.0, 1e8, 1e4, -3e2), (1e6, -1e-4)])
def test_coordinates_of_very_different_units_come_to_rest(
    optimum: tuple[float, ...], constant: bool
) -> None:
    network = whitened_network(vector(*optimum))
    if not constant:
        network = loss_network(lambda z: (z - vector(*optimum)).square().sum() / 2, len(optimum))
    stages = run_stages(network)
    order = sorted(range(len(optimum)), key=lambda i: -abs(optimum[i]))
    assert [stage.winner for stage in stages[1:]] == order
    for k, stage in enumerate(stages[1:]):
        assert stage.time == pytest.approx(1 / abs(optimum[order[k]]), rel=1e-9)
    torch.testing.assert_close(stages[-1].z, vector(*optimum), rtol=1e-12, atol=0)


@pytest.mark.parametrize("expanded", [False, True])
def test_a_quartic_minimum_is_degenerate_but_at_rest(expanded: bool) -> None:
    """Rounding blurs the expanded polynomial's minimum: its drive is 4 (1 - z)^3."""

    def quartic(z: Tensor) -> Tensor:
        return (z**4 - 4 * z**3 + 6 * z**2 - 4 * z if expanded else (z - 1) ** 4).sum()

    network = loss_network(quartic)
    stages = run_stages(network)
    assert [stage.converged for stage in stages] == [True, True] and not stages[1].strict
    torch.testing.assert_close(stages[1].z, vector(1), rtol=1e-4 if expanded else 1e-10, atol=0)
    assert any("degenerate" in remark for remark in stages[1].remarks(network))


def test_a_drive_that_counts_as_zero_is_named_and_can_be_asked_for() -> None:
    network = whitened_network(vector(1e12, 1, 0))
    stages = run_stages(network)
    assert [stage.winner for stage in stages] == [None, 0]
    assert [(stage.idle, stage.faint) for stage in stages] == [((1, 2), (1,))] * 2
    assert any(remark.startswith("the drive of z.1 is") for remark in stages[0].remarks(network))
    finer = list(incremental(network, 5, still=1e-14))
    assert [stage.winner for stage in finer] == [None, 0, 1]
    assert finer[2].time == pytest.approx(1) and finer[2].faint == ()


def test_a_coordinate_that_falls_to_zero_without_any_drive_is_degenerate() -> None:
    """The optimum (1, 0) lies on the orthant's edge: z_1 leaves, and g_1 = 0 there.

    A = ((1, 2), (2, 5)) and r = A (1, 0): z_1 becomes active first, then z_0 takes its place.
    """
    x = math.sqrt(2) * torch.tensor([[1, 2], [0, 1]], dtype=torch.float64)
    network = linear_network(x, x @ vector(1, 0))
    stages = run_stages(network)
    assert [stage.winner for stage in stages] == [None, 1, 0]
    torch.testing.assert_close(stages[2].z, vector(1, 0), rtol=0, atol=1e-6)
    assert any("degenerate" in remark for remark in stages[2].remarks(network))


def test_a_loss_without_minimiser_keeps_the_stages_before() -> None:
    network = separable(0.0)
    stages = run_stages(network)
    assert [stage.converged for stage in stages] == [True, True, False]
    # at rest 3/4 sigma(-3 z) = 1/4 sigma(3 z), so z = log(3) / 3
    torch.testing.assert_close(stages[1].z, vector(math.log(3) / 3, 0))
    last = stages[-1]
    assert "did not come to rest" in last.message and "decay" in last.message
    assert last.message in last.remarks(network)
    assert math.isnan(last.until) and not last.resolved(-1e6)
    assert bool(last.z.isfinite().all()) and math.isfinite(last.loss)


def test_with_decay_the_same_loss_comes_to_rest() -> None:
    network = separable(1e-2)
    stages = run_stages(network)
    assert [stage.converged for stage in stages] == [True, True, True]
    z = stages[-1].z
    push = torch.sigmoid(-(network.x @ z))
    drive = (push[:, None] * network.x).mean(0) - 1e-2 * z
    assert float(drive.abs().max()) < 1e-10 and bool((z > 0).all())


def test_time_until_active_is_equation_8() -> None:
    b, g = vector(1, 1, 0.5, 0.5, 1, 0), vector(2, -2, 0.25, -0.25, 0, 1)
    z = vector(0, 0, 0, 0, 0, 3)
    expected = vector(0.5, 0.5, 2, 6, math.inf, math.inf)
    assert torch.equal(time_until_active(b, g, z), expected)
    assert math.isinf(time_until_active(b, g, z, still=0.3)[2])


def test_stages_are_resolved_once_alpha_is_small_enough() -> None:
    stages = run_stages(whitened_network(vector(1.0, -0.9, 0.3)))
    for stage in stages[1:]:
        answers = [stage.resolved(-power * LOG10) for power in (1, 8, 64, 10000)]
        assert answers == sorted(answers) and answers[-1]
    assert not stages[1].resolved(-8 * LOG10) and stages[3].resolved(-64 * LOG10)


def test_later_stages_do_not_write_to_earlier_ones() -> None:
    network, copies = correlated(4, seed=2), []
    for stage in incremental(network, 10):
        copies.append((stage, stage.b.clone(), stage.z.clone()))
    for stage, b, z in copies:
        assert torch.equal(stage.b, b) and torch.equal(stage.z, z)


@pytest.mark.parametrize("max_stages", [0, -1])
def test_fewer_than_one_stage_is_refused(max_stages: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        list(incremental(whitened_network(vector(1.0)), max_stages))
