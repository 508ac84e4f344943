"""Random changes of training images."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import UInt8
from torch import Tensor


@dataclass(frozen=True)
class CropFlip:
    """Random shifts by up to `padding` pixels over a black border, and mirror images half the time.

    This is the usual augmentation for CIFAR (he2016, section 4.2).
    """

    padding: int = 4

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise ValueError(f"images are padded by 0 or more pixels, got {self.padding}")

    def __call__(
        self, images: UInt8[Tensor, "batch c h w"], generator: torch.Generator
    ) -> UInt8[Tensor, "batch c h w"]:
        """Return another view of each image; `generator` is always on the CPU."""
        batch, _, height, width = images.shape
        device, reach = images.device, 2 * self.padding + 1
        down, across, mirror = (
            torch.randint(high, (batch,), generator=generator).to(device, non_blocking=True)
            for high in (reach, reach, 2)
        )
        rows = down[:, None] + torch.arange(height, device=device)  # (batch, h)
        columns = torch.arange(width, device=device)
        columns = torch.where(mirror[:, None] == 1, columns.flip(0), columns) + across[:, None]
        padded = F.pad(images, [self.padding] * 4)
        image = torch.arange(batch, device=device)[:, None, None]
        # Indexed axes come before the sliced one: (batch, h, w, c).
        return padded[image, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
