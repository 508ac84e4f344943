"""Effective weights of a model that computes them in another way than when its run began."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils import prune

import rankscope


class Adapted(nn.Linear):
    """A layer with an adapter as in loralib, which merges it in eval mode."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.lora_A = nn.Parameter(torch.randn(2, inputs))
        self.lora_B = nn.Parameter(torch.randn(outputs, 2))
        self.scaling, self.merged = 0.5, False

    def train(self, mode: bool = True) -> "Adapted":
        super().train(mode)
        if self.merged == mode:
            update = self.scaling * self.lora_B @ self.lora_A
            self.weight.data += -update if mode else update
            self.merged = not mode
        return self

    def forward(self, x: Tensor) -> Tensor:
        W = self.weight if self.merged else self.weight + self.scaling * self.lora_B @ self.lora_A
        return x @ W.mT


def spectra(path: Path) -> Tensor:
    return torch.from_numpy(rankscope.open(path)["singular_values"].sel(matrix="0").to_numpy())


def test_an_adapter_counts_once_whether_it_is_merged_or_not(tmp_path: Path) -> None:
    for begin in (True, False):
        model = nn.Sequential(Adapted(6, 5)).train(begin)
        expected = torch.linalg.svdvals(model(torch.eye(6)).mT.detach())
        path = tmp_path / str(begin)
        with rankscope.Tracker(model, path, schedule=1, strict=True) as tracker:
            for step, mode in enumerate((begin, not begin, begin)):
                model.train(mode)
                tracker.observe(step)
        for measured in spectra(path):
            torch.testing.assert_close(measured, expected, rtol=1e-5, atol=1e-6)


def test_a_scale_that_changes_is_followed(tmp_path: Path) -> None:
    model = nn.Sequential(Adapted(6, 5))
    with rankscope.Tracker(model, tmp_path / "run", schedule=1, strict=True) as tracker:
        tracker.observe(0)
        model[0].scaling = 2.0
        tracker.observe(1)
    expected = torch.linalg.svdvals(model(torch.eye(6)).mT.detach())
    torch.testing.assert_close(spectra(tmp_path / "run")[1], expected, rtol=1e-5, atol=1e-6)


def test_a_mask_that_is_made_permanent_leaves_the_weight_readable(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(6, 5))
    prune.l1_unstructured(model[0], "weight", amount=0.5)
    with rankscope.Tracker(model, tmp_path / "run", schedule=1, strict=True) as tracker:
        tracker.observe(0)
        prune.remove(model[0], "weight")
        tracker.observe(1)
    assert torch.equal(*spectra(tmp_path / "run"))
