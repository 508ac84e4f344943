"""Synthetic images of ten classes, written and read as shards in the hub's layout.

They stand in for ImageNet where nothing can be downloaded.
"""

import io
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import UInt8
from PIL import Image

from rankscope.lab.data.cache import folder as cache_folder
from rankscope.lab.data.cache import folder_at_once
from rankscope.lab.data.shards import ImageShards, ShardedImages

VERSION = 1  # raise this when the same declaration gives other images
SHAPES = 5  # for each of two colourings
SIDES = (40, 65)  # pixels; the upper bound is exclusive
SHARDS = 4
ROW_GROUP = 50
NOISE = 25.0  # standard deviation of a pixel's colour, out of 255


@dataclass(frozen=True)
class Patterns:
    """Horizontal and vertical stripes, checks, rings and dots, bright on dark or dark on bright.

    Colours, period, place and size of each image are random; all classes are equally frequent.
    The images are JPEG files of different sizes in `SHARDS` Parquet files, in the cache.
    """

    split: str = "train"
    count: int = 2000

    def __post_init__(self) -> None:
        if self.count < 1 or self.count % self.classes:
            raise ValueError(f"expected a multiple of {self.classes} images, got {self.count}")

    @property
    def classes(self) -> int:
        return 2 * SHAPES

    def open(self, folder: Path | None = None, *, keep: int = 1) -> ImageShards:
        """Open the images, which are made on first use; `folder` is ignored."""
        place = cache_folder() / f"patterns-{self.split}-{self.count}-{VERSION}"
        if not place.is_dir():
            with folder_at_once(place) as building:
                self._write(building / "made/patterns/data")
        declared = ShardedImages(
            "made/patterns", "data", self.split, "image", "label", self.classes
        )
        return declared.open(place, keep=keep)

    def _write(self, place: Path) -> None:
        place.mkdir(parents=True)
        draws = np.random.default_rng(list(self.split.encode()))
        labels = draws.permutation(np.arange(self.count) % self.classes)
        rows = [{"bytes": jpeg(pattern(label, draws)), "path": None} for label in labels.tolist()]
        kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        table = pa.table({"image": pa.array(rows, kind), "label": pa.array(labels)})
        edges = np.linspace(0, self.count, SHARDS + 1).astype(int)
        for shard, (start, end) in enumerate(pairwise(edges)):
            path = place / f"{self.split}-{shard:05}-of-{SHARDS:05}.parquet"
            pq.write_table(table[start:end], path, row_group_size=ROW_GROUP)


def pattern(label: int, draws: np.random.Generator) -> UInt8[np.ndarray, "h w 3"]:
    """Draw one image of a class."""
    height, width = draws.integers(*SIDES, 2)
    period = draws.uniform(6, 14)
    y, x = (np.indices((height, width)) + draws.uniform(0, 50, (2, 1, 1))) * (2 * np.pi / period)
    from_centre = np.hypot(y - y.mean(), x - x.mean())
    waves = [
        np.sin(y),
        np.sin(x),
        np.sin(y) * np.sin(x),
        np.sin(from_centre),
        np.cos(y) + np.cos(x) - 1,
    ]
    shape, swapped = label % SHAPES, label >= SHAPES
    dark, bright = draws.uniform((0, 130), (110, 255), (3, 2)).T
    inside, outside = (dark, bright) if swapped else (bright, dark)
    pixels = np.where(waves[shape][..., None] > 0.3, inside, outside)
    noisy: np.ndarray = (pixels + draws.normal(0, NOISE, pixels.shape)).clip(0, 255)
    return noisy.astype(np.uint8)


def jpeg(pixels: UInt8[np.ndarray, "h w 3"]) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="JPEG", quality=90)
    return buffer.getvalue()
