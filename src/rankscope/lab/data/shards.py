"""Labelled images too many for memory: ImageNet and Tiny-ImageNet, read row group by row group."""

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int, Int64, UInt8
from PIL import Image
from torch import Tensor

from rankscope.lab.data.cache import cached
from rankscope.lab.data.hub import encoded_files, labels, read_row_group
from rankscope.lab.data.images import decoded
from rankscope.lab.data.remote import LocalShard, Shard, row_group_sizes, split_shards
from rankscope.lab.running.processes import cores

# What is seen of an image, given its index: pixels (size, size, 3).
Look = Callable[[Image.Image, int], np.ndarray]


@dataclass(frozen=True)
class ShardedImages:
    """A split of images in the hub's layout, of any sizes and modes."""

    repo: str
    config: str
    split: str
    image_column: str
    label_column: str
    classes: int

    def open(self, folder: Path | None = None, *, keep: int = 1) -> "ImageShards":
        """folder: that of the data sets, see `parquet_files`. keep: see `ImageShards`."""
        files = split_shards(self.repo, self.config, self.split, folder=folder)
        name = "-".join([self.repo, self.config, self.split, "rows"]).replace("/", "-")
        return ImageShards(self, files, name=name, keep=keep)


IMAGENET = ShardedImages("ILSVRC/imagenet-1k", "data", "train", "image", "label", 1000)
IMAGENET_VALIDATION = ShardedImages(
    "ILSVRC/imagenet-1k", "data", "validation", "image", "label", 1000
)
TINY_IMAGENET = ShardedImages("zh-plus/tiny-imagenet", "data", "train", "image", "label", 200)
TINY_IMAGENET_VALIDATION = ShardedImages(
    "zh-plus/tiny-imagenet", "data", "valid", "image", "label", 200
)


class Rows(NamedTuple):
    """A row group in memory, its images still encoded; `first` is its first row in the file."""

    encoded: list[bytes | None]
    labels: np.ndarray
    path: Path
    first: int


class ImageShards:
    """The images of a split, counted through all its shards.

    At most `keep` row groups are in memory, those used last. Safe to use from several threads.
    """

    def __init__(
        self, declared: ShardedImages, files: Sequence[Shard], *, name: str, keep: int
    ) -> None:
        index = _index(name, files)
        self._declared = declared
        self._files = files
        self._file_of = index["file"]
        self._sizes = index["rows"]
        self._starts = np.cumsum(self._sizes) - self._sizes
        # Of each row group, the number of the first in its file.
        self._first_of = np.searchsorted(self._file_of, self._file_of)
        self._keep = keep
        self._kept: OrderedDict[int, Rows] = OrderedDict()
        self._lock = Lock()

    @property
    def blocks(self) -> tuple[int, ...]:
        """How many images each row group has."""
        return tuple(self._sizes.tolist())

    def __len__(self) -> int:
        return int(self._sizes.sum())

    def spread(self, count: int, *, files: int, blocks: int) -> Int64[Tensor, " some"]:
        """Evenly spread images, at most `count`, out of at most so many files and row groups."""
        full = np.flatnonzero(self._sizes)
        chosen = evenly(np.unique(self._file_of[full]), files)
        groups = evenly(full[np.isin(self._file_of[full], chosen)], blocks)
        images = [self._starts[group] + np.arange(self._sizes[group]) for group in groups]
        return torch.from_numpy(evenly(np.concatenate(images), count))

    def images(
        self, indices: Int[Tensor, " n"], look: Look, *, size: int
    ) -> tuple[UInt8[Tensor, "n 3 size size"], Int64[Tensor, " n"]]:
        """These images and their labels, in this order; decoded by as many threads as cores.

        They lie in memory channels last, as they are decoded.
        """
        asked = indices.numpy()
        group_of = np.searchsorted(self._starts, asked, side="right") - 1
        groups = np.unique(group_of)
        pixels = np.empty((len(asked), size, size, 3), np.uint8)
        answers = np.empty(len(asked), np.int64)

        def fill(group: int) -> None:
            rows = self._rows(group)
            for place in np.flatnonzero(group_of == group).tolist():
                row = int(asked[place] - self._starts[group])
                image = decoded(rows.encoded[row], f"{rows.path}, row {rows.first + row}")
                pixels[place] = look(image, int(asked[place]))
                answers[place] = rows.labels[row]

        # The pool is of this call alone, so nothing is left running when training ends.
        with ThreadPoolExecutor(min(threads(), len(groups))) as pool:
            for _ in pool.map(fill, groups.tolist()):
                pass  # to raise here what was raised there
        return torch.from_numpy(pixels).permute(0, 3, 1, 2), torch.from_numpy(answers)

    def _rows(self, group: int) -> Rows:
        with self._lock:
            if group in self._kept:
                self._kept.move_to_end(group)
                return self._kept[group]
        rows = self._read(group)
        with self._lock:
            self._kept[group] = rows
            while len(self._kept) > self._keep:
                self._kept.popitem(last=False)
        return rows

    def _read(self, group: int) -> Rows:
        path = self._files[self._file_of[group]].path()
        opening = self._first_of[group]
        first = int(self._starts[group] - self._starts[opening])
        columns = [self._declared.image_column, self._declared.label_column]
        table = read_row_group(path, int(group - opening), columns)
        encoded = encoded_files(table[columns[0]], path, columns[0])
        return Rows(
            encoded,
            labels(table[columns[1]], self._declared.classes, path, first=first),
            path,
            first,
        )


def evenly(values: Int64[np.ndarray, " n"], most: int) -> Int64[np.ndarray, " some"]:
    """At most so many of them, the first and the last among these."""
    places = np.linspace(0, len(values) - 1, min(most, len(values)))
    chosen: np.ndarray = values[places.round().astype(int)]
    return chosen


def threads() -> int:
    """The cores this process may use, shared with those that torchrun started beside it."""
    return max(1, cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def _index(name: str, files: Sequence[Shard]) -> dict[str, np.ndarray]:
    """File and rows of every row group; footers are read once."""

    def read() -> dict[str, np.ndarray]:
        sizes = row_group_sizes(files)
        return {
            "file": np.repeat(np.arange(len(files)), [len(each) for each in sizes]),
            "rows": np.array([rows for each in sizes for rows in each], dtype=np.int64),
        }

    here = [file.path() for file in files if isinstance(file, LocalShard)]
    there = [file for file in files if not isinstance(file, LocalShard)]
    commit = sha256(repr(there).encode()).hexdigest()[:8]  # those of the hub name theirs
    index = cached(f"{name}-{commit}", here, read)
    if not index["rows"].sum():
        raise ValueError(
            f"{files[0]}: no rows, nor in any other shard of its split; download the split again"
        )
    return index
