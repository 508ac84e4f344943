"""Square crops of images of any size: random crops for training, centre crops for evaluation."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image

Number = float | int
Box = tuple[Number, Number, Number, Number]  # left, upper, right, lower
AREA = (0.08, 1.0)  # smallest and largest share of an image in a random crop
RATIO = (3 / 4, 4 / 3)  # smallest and largest ratio of width to height
TRIES = 10
CENTRE = 224 / 256  # share of the short side, as if resized to 256 and cropped to 224


@dataclass(frozen=True)
class Crops:
    """Squares of `size` pixels, cropped as usual for ImageNet (szegedy2015, torchvision)."""

    size: int = 224

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"crops have at least one pixel, got {self}")

    def random(
        self, image: Image.Image, generator: torch.Generator
    ) -> UInt8[np.ndarray, "size size 3"]:
        """Return a random part of the image, mirrored half the time."""
        chosen = resized(image, random_box(image.size, generator), self.size)
        mirrored = torch.rand((), generator=generator) < 0.5
        return chosen[:, ::-1] if mirrored else chosen

    def middle(self, image: Image.Image) -> UInt8[np.ndarray, "size size 3"]:
        """Return the centre of the image, for evaluation."""
        return resized(image, centre_box(image.size, CENTRE), self.size)


def random_box(shape: tuple[int, int], generator: torch.Generator) -> Box:
    """Draw a crop in whole pixels from an image of `shape` (width, height).

    Area and log ratio are uniform, drawn again until the crop fits. After ten attempts the result
    is the largest centre crop with an allowed ratio.
    """
    width, height = shape
    low, high = map(math.log, RATIO)
    for area, ratio, x, y in torch.rand(TRIES, 4, generator=generator).tolist():
        pixels = width * height * (AREA[0] + (AREA[1] - AREA[0]) * area)
        aspect = math.exp(low + (high - low) * ratio)
        w, h = round(math.sqrt(pixels * aspect)), round(math.sqrt(pixels / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, upper = math.floor(x * (width - w + 1)), math.floor(y * (height - h + 1))
            return (left, upper, left + w, upper + h)
    w = min(width, max(1, round(height * RATIO[1])))
    h = min(height, max(1, round(width / RATIO[0])))
    left, upper = (width - w) // 2, (height - h) // 2
    return (left, upper, left + w, upper + h)


def centre_box(shape: tuple[int, int], share: Number) -> Box:
    """Return the centre square with `share` of the short side of an image of (width, height)."""
    width, height = shape
    half = share * min(shape) / 2
    return (width / 2 - half, height / 2 - half, width / 2 + half, height / 2 + half)


def resized(image: Image.Image, box: Box, size: int) -> UInt8[np.ndarray, "size size 3"]:
    """Resize the box bilinearly; a smaller result averages the pixels that each new one covers."""
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=box))
