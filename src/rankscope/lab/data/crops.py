"""Images of all sizes as squares of one: random crops to learn from, the centre to be judged by."""

import io
import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image, UnidentifiedImageError

from rankscope.lab.data.hub import DOWNLOAD_AGAIN

Number = float | int
Box = tuple[Number, Number, Number, Number]  # left, upper, right, lower
TRIES = 10


@dataclass(frozen=True)
class Crops:
    """Squares of `size` pixels, the usual way for ImageNet (szegedy2015; torchvision's numbers).

    area: the least and the largest share of an image that a random crop shows. ratio: the least and
    the largest of width to height. centre: the share of the short side that the centre crop shows;
    224/256 is what resizing to 256 and cutting out 224 comes to.
    """

    size: int = 224
    area: tuple[Number, Number] = (0.08, 1.0)
    ratio: tuple[Number, Number] = (3 / 4, 4 / 3)
    centre: Number = 224 / 256

    def __post_init__(self) -> None:
        (least, most), (narrow, wide) = self.area, self.ratio
        if not (self.size >= 1 and 0 < least <= most <= 1 and 0 < narrow <= wide):
            raise ValueError(
                "crops have at least one pixel, 0 < area <= 1 and 0 < ratio, the least first; "
                f"got {self}"
            )
        if not 0 < self.centre <= 1:
            raise ValueError(f"the centre is a share of the short side, got {self.centre:g}")

    def random(
        self, image: Image.Image, generator: torch.Generator
    ) -> UInt8[np.ndarray, "size size 3"]:
        """A part of the image, mirrored half the time."""
        chosen = resized(image, self.random_box(image.size, generator), self.size)
        mirrored = torch.rand((), generator=generator) < 0.5
        return chosen[:, ::-1] if mirrored else chosen

    def middle(self, image: Image.Image) -> UInt8[np.ndarray, "size size 3"]:
        """The part that is looked at when nothing is learnt."""
        return resized(image, centre_box(image.size, self.centre), self.size)

    def random_box(self, shape: tuple[int, int], generator: torch.Generator) -> Box:
        """Whole pixels of an image of `shape`, width and height.

        Area and log ratio are uniform, as often as it takes for the crop to fit; after ten
        attempts it is the largest crop at the centre whose ratio is allowed.
        """
        width, height = shape
        low, high = map(math.log, self.ratio)
        for area, ratio, x, y in torch.rand(TRIES, 4, generator=generator).tolist():
            pixels = width * height * (self.area[0] + (self.area[1] - self.area[0]) * area)
            aspect = math.exp(low + (high - low) * ratio)
            w, h = round(math.sqrt(pixels * aspect)), round(math.sqrt(pixels / aspect))
            if 0 < w <= width and 0 < h <= height:
                left, upper = math.floor(x * (width - w + 1)), math.floor(y * (height - h + 1))
                return (left, upper, left + w, upper + h)
        w = min(width, max(1, round(height * self.ratio[1])))
        h = min(height, max(1, round(width / self.ratio[0])))
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


def decoded(data: bytes | None, where: str) -> Image.Image:
    """An encoded image in three colours, be it grey, CMYK or with a palette."""
    try:
        with Image.open(io.BytesIO(data or b"")) as image:
            return image.convert("RGB")
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"{where}: the image does not decode; {DOWNLOAD_AGAIN}") from error
