import base64
import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rankscope.lab.data.digits import Digits
from rankscope.lab.data.images import CIFAR10
from rankscope.lab.data.splits import split
from rankscope.lab.models.unet import UnetConfig
from rankscope.lab.tasks.diffusion import Diffusion, DiffusionProblem, sample, sigmoid_betas
from rankscope.lab.training.task import Batch, Machine

MODEL = UnetConfig((4, 4), time=4, groups=2, first_groups=2, padding=1)
TASK = Diffusion(Digits(), MODEL, samples=3, sampling_steps=5)


@pytest.fixture(scope="module")
def problem() -> DiffusionProblem:
    return TASK.build(Machine(), seed=0)


class Constant(nn.Module):
    """Finds the same noise everywhere."""

    def __init__(self, noise: float) -> None:
        super().__init__()
        self.noise = noise

    def forward(self, images: Tensor, times: Tensor) -> Tensor:
        return torch.full_like(images, self.noise)


def equal(first: Iterable[Batch], second: Iterable[Batch]) -> bool:
    batches = zip(first, second, strict=True)
    return all(torch.equal(a, b) for one, two in batches for a, b in zip(one, two, strict=True))


def test_betas_are_the_papers() -> None:
    betas = sigmoid_betas(1000, 1e-5, 5e-3)
    at = [1 / (1 + math.exp(6 - 12 * t / 999)) for t in range(1000)]
    want = torch.tensor([1e-5 + (5e-3 - 1e-5) * s for s in at], dtype=torch.float64)
    torch.testing.assert_close(betas, want)
    # By symmetry their mean is that of the ends, so what is left of an image's variance is known.
    left = float((1 - betas).log().sum())
    assert left == pytest.approx(-1000 * (1e-5 + 5e-3) / 2, rel=5e-3)


def test_images_are_noised_as_the_schedule_says(problem: DiffusionProblem) -> None:
    pixels, times, noise = problem.draw(torch.arange(7), torch.Generator().manual_seed(1))
    noisy, same = problem.inputs(pixels, times, noise)
    train, _ = split(1797, seed=0)
    images = Digits().build().inputs[train].double()
    standard = (images[:7] - images.mean()) / images.std(correction=0)
    a = (1 - sigmoid_betas(1000, 1e-5, 5e-3)).cumprod(0)[times].view(7, 1, 1, 1)
    want = a.sqrt() * standard + (1 - a).sqrt() * noise
    torch.testing.assert_close(noisy, want.float())
    assert torch.equal(same, times) and len(set(times.tolist())) > 1


def test_batches_follow_their_generator(problem: DiffusionProblem) -> None:
    before = torch.get_rng_state()
    one, same, other = (
        problem.draw(torch.arange(4), torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert equal([one], [same])
    assert not torch.equal(one[1], other[1]) and not torch.equal(one[2], other[2])
    assert torch.equal(before, torch.get_rng_state())


def test_loss_of_the_best_constant_is_one(problem: DiffusionProblem) -> None:
    batch = problem.draw(torch.arange(1000), torch.Generator().manual_seed(0))
    entries = 64_000
    deviation = math.sqrt(2 / entries)  # of the mean of squared normal numbers
    assert float(problem.loss(Constant(0.0), *batch)) == pytest.approx(1, abs=4 * deviation)
    assert float(problem.loss(Constant(0.1), *batch)) > float(problem.loss(Constant(0.0), *batch))
    assert problem.constant_loss == 1


def test_fixed_samples_stay_the_same_and_cover_all_times(problem: DiffusionProblem) -> None:
    batches = list(problem.fixed(1200))
    assert equal(batches, problem.fixed(1200))
    assert sum(len(batch[0]) for batch in batches) == 1200
    times = torch.cat([batch[1] for batch in batches])
    assert times.unique().tolist() == list(range(1000))
    assert max(len(b[0]) for b in batches) - min(len(b[0]) for b in batches) <= 1


@torch.no_grad()
def test_validation_is_of_the_images_held_out(problem: DiffusionProblem) -> None:
    first, second = (problem.validate(problem.model) for _ in range(2))
    assert first == second
    seen: list[Tensor] = []

    class Watching(Constant):
        def forward(self, images: Tensor, times: Tensor) -> Tensor:
            seen.append(images)
            return super().forward(images, times)

    # With next to no noise the network sees the images themselves.
    clean = replace(TASK, betas=(1e-12, 1e-12)).build(Machine(), seed=0)
    clean.validate(Watching(0.0))
    train, held = split(1797, seed=0)
    images = Digits().build().inputs.double()
    standard = (images[held] - images[train].mean()) / images[train].std(correction=0)
    torch.testing.assert_close(torch.cat(seen), standard.float(), atol=1e-4, rtol=0)
    assert (clean.samples, len(held)) == (1797 - 179, 179)


@pytest.mark.parametrize(("steps", "tolerance"), [(1000, 0.06), (100, 0.12)])
def test_sampling_of_a_gaussian_is_that_gaussian(steps: int, tolerance: float) -> None:
    """Sampling with the best predictor for images N(m, v), which is known, gives N(m, v) again."""
    m, v = 2.0, 0.25
    signal = (1 - sigmoid_betas(1000, 1e-5, 2e-2)).cumprod(0)

    class Gaussian(nn.Module):
        def forward(self, images: Tensor, times: Tensor) -> Tensor:
            a = signal[times].view(-1, 1, 1, 1)
            return ((1 - a).sqrt() * (images - a.sqrt() * m) / (a * v + 1 - a)).float()

    source = torch.Generator().manual_seed(0)
    start = torch.randn(100, 1, 8, 8, generator=source)
    made = sample(Gaussian(), start, signal, steps=steps, noise=source)
    assert float(made.mean()) == pytest.approx(m, abs=0.02)
    assert float(made.var()) == pytest.approx(v, rel=tolerance)


def test_sheet_of_samples_is_bytes(problem: DiffusionProblem) -> None:
    sheet = problem.final_attributes(problem.model.eval())["samples"]
    assert sheet["shape"] == [3, 8, 8]
    pixels = np.frombuffer(base64.b64decode(sheet["bytes"]), np.uint8).reshape(sheet["shape"])
    assert pixels.std() > 0
    assert sheet == problem.final_attributes(problem.model)["samples"]


def test_network_without_numbers_makes_a_black_sheet(problem: DiffusionProblem) -> None:
    sheet = problem.final_attributes(Constant(math.nan))["samples"]
    assert set(base64.b64decode(sheet["bytes"])) == {0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"images": CIFAR10}, "grey images"),
        ({"betas": (0.0, 0.1)}, "inside"),
        ({"sampling_steps": 1001}, "1 to 1000 steps"),
    ],
)
def test_impossible_tasks_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Diffusion(**{"images": Digits(), "model": MODEL, **options})
