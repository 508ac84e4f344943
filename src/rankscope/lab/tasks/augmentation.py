"""Images changed at random while they are learnt from."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import UInt8
from torch import Tensor


@dataclass(frozen=True)
class CropFlip:
    """Shifts by up to `padding` pixels each way, black coming in, and mirror images half the time.

    The usual one for CIFAR (he2016, section 4.2).
    """

    padding: int = 4

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise ValueError(f"images are padded by 0 or more pixels, got {self.padding}")

    def __call__(
        self, images: UInt8[Tensor, "batch c h w"], generator: torch.Generator
    ) -> UInt8[Tensor, "batch c h w"]:
        """Another view of each image; `generator` lives on the CPU whatever the images do."""
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
        at = torch.arange(batch, device=device)[:, None, None]
        # Advanced axes around the sliced one come first: (batch, h, w, c).
        return padded[at, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
