"""Denoising diffusion on images (ho2020; yunis2024, app. C.2)."""

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int, Int64, UInt8
from torch import Tensor, nn

from rankscope.lab.data.digits import Digits
from rankscope.lab.data.images import HubImages, Images
from rankscope.lab.data.splits import split
from rankscope.lab.models.unet import UnetConfig
from rankscope.lab.tasks.batches import batches
from rankscope.lab.tasks.classification import channel_moments
from rankscope.lab.training.task import Batch, Machine, Problem

TRAINING_NOISE, VALIDATION_NOISE, SAMPLE_NOISE = 11, 12, 13  # seeds of fixed noise


@dataclass(frozen=True)
class Diffusion:
    """Mean squared error of the noise that the network predicts in noisy images.

    x_t = sqrt(a_t) x_0 + sqrt(1 - a_t) noise, where a_t is the product of 1 - beta up to t, and t
    is uniform on 0 ... steps - 1. The seed draws a tenth of the images for validation.
    Pixels are shifted and scaled to mean 0 and standard deviation 1 over the training part, as in
    the paper's code.
    betas: the first and the last of the schedule, see `sigmoid_betas`.
    samples: number of images that the trained network makes, in `sampling_steps` steps.
    """

    images: HubImages | Digits
    model: UnetConfig
    steps: int = 1000
    betas: tuple[float, float] = (1e-5, 5e-3)
    samples: int = 64
    sampling_steps: int = 1000

    def __post_init__(self) -> None:
        if self.images.shape[0] != 1 or self.model.image_channels != 1:
            raise ValueError(f"diffusion needs grey images, of one channel each; got {self}")
        if not 0 < self.betas[0] <= self.betas[1] < 1:
            raise ValueError(f"betas must rise inside (0, 1), got {self.betas}")
        if not 1 <= self.sampling_steps <= self.steps:
            raise ValueError(
                f"sampling takes 1 to {self.steps} steps, got sampling_steps={self.sampling_steps}"
            )

    def build(self, machine: Machine, *, seed: int) -> "DiffusionProblem":
        images = self.images.build(machine.data)
        return DiffusionProblem(self, images, device=torch.device(machine.device), seed=seed)


def sigmoid_betas(steps: int, first: float, last: float) -> Float64[Tensor, " steps"]:
    """first + (last - first) sigmoid(s), s from -6 to 6 in equal steps, as in the paper's code.

    A beta is the share of noise added in one step. The paper's 1000 steps from 1e-5 to 5e-3 leave
    exp(-2.5) = 0.08 of the variance to the image, so x_999 still has 0.29 of its contrast.
    """
    return first + (last - first) * torch.linspace(-6, 6, steps, dtype=torch.float64).sigmoid()


def signal_shares(task: Diffusion) -> Float64[Tensor, " steps"]:
    """a_t of every step."""
    return (1 - sigmoid_betas(task.steps, *task.betas)).cumprod(0)


class DiffusionProblem(Problem):
    """Diffusion with all images on the device as bytes, made noisy batch by batch."""

    unit = "images"
    # Noise has mean square 1, and the best constant prediction is 0.
    constant_loss = 1.0

    def __init__(self, task: Diffusion, images: Images, *, device: torch.device, seed: int) -> None:
        train, validation = split(len(images.labels), seed=seed)
        model = task.model.build(seed)
        self.model = model.to(device)
        self.shown = model.shown()
        self.samples = len(train)
        self._task = task
        self._device = device
        moments = channel_moments(images.inputs[train])
        self._mean, self._deviation = (moment.to(device) for moment in moments)
        self._train = images.inputs[train].to(device)
        self._validation = images.inputs[validation].to(device)
        self._signal = signal_shares(task).float().to(device)

    def draw(self, indices: Int[Tensor, " batch"], generator: torch.Generator) -> Batch:
        pixels = self._train[indices.to(self._device, non_blocking=True)]
        times = torch.randint(self._task.steps, (len(indices),), generator=generator)
        return self._noised(pixels, times, generator)

    def _noised(
        self, pixels: UInt8[Tensor, "n c h w"], times: Int64[Tensor, " n"], source: torch.Generator
    ) -> Batch:
        """Return images with their steps and noise, which is drawn on the CPU."""
        noise = torch.randn(pixels.shape, generator=source)
        return pixels, *(t.to(self._device, non_blocking=True) for t in (times, noise))

    def inputs(self, *batch: Tensor) -> tuple[Any, ...]:
        pixels, times, noise = batch
        images = (pixels.float() - self._mean) / self._deviation
        signal = self._signal[times][:, None, None, None]
        return signal.sqrt() * images + (1 - signal).sqrt() * noise, times

    def loss(self, model: nn.Module, *batch: Tensor) -> Float[Tensor, ""]:
        return F.mse_loss(model(*self.inputs(*batch)).float(), batch[2])

    def fixed(self, samples: int) -> Iterable[Batch]:
        return self._fixed(self._train[:samples], TRAINING_NOISE)

    def _fixed(self, pixels: UInt8[Tensor, "n c h w"], seed: int) -> Iterator[Batch]:
        """Yield batches of the images with fixed noise, their steps spread evenly."""
        source = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(pixels), generator=source)
        times = order * self._task.steps // len(pixels)
        for part, when in batches((pixels, times)):
            yield self._noised(part, when, source)

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        total = sum(
            float(self.loss(model, *batch)) * len(batch[0])
            for batch in self._fixed(self._validation, VALIDATION_NOISE)
        )
        return {"validation_loss": total / len(self._validation)}

    def final_attributes(self, model: nn.Module) -> Mapping[str, Any]:
        """Return new images as bytes."""
        task, (_, rows, columns) = self._task, self._task.images.shape
        noise = torch.Generator().manual_seed(SAMPLE_NOISE)
        start = torch.randn(task.samples, 1, rows, columns, generator=noise).to(self._device)
        images = sample(model, start, signal_shares(task), steps=task.sampling_steps, noise=noise)
        # A diverged network makes NaNs, which become black.
        pixels = (images * self._deviation + self._mean).nan_to_num(0).clamp(0, 255).round()
        data = pixels.to(torch.uint8).cpu().numpy().tobytes()
        shape = [task.samples, rows, columns]
        return {"samples": {"shape": shape, "bytes": base64.b64encode(data).decode()}}


@torch.no_grad()
def sample(
    model: nn.Module,
    start: Float[Tensor, "n c h w"],
    signal: Float64[Tensor, " times"],
    *,
    steps: int,
    noise: torch.Generator,
) -> Float[Tensor, "n c h w"]:
    """Turn noise into images, step by step backwards (ho2020, Alg. 2, posterior variance).

    With fewer `steps` than times, each step is a stride of equal length (song2021, eta = 1).
    `start` is unit noise, as in the paper's code, although x_t never loses the image altogether.
    With pixels of mean 0 and variance 1 the moments agree.

    signal: see `signal_shares`.
    """
    times = torch.linspace(len(signal) - 1, 0, steps, dtype=torch.float64).round().long().tolist()
    images = start
    for i, time in enumerate(times):
        a = float(signal[time])
        before = float(signal[times[i + 1]]) if i + 1 < len(times) else 1.0
        beta = 1 - a / before
        predicted = model(images, torch.full((len(images),), time, device=images.device)).float()
        mean = (images - beta / (1 - a) ** 0.5 * predicted) / (1 - beta) ** 0.5
        fresh = torch.randn(images.shape, generator=noise).to(images.device)
        images = mean + ((1 - before) / (1 - a) * beta) ** 0.5 * fresh
    return images
