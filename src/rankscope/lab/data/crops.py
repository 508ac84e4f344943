"""Images of all sizes as squares of one: random crops to learn from, the centre to be judged by."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image

Number = float | int
Box = tuple[Number, Number, Number, Number]  # left, upper, right, lower
AREA = (0.08, 1.0)  # the least and the largest share of an image that a random crop shows
RATIO = (3 / 4, 4 / 3)  # the least and the largest of its width to its height
TRIES = 10
CENTRE = 224 / 256  # of the short side: resizing to 256 and cutting out 224 comes to that


@dataclass(frozen=True)
class Crops:
    """Squares of `size` pixels, the usual way for ImageNet (szegedy2015; torchvision's numbers)."""

    size: int = 224

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"crops have at least one pixel, got {self}")

    def random(
        self, image: Image.Image, generator: torch.Generator
    ) -> UInt8[np.ndarray, "size size 3"]:
        """A part of the image, mirrored half the time."""
        chosen = resized(image, random_box(image.size, generator), self.size)
        mirrored = torch.rand((), generator=generator) < 0.5
        return chosen[:, ::-1] if mirrored else chosen

    def middle(self, image: Image.Image) -> UInt8[np.ndarray, "size size 3"]:
        """The part that is looked at when nothing is learnt."""
        return resized(image, centre_box(image.size, CENTRE), self.size)


def random_box(shape: tuple[int, int], generator: torch.Generator) -> Box:
    """Whole pixels of an image of `shape`, width and height.

    Area and log ratio are uniform, as often as it takes for the crop to fit; after ten
    attempts it is the largest crop at the centre whose ratio is allowed.
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
    """The square in the middle of an image of width and height `shape`."""
    width, height = shape
    half = share * min(shape) / 2
    return (width / 2 - half, height / 2 - half, width / 2 + half, height / 2 + half)


def resized(image: Image.Image, box: Box, size: int) -> UInt8[np.ndarray, "size size 3"]:
    """What lies in the box, bilinear; where it shrinks, averaged over what a pixel covers."""
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=box))
