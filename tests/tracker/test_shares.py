"""Division of a plan among ranks, and its values put together again."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

import rankscope as rs
from rankscope import snapshot
from rankscope.tracker import shares
from rankscope.tracker.contributor import packed, unpacked
from rankscope.tracker.merging import Merging


def layered(layers: int = 3, width: int = 12) -> torch.nn.Sequential:
    torch.manual_seed(0)
    blocks = [
        torch.nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True)
        for _ in range(layers)
    ]
    return torch.nn.Sequential(torch.nn.Linear(7, width), *blocks, torch.nn.Linear(width, 5))


def plan_of(model: torch.nn.Module, *, chain: bool, leading: int | None = None) -> snapshot.Plan:
    """Return a plan with all pairs, which make one chain of the model, or with none."""
    inputs = torch.ones(2, 5, 7, dtype=model[0].weight.dtype)
    pairs = rs.discover_pairs(model, inputs) if chain else ()
    plan = snapshot.plan(rs.views(model), pairs=pairs, products=True, top=4)
    return replace(plan, leading=leading)


@pytest.mark.parametrize("chain", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 50])
def test_everything_is_measured_by_one_rank(ranks: int, chain: bool) -> None:
    plan = plan_of(layered(), chain=chain)
    divided = shares.divided(plan, ranks)
    assert len(divided) == ranks
    owners = Counter(name for share in divided for name in share.owned)
    assert owners == Counter(plan.parameters)
    for kind in ("products", "pairs"):
        names = Counter(item.name for share in divided for item in getattr(share.plan, kind))
        assert names == Counter(item.name for item in getattr(plan, kind))
    for share in divided:
        assert share.owned <= set(share.plan.parameters)
        readings = {reading.name for reading in share.plan.readings}
        assert {end for p in share.plan.pairs for end in (p.earlier, p.later)} <= readings


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_shares_are_even(ranks: int) -> None:
    """No share exceeds an equal one by more than what cannot be cut, even if all are joined."""
    plan = plan_of(layered(8), chain=True)
    costs = shares.costs_of(plan)
    atoms = [{r.parameter for r in product.readings} for product in plan.products]
    largest = max(sum(costs[name] for name in atom) for atom in [*atoms, *({n} for n in costs)])
    divided = shares.divided(plan, ranks)
    loads = [sum(costs[name] for name in share.owned) for share in divided]
    equal = sum(costs.values()) / ranks
    assert max(loads) <= equal + max(largest, equal / shares.SMALL)
    borrowed = sum(len(set(share.plan.parameters) - share.owned) for share in divided)
    assert borrowed <= 2 * (ranks - 1)  # a cut passes through one or two pairs of a chain


def test_all_ranks_divide_alike() -> None:
    """The order of sets differs between processes; the division must not."""
    code = (
        "from tracker.test_shares import *; from rankscope.tracker.sharing import _mark\n"
        "print(_mark(shares.divided(plan_of(layered(), chain=True), 3)))"
    )
    paths = os.pathsep.join([p for p in sys.path if p] + ["tests"])
    marks = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(marks) == 1


@pytest.mark.parametrize("leading", [None, 3])
@pytest.mark.parametrize("ranks", [2, 4, 50])
def test_shares_together_are_the_whole(ranks: int, leading: int | None) -> None:
    model = layered().double()
    plan = plan_of(model, chain=True, leading=leading)
    tensors = {name: p.detach() for name, p in model.named_parameters()}
    before = {name: tensor + 0.1 * torch.randn_like(tensor) for name, tensor in tensors.items()}
    whole = snapshot.measure(plan, tensors, before)
    rows = Merging(plan)
    for share in shares.divided(plan, ranks):
        needed = {name: tensors[name] for name in share.plan.parameters}
        part = snapshot.measure(share.plan, needed, {name: before[name] for name in share.owned})
        part = unpacked(packed(part))
        rows.add(part.values, share.plan, owned=share.owned)
    assert rows.values.keys() == whole.values.keys()
    for name, values in whole.values.items():
        assert rows.values[name].dtype == values.dtype
        np.testing.assert_allclose(rows.values[name], values, rtol=1e-9, atol=1e-12, err_msg=name)


def test_failures_travel() -> None:
    part = snapshot.Snapshot({"status": np.array([2], np.int8)}, ("fc", "change of fc"), {})
    assert unpacked(packed(part)).failed == part.failed
