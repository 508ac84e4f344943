"""Rotation, against subspaces that are turned by known angles."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import rankscope as rs
from rankscope.measures.rotation import agreement, intruders


def orthogonal(d: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q


def turned(angle: float) -> tuple[Tensor, Tensor]:
    """Return a matrix of 6 x 8, and one whose first left vector is turned towards the last."""
    U, V = orthogonal(6, 0), orthogonal(8, 1)[:, :6]
    S = torch.tensor([6.0, 5, 4, 3, 2, 1], dtype=torch.float64)
    R = torch.eye(6, dtype=torch.float64)
    c, s = np.cos(angle), np.sin(angle)
    R[0, 0], R[0, 5], R[5, 0], R[5, 5] = c, -s, s, c
    return U @ torch.diag(S) @ V.mT, U @ R @ torch.diag(S) @ V.mT


@pytest.mark.parametrize("tall", [False, True])
def test_a_known_angle_is_found(tmp_path, tall: bool) -> None:
    angle = np.pi / 3
    start, end = (W.mT.contiguous() if tall else W for W in turned(angle))
    model = nn.Linear(*start.shape[::-1], bias=False).double()
    base = nn.Linear(*start.shape[::-1], bias=False).double()
    with torch.no_grad():
        model.weight.copy_(start)
        base.weight.copy_(end)
    measure = [rs.Rotation(leading=2, base=base)]
    with rs.Tracker(model, tmp_path / "run", schedule=1, strict=True, measure=measure) as tracker:
        tracker.observe(0)
        tracker.observe(1)
        with torch.no_grad():
            model.weight.copy_(end)
        tracker.observe(2)
    (row,) = rs.open(tmp_path / "run").matrix.values
    ds = rs.open(tmp_path / "run").sel(matrix=row)
    partly = (1 + np.cos(angle) ** 2) / 2
    np.testing.assert_allclose(ds.rotation_start, [1, 1, partly], rtol=1e-6)
    np.testing.assert_allclose(ds.rotation_last[1:], [1, partly], rtol=1e-6)
    np.testing.assert_allclose(ds.rotation_base, [partly, partly, 1], rtol=1e-6)
    assert np.isnan(ds.rotation_last[0])
    # At 60 degrees the turned direction is at 30 degrees from the last of the base's.
    assert list(ds.intruders.values) == [0, 0, 0]


def test_intruders_are_directions_far_from_all_of_the_base() -> None:
    base = torch.eye(16, dtype=torch.float64)
    spread = torch.full((16, 1), 0.25, dtype=torch.float64)  # 0.25 from each of the 16
    assert intruders(spread, base) == 1
    assert intruders(base[:, :3], base) == 0
    assert intruders(torch.cat([spread, base[:, :1]], 1), base) == 1
    assert agreement(base[:, :4], base[:, 4:8]) == 0
    assert agreement(base[:, :4], base[:, 2:6]) == pytest.approx(0.5)


def test_chance_agreement_is_rank_over_width() -> None:
    values = [
        agreement(orthogonal(40, s)[:, :8], orthogonal(40, s + 100)[:, :8]) for s in range(50)
    ]
    assert np.mean(values) == pytest.approx(8 / 40, rel=0.05)


def test_a_resumed_run_goes_on_from_its_start(tmp_path) -> None:
    start, end = turned(np.pi / 2)
    model = nn.Linear(8, 6, bias=False).double()
    for step, W in enumerate((start, end)):
        with torch.no_grad():
            model.weight.copy_(W)
        options = {"schedule": 1, "measure": rs.Rotation(leading=2), "resume": step > 0}
        with rs.Tracker(model, tmp_path / "run", strict=True, **options) as tracker:
            tracker.observe(step)
    ds = rs.open(tmp_path / "run")
    np.testing.assert_allclose(ds.rotation_start[:, 0], [1, 0.5], atol=1e-6)
    assert np.isnan(ds.rotation_last).all()


def test_a_base_comes_from_a_file_too(tmp_path) -> None:
    model = nn.Sequential(nn.Linear(5, 4))
    torch.save(model.state_dict(), tmp_path / "base.pt")
    measure = rs.Rotation(base=tmp_path / "base.pt")
    with rs.Tracker(model, tmp_path / "run", schedule=1, strict=True, measure=measure) as tracker:
        tracker.observe(0)
    ds = rs.open(tmp_path / "run")
    assert ds.rotation_base == pytest.approx(1) and ds.intruders == 0
    assert ds.rankscope.measures[0].options["base"].endswith("base.pt")
    with pytest.raises(ValueError, match="the base holds none of the model's matrices"):
        rs.Tracker(model, tmp_path / "other", measure=rs.Rotation(base={"x": torch.ones(2, 2)}))
    with pytest.raises(ValueError, match="leading is at least 1"):
        rs.Tracker(model, tmp_path / "other", measure=rs.Rotation(leading=0))
