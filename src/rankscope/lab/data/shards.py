"""Labelled images too many for memory, read by row group: ImageNet and Tiny-ImageNet."""

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
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
from rankscope.lab.data.hub import encoded_files, labels, read_table
from rankscope.lab.data.images import decoded
from rankscope.lab.data.remote import LocalShard, Shard, row_group_sizes, split_shards
from rankscope.tracker.defaults import cores

# From an image and its index to pixels (size, size, 3).
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
        """Open the split. folder: see `parquet_files`. keep: see `ImageShards`."""
        files = split_shards(self.repo, self.config, self.split, folder=folder)
        name = "-".join([self.repo, self.config, self.split, "rows"]).replace("/", "-")
        return ImageShards(self, files, name=name, keep=keep)


IMAGENET = ShardedImages("ILSVRC/imagenet-1k", "data", "train", "image", "label", 1000)
IMAGENET_VALIDATION = replace(IMAGENET, split="validation")
TINY_IMAGENET = ShardedImages("zh-plus/tiny-imagenet", "data", "train", "image", "label", 200)
TINY_IMAGENET_VALIDATION = replace(TINY_IMAGENET, split="valid")


class Rows(NamedTuple):
    """A row group in memory with encoded images; `first` is its first row in the file."""

    encoded: list[bytes | None]
    labels: np.ndarray
    path: Path
    first: int


class ImageShards:
    """The images of a split, numbered through all its shards.

    The `keep` row groups used last stay in memory. Several threads may use one object.
    """

    def __init__(
        self, declared: ShardedImages, files: Sequence[Shard], *, name: str, keep: int
    ) -> None:
        index = _index(name, files)
        self._declared, self._files = declared, files
        self._file_of, self._sizes = index["file"], index["rows"]
        self._starts = np.cumsum(self._sizes) - self._sizes
        # For each row group, the number of the first one in its file.
        self._first_of = np.searchsorted(self._file_of, self._file_of)
        self._keep = keep
        self._in_memory: OrderedDict[int, Rows] = OrderedDict()
        self._lock = Lock()

    @property
    def blocks(self) -> tuple[int, ...]:
        """Number of images in each row group."""
        return tuple(self._sizes.tolist())

    def __len__(self) -> int:
        return int(self._sizes.sum())

    def spread(self, count: int, *, files: int, blocks: int) -> Int64[Tensor, " some"]:
        """Choose at most `count` images, evenly spread over at most `files` and row groups."""
        full = np.flatnonzero(self._sizes)
        chosen = evenly(np.unique(self._file_of[full]), files)
        groups = evenly(full[np.isin(self._file_of[full], chosen)], blocks)
        images = [self._starts[group] + np.arange(self._sizes[group]) for group in groups]
        return torch.from_numpy(evenly(np.concatenate(images), count))

    def images(
        self, indices: Int[Tensor, " n"], look: Look, *, size: int
    ) -> tuple[UInt8[Tensor, "n 3 size size"], Int64[Tensor, " n"]]:
        """Return images and labels in the order of `indices`, decoded by one thread per core.

        The memory format is channels last, as decoded.
        """
        wanted = indices.numpy()
        group_of = np.searchsorted(self._starts, wanted, side="right") - 1
        groups = np.unique(group_of)
        pixels = np.empty((len(wanted), size, size, 3), np.uint8)
        answers = np.empty(len(wanted), np.int64)

        def fill(group: int) -> None:
            rows = self._rows(group)
            for place in np.flatnonzero(group_of == group).tolist():
                row = int(wanted[place] - self._starts[group])
                image = decoded(rows.encoded[row], f"{rows.path}, row {rows.first + row}")
                pixels[place] = look(image, int(wanted[place]))
                answers[place] = rows.labels[row]

        # A pool for this call only, so nothing is left running when training ends.
        with ThreadPoolExecutor(min(threads(), len(groups))) as pool:
            for _ in pool.map(fill, groups.tolist()):
                pass  # raises the errors of the threads
        return torch.from_numpy(pixels).permute(0, 3, 1, 2), torch.from_numpy(answers)

    def _rows(self, group: int) -> Rows:
        with self._lock:
            if group in self._in_memory:
                self._in_memory.move_to_end(group)
                return self._in_memory[group]
        rows = self._read(group)
        with self._lock:
            self._in_memory[group] = rows
            while len(self._in_memory) > self._keep:
                self._in_memory.popitem(last=False)
        return rows

    def _read(self, group: int) -> Rows:
        path = self._files[self._file_of[group]].path()
        opening = self._first_of[group]
        first = int(self._starts[group] - self._starts[opening])
        columns = [self._declared.image_column, self._declared.label_column]
        table = read_table(path, columns, int(group - opening))
        encoded = encoded_files(table[columns[0]], path, columns[0])
        answers = labels(table[columns[1]], self._declared.classes, path, first=first)
        return Rows(encoded, answers, path, first)


def evenly(values: Int64[np.ndarray, " n"], most: int) -> Int64[np.ndarray, " some"]:
    """Choose at most `most` values, evenly spread, including the first and the last."""
    places = np.linspace(0, len(values) - 1, min(most, len(values)))
    chosen: np.ndarray = values[places.round().astype(int)]
    return chosen


def threads() -> int:
    """Number of threads: this process's cores, shared with the others that torchrun started."""
    return max(1, cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def _index(name: str, files: Sequence[Shard]) -> dict[str, np.ndarray]:
    """Return the file and the number of rows of every row group, from cached footers."""

    def read() -> dict[str, np.ndarray]:
        sizes = row_group_sizes(files)
        return {
            "file": np.repeat(np.arange(len(files)), [len(groups) for groups in sizes]),
            "rows": np.array([rows for groups in sizes for rows in groups], dtype=np.int64),
        }

    local = [file.path() for file in files if isinstance(file, LocalShard)]
    remote = [file for file in files if not isinstance(file, LocalShard)]
    commit = sha256(repr(remote).encode()).hexdigest()[:8]  # shards on the hub include theirs
    index = cached(f"{name}-{commit}", local, read)
    if not index["rows"].sum():
        raise ValueError(
            f"{files[0]}: no rows, nor in any other shard of its split; download the split again"
        )
    return index
