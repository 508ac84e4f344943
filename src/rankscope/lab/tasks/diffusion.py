"""Noise in images, to make new ones: denoising diffusion (ho2020; yunis2024, app. C.2)."""

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
from rankscope.lab.training.task import Batch, Place, Problem

TRAINING_NOISE, VALIDATION_NOISE, SAMPLE_NOISE = 11, 12, 13  # seeds of what stays fixed


@dataclass(frozen=True)
class Diffusion:
    """Mean squared error of the noise that the network finds in noisy images.

    x_t = sqrt(a_t) x_0 + sqrt(1 - a_t) noise, a_t = product of 1 - beta up to t, t drawn uniformly
    from 0 ... steps - 1. A tenth of the images is held out by a split that follows the seed.
    Pixels are shifted and scaled to mean 0 and standard deviation 1 over the training part, as in
    the paper's code.
    betas: the first and the last of the schedule, see `sigmoid_betas`.
    samples: how many images the trained network makes. sampling_steps: in how many steps.
    """

    images: HubImages | Digits
    model: UnetConfig
    steps: int = 1000
    betas: tuple[float, float] = (1e-5, 5e-3)
    samples: int = 64
    sampling_steps: int = 1000

    def __post_init__(self) -> None:
        if self.images.shape[0] != 1 or self.model.image_channels != 1:
            raise ValueError(f"diffusion is of grey images, of one channel each; got {self}")
        if not 0 < self.betas[0] <= self.betas[1] < 1:
            raise ValueError(f"betas must rise inside (0, 1), got {self.betas}")
        if not 1 <= self.sampling_steps <= self.steps:
            raise ValueError(
                f"sampling takes 1 to {self.steps} steps, got sampling_steps={self.sampling_steps}"
            )

    def build(self, place: Place, *, seed: int) -> "DiffusionProblem":
        images = self.images.build(place.data)
        return DiffusionProblem(self, images, device=torch.device(place.device), seed=seed)


def sigmoid_betas(steps: int, first: float, last: float) -> Float64[Tensor, " steps"]:
    """first + (last - first) sigmoid(s), s from -6 to 6 in equal steps, as in the paper's code.

    The share of noise added in each step. At the paper's 1000 steps from 1e-5 to 5e-3 they leave
    exp(-2.5) = 0.08 of the variance to the image: x_999 still has 0.29 of its contrast.
    """
    return first + (last - first) * torch.linspace(-6, 6, steps, dtype=torch.float64).sigmoid()


class DiffusionProblem(Problem):
    """All images on the device as bytes; they become noisy numbers batch by batch."""

    unit = "images"
    # Noise has mean square 1, and given nothing its best guess is 0.
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
        self._mean, self._deviation = (each.to(device) for each in moments)
        self._train = images.inputs[train].to(device)
        self._validation = images.inputs[validation].to(device)
        kept = (1 - sigmoid_betas(task.steps, *task.betas)).cumprod(0)
        self._kept = kept.float().to(device)  # a_t

    def draw(self, indices: Int[Tensor, " batch"], generator: torch.Generator) -> Batch:
        pixels = self._train[indices.to(self._device, non_blocking=True)]
        times = torch.randint(self._task.steps, (len(indices),), generator=generator)
        return self._noised(pixels, times, generator)

    def _noised(
        self, pixels: UInt8[Tensor, "n c h w"], times: Int64[Tensor, " n"], source: torch.Generator
    ) -> Batch:
        """Images with the steps and the noise of each; noise is drawn on the CPU."""
        noise = torch.randn(pixels.shape, generator=source)
        return (
            pixels,
            times.to(self._device, non_blocking=True),
            noise.to(self._device, non_blocking=True),
        )

    def inputs(self, *batch: Tensor) -> tuple[Any, ...]:
        pixels, times, noise = batch
        images = (pixels.float() - self._mean) / self._deviation
        kept = self._kept[times][:, None, None, None]
        return kept.sqrt() * images + (1 - kept).sqrt() * noise, times

    def loss(self, model: nn.Module, *batch: Tensor) -> Float[Tensor, ""]:
        return F.mse_loss(model(*self.inputs(*batch)).float(), batch[2])

    def fixed(self, samples: int) -> Iterable[Batch]:
        return self._fixed(self._train[:samples], TRAINING_NOISE)

    def _fixed(self, pixels: UInt8[Tensor, "n c h w"], seed: int) -> Iterator[Batch]:
        """In batches, with steps spread evenly over all there are."""
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
        """A sheet of new images, as bytes."""
        task, (_, rows, columns) = self._task, self._task.images.shape
        kept = (1 - sigmoid_betas(task.steps, *task.betas)).cumprod(0)
        noise = torch.Generator().manual_seed(SAMPLE_NOISE)
        start = torch.randn(task.samples, 1, rows, columns, generator=noise).to(self._device)
        made = sample(model, start, kept, steps=task.sampling_steps, noise=noise)
        # A network that diverged makes no numbers; its sheet is black.
        pixels = (made * self._deviation + self._mean).nan_to_num(0).clamp(0, 255).round()
        data = pixels.to(torch.uint8).cpu().numpy().tobytes()
        shape = [task.samples, rows, columns]
        return {"samples": {"shape": shape, "bytes": base64.b64encode(data).decode()}}


@torch.no_grad()
def sample(
    model: nn.Module,
    start: Float[Tensor, "n c h w"],
    kept: Float64[Tensor, " times"],
    *,
    steps: int,
    noise: torch.Generator,
) -> Float[Tensor, "n c h w"]:
    """Images from noise, step by step backwards (ho2020, Alg. 2, posterior variance).

    With fewer `steps` than there are times, as many of them in equal strides, each stride one step
    (song2021, eta = 1). `start` is unit noise though the images never fade from x_t altogether: the
    paper's code does so too, and with pixels of mean 0 and variance 1 the moments agree.

    kept: a_t of every time.
    """
    times = torch.linspace(len(kept) - 1, 0, steps, dtype=torch.float64).round().long().tolist()
    images = start
    for i, time in enumerate(times):
        a = float(kept[time])
        before = float(kept[times[i + 1]]) if i + 1 < len(times) else 1.0
        beta = 1 - a / before
        found = model(images, torch.full((len(images),), time, device=images.device)).float()
        mean = (images - beta / (1 - a) ** 0.5 * found) / (1 - beta) ** 0.5
        fresh = torch.randn(images.shape, generator=noise).to(images.device)
        images = mean + ((1 - before) / (1 - a) * beta) ** 0.5 * fresh
    return images
