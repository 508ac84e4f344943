"""One look at a network: nothing twice, nothing unbounded, nothing dependent on portions."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import rankscope as rs
from rankscope import snapshot
from rankscope.matrices import named_tensors
from rankscope.snapshot import measuring


class GroupedAttention(nn.Module):
    """Four query heads that share two key and value heads."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.head_dim = 4, 3
        self.q_proj = nn.Linear(8, 12, bias=False)
        self.k_proj = nn.Linear(8, 6, bias=False)
        self.v_proj = nn.Linear(8, 6, bias=False)
        self.o_proj = nn.Linear(12, 8, bias=False)


def look(model: nn.Module) -> tuple[snapshot.Plan, snapshot.Snapshot]:
    chosen = rs.views(model)
    plan = snapshot.plan(chosen, pairs=rs.inside_pairs(model), products=True, top=5)
    tensors = named_tensors(model)
    before = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    return plan, snapshot.measure(plan, tensors, before)


def test_shared_heads_are_decomposed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    solved: list[str] = []

    def spy(jobs, **options):
        solved.extend(jobs)
        return rs.decompose(jobs, **options)

    monkeypatch.setattr("rankscope.snapshot.measuring.decompose", spy)
    torch.manual_seed(0)
    model = GroupedAttention()
    plan, seen = look(model)
    names = [reading.name for reading in plan.readings]
    assert {f"h{i}.k" for i in range(4)} <= set(names)
    assert len([name for name in solved if name.endswith(".k")]) == 2
    for head in range(4):
        K = model.k_proj.weight.detach().double().numpy()[3 * (head // 2) :][:3]
        measured = seen.values["singular_values"][names.index(f"h{head}.k")][:3]
        np.testing.assert_allclose(measured, np.linalg.svd(K, compute_uv=False), rtol=1e-6)


def test_portions_do_not_change_what_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(9, 7), nn.MultiheadAttention(8, 2), nn.Linear(5, 4))
    _, whole = look(model)
    monkeypatch.setattr("rankscope.snapshot.portions.PORTION", 50)
    _, parts = look(model)
    assert whole.values.keys() == parts.values.keys()
    for name, values in whole.values.items():
        np.testing.assert_allclose(parts.values[name], values, rtol=1e-12, err_msg=name)


def test_leading_values_come_from_the_solver_that_takes_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of one side, without directions all values take less, and with them the leading ones."""
    solved: dict[str, set[str]] = {}
    for name in ("decompose", "decompose_leading"):
        solve = getattr(measuring, name)

        def spy(jobs, *arguments, solve=solve, name=name, **options):
            solved.setdefault(name, set()).update(jobs)
            return solve(jobs, *arguments, **options)

        monkeypatch.setattr(measuring, name, spy)
    model = nn.Sequential(nn.Linear(560, 600), nn.Linear(600, 300), nn.Linear(580, 700))
    pair = rs.Pair("0", "1", earlier_side="out", later_side="in", kind="chain")
    plan = replace(snapshot.plan(rs.views(model), pairs=[pair], products=False), leading=16, top=16)
    measured = snapshot.measure(plan, named_tensors(model))
    assert solved == {"decompose": {"1", "2"}, "decompose_leading": {"0"}}
    for row, layer in enumerate(model):
        S = torch.linalg.svdvals(layer.weight.detach().double())
        np.testing.assert_allclose(measured.values["leading_values"][row], S[:16], rtol=2e-3)


def test_pairs_that_are_a_word_are_refused_with_what_is_expected() -> None:
    # In a process of its own, where no annotation is checked before our own message.
    code = (
        "import torch; from rankscope import snapshot; from rankscope.matrices import views; "
        "snapshot.plan(views(torch.nn.Linear(4, 4)), pairs='all', products=False)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pairs is 'all', expected Pair objects; discover_pairs(model, inputs)" in ran.stderr
