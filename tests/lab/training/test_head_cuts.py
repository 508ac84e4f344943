"""Cuts of the heads' changes, against weights that are cut and written by hand."""

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from torch import Tensor, nn

from interventions.models import best_of_rank
from lab.training.toy_task import Clouds, silent
from rankscope import store
from rankscope.lab.papers.findings import needed_rank
from rankscope.lab.training.head_cuts import CUTS, CutAccuracies, HeadCuts, head_slices
from rankscope.lab.training.step import Precision
from rankscope.lab.training.task import Machine
from rankscope.matrices import manifest

WIDTH, HEADS, UNIT = 12, 3, 4


class Tokens(nn.Module):
    """Attention over tokens, then two classes from their mean."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.attn = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
            self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head((x + self.attn(x, x, x)[0]).mean(1))
        return y


class Labelled(Clouds):
    """Tokens labelled by a trained network, so that this one is always right."""

    def __init__(self, trained: nn.Module) -> None:
        super().__init__(0)
        self.model = trained.eval()
        drawn = torch.Generator().manual_seed(1)
        self.tokens = torch.randn(400, 5, WIDTH, generator=drawn)
        with torch.no_grad():
            self.classes = trained(self.tokens).argmax(1)

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        correct = model(self.tokens).argmax(1) == self.classes
        return {"validation_accuracy": float(correct.double().mean())}


def trained_and_initial() -> tuple[Tokens, Tokens]:
    initial = Tokens(0).eval()
    trained = copy.deepcopy(initial)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for tensor in trained.parameters():
            tensor += 0.5 * torch.randn(tensor.shape, generator=generator)
    return trained, initial


def cut_by_hand(trained: Tokens, initial: Tokens, roles: str, rank: int) -> Tokens:
    """Write every slice in place, straight from the layout of `nn.MultiheadAttention`."""
    result = copy.deepcopy(trained)
    with torch.no_grad():
        for role in roles:
            for head in range(HEADS):
                units = slice(head * UNIT, (head + 1) * UNIT)
                W0, W, out = (part(model, role, units) for model in (initial, trained, result))
                change = (W - W0).double().numpy()
                out.copy_(W0 + torch.from_numpy(best_of_rank(change, rank)))
    return result


def part(model: Tokens, role: str, units: slice) -> Tensor:
    if role == "o":
        return model.attn.out_proj.weight.detach()[:, units]
    start = "qkv".index(role) * WIDTH
    return model.attn.in_proj_weight.detach()[start : start + WIDTH][units]


@torch.no_grad()
def test_every_cut_is_measured_as_cut_by_hand() -> None:
    trained, initial = trained_and_initial()
    problem = Labelled(trained)
    measured = HeadCuts((1, 2, UNIT, 8)).measure(problem, initial)["head_cuts"]
    assert measured["ranks"] == [0, 1, 2, UNIT, 8]
    assert measured["end"] == {"validation_accuracy": 1.0}
    assert measured["start"] == problem.validate(initial)
    for cut, roles in {"kq": "qk", "vo": "vo", "both": "qkvo"}.items():
        accuracies = measured[cut]["validation_accuracy"]
        for rank, accuracy in zip((0, 1, 2), accuracies, strict=False):
            by_hand = problem.validate(cut_by_hand(trained, initial, roles, rank))
            assert accuracy == by_hand["validation_accuracy"]
        assert accuracies[3] == accuracies[4] == 1.0 > accuracies[0]


def test_slices_are_those_of_each_head() -> None:
    slices = head_slices(manifest(Tokens(0)))
    assert tuple(slices) == CUTS
    assert slices["kq"] == tuple(f"attn.h{h}.{role}" for h in range(HEADS) for role in "qk")
    assert set(slices["both"]) == {*slices["kq"], *slices["vo"]} and len(slices["both"]) == 12


def test_a_network_without_heads_and_ranks_that_do_not_ascend_are_refused() -> None:
    with pytest.raises(ValueError, match="the network has no attention head"):
        head_slices(manifest(nn.Linear(3, 3)))
    for ranks in ((), (0, 1), (2, 1), (1, 1)):
        with pytest.raises(ValueError, match="must ascend from 1"):
            HeadCuts(ranks)


def accuracies(both: list[float], *, start: float = 0.1, end: float = 0.6) -> CutAccuracies:
    values = {cut: {"validation_accuracy": both} for cut in CUTS}
    ends = {"start": {"validation_accuracy": start}, "end": {"validation_accuracy": end}}
    attrs = {"head_cuts": {"ranks": [0, 1, 2, 4], **ends, **values}}
    read = CutAccuracies.of_run(xr.Dataset(attrs=attrs))
    assert read is not None
    return read


def test_shares_kept_begin_at_the_start_and_end_at_the_end() -> None:
    read = accuracies([0.1, 0.35, 0.6, 0.7])
    assert read.gained == pytest.approx(0.5)
    np.testing.assert_allclose(read.kept("vo"), [0, 0.5, 1, 1.2])
    assert CutAccuracies.of_run(xr.Dataset()) is None


@pytest.mark.parametrize(
    ("both", "needed"),
    [
        ([0.1, 0.2, 0.3, 0.6], 4),
        ([0.1, 0.596, 0.3, 0.6], 1),  # the first that suffices, whatever larger ranks do
        ([0.1, 0.59, 0.599, 0.6], 2),
        ([0.6, 0.6, 0.6, 0.6], 1),  # rank 0 is no answer
        ([0.6, 0.5, 0.5, 0.5], math.inf),
    ],
)
def test_the_needed_rank_is_the_first_that_keeps_the_share(
    both: list[float], needed: float
) -> None:
    assert accuracies(both).needed("both", 0.99) == needed


def check_cuts_of_a_training(path: Path, machine: Machine, precision: Precision) -> None:
    declared = next(iter(needed_rank.experiment("smoke").runs.values()))
    run = replace(declared, machine=machine, precision=precision)
    run.execute(path, seed=0, progress=silent)
    ds = store.open(path)
    read = CutAccuracies.of_run(ds)
    assert read is not None and list(read.ranks) == [0, 1, 16]
    assert read.start == float(ds["validation_accuracy"][0])
    assert read.end == float(ds["validation_accuracy"][-1])
    assert all(read.cuts[cut][-1] == read.end for cut in CUTS)
    assert all(read.cuts[cut][0] < read.end for cut in CUTS)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_training_stores_its_cuts_from_the_weights_it_began_with(
    tmp_path: Path, precision: Precision
) -> None:
    check_cuts_of_a_training(tmp_path / "run", Machine(), precision)


@pytest.mark.gpu
def test_a_training_on_a_gpu_stores_its_cuts(tmp_path: Path) -> None:
    with torch.compiler.set_stance("force_eager"):  # shapes are checked, see test_step.py
        check_cuts_of_a_training(tmp_path / "run", Machine(device="cuda"), "bfloat16")
