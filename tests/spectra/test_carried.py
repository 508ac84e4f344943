"""Frozen weights are decomposed once, and again if their content changes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import rankscope as rs
from rankscope import snapshot
from rankscope.spectra.carried import Carried, fingerprint


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float8_e4m3fn]
)
def test_a_fingerprint_tells_any_two_contents_apart(dtype: torch.dtype) -> None:
    tensor = torch.arange(1, 13).reshape(3, 4).to(dtype)
    assert fingerprint(tensor) == fingerprint(tensor.clone())
    changes = [tensor.float().clone().to(dtype) for _ in range(12)]
    for position, changed in enumerate(changes):
        changed.view(-1)[position] = 0.5
    swapped = tensor.float().flip(0).to(dtype)
    prints = {fingerprint(other) for other in (tensor, swapped, *changes)}
    assert len(prints) == 14


def half_frozen() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4), nn.Linear(4, 3))
    model[0].requires_grad_(False)
    model[1].requires_grad_(False)
    return model


def solved_jobs(monkeypatch) -> list[str]:
    """Names of what is decomposed from now on."""
    names: list[str] = []
    decompose = rs.decompose

    def noting(jobs, **options):
        names.extend(jobs)
        return decompose(jobs, **options)

    monkeypatch.setattr("rankscope.snapshot.measuring.decompose", noting)
    return names


def test_frozen_matrices_are_decomposed_once_and_again_when_they_change(monkeypatch) -> None:
    model = half_frozen()
    pairs = rs.discover_pairs(model, torch.zeros(2, 6))
    plan = snapshot.plan(rs.views(model), pairs=pairs, products=True)
    assert plan.frozen == {"0.weight", "1.weight"}
    weights = {name: tensor.detach() for name, tensor in model.named_parameters()}
    reference: dict[str, Tensor] = {name: torch.ones_like(t) for name, t in weights.items()}
    names, carried = solved_jobs(monkeypatch), Carried()

    def measured() -> dict[str, np.ndarray]:
        names.clear()
        return snapshot.measure(plan, weights, reference, carried=carried).values

    first = measured()
    assert len(names) == 6
    weights["2.weight"].mul_(2)
    second = measured()
    assert names == ["2", "change of 2"]
    for key in ("singular_values", "change_singular_values"):
        np.testing.assert_array_equal(first[key][:2], second[key][:2])
    weights["0.weight"].data[0, 0] += 1  # as PEFT merges: no version counter tells of it
    third = measured()
    assert set(names) == {"0", "change of 0", "2", "change of 2"}
    fresh = snapshot.measure(plan, weights, reference).values
    assert third.keys() == fresh.keys()
    for key, values in fresh.items():
        np.testing.assert_array_equal(third[key], values)


def test_leading_parts_of_frozen_weights_hold_directions_of_pairs_alone() -> None:
    """All directions of a frozen 8B model would take 2 GB for as long as it trains."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(270, 270) for _ in range(4))).requires_grad_(False)
    (pair,) = rs.discover_pairs(model[:2], torch.zeros(2, 270))
    plan = snapshot.plan(rs.views(model), pairs=[pair], products=False, top=8)
    plan = replace(plan, leading=8)
    weights = {name: tensor.detach() for name, tensor in model.named_parameters()}
    reference = {name: tensor + 1 for name, tensor in weights.items()}
    carried = Carried()
    first = snapshot.measure(plan, weights, reference, carried=carried).values
    parts = carried._svds
    assert len(parts) == 8
    for name, part in parts.items():
        held = [x.untyped_storage().nbytes() for x in (part.U, part.Vh)]
        assert min(held) >= 8 * 8 * 270 if name in "01" else max(held) <= 8, name
    again = snapshot.measure(plan, weights, reference, carried=carried).values
    for key, values in first.items():
        np.testing.assert_array_equal(again[key], values)


def test_a_tracker_repeats_the_values_of_frozen_matrices(tmp_path) -> None:
    model = half_frozen()
    with rs.Tracker(model, tmp_path / "run", schedule=1, strict=True) as tracker:
        for step in range(4):
            tracker.observe(step)
            with torch.no_grad():
                model[2].weight.mul_(2)
                if step == 2:
                    model[0].weight.mul_(3)  # somebody has unfrozen it
    values = rs.open(tmp_path / "run").singular_values.values
    np.testing.assert_array_equal(values[:3, :2], np.broadcast_to(values[:1, :2], (3, 2, 5)))
    np.testing.assert_allclose(values[3, 0], 3 * values[0, 0], rtol=1e-6)
    np.testing.assert_allclose(values[3, 2], 8 * values[0, 2], rtol=1e-6)
    run = rs.open(tmp_path / "run")
    assert float(run.change_singular_values.sel(matrix="0").isel(step=3).max()) > 0
