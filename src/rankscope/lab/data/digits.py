"""Handwritten digits without a download: scikit-learn's 1797 images of 8 x 8 pixels."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

from rankscope.lab.data.images import Images

SIDE = 8
LARGEST = 16  # largest grey value


@dataclass(frozen=True)
class Digits:
    """Scikit-learn's digits in grey, enlarged to `size` x `size` pixels; values 0 to 255."""

    size: int = SIDE
    enlarge: Literal["nearest", "bilinear"] = "bilinear"

    def __post_init__(self) -> None:
        if self.size < SIDE:
            raise ValueError(f"digits are {SIDE} x {SIDE} and can only be enlarged, got {self}")

    @property
    def classes(self) -> int:
        return 10

    @property
    def shape(self) -> tuple[int, int, int]:
        return (1, self.size, self.size)

    def build(self, folder: Path | None = None) -> Images:
        """Build the images from scikit-learn; `folder` is ignored."""
        data = load_digits()
        grey = torch.from_numpy(data.images)[:, None] * (255 / LARGEST)  # (n, 1, 8, 8)
        if self.size > SIDE:
            smooth = {"align_corners": False} if self.enlarge == "bilinear" else {}
            grey = F.interpolate(grey, size=(self.size, self.size), mode=self.enlarge, **smooth)
        labels = torch.from_numpy(data.target).long()
        return Images(grey.round().to(torch.uint8), labels, self.classes)
