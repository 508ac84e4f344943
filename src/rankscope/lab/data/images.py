"""Labelled images from the hub, decoded once: CIFAR-10, CIFAR-100 and MNIST."""

import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from multiprocessing import parent_process
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from PIL import Image, UnidentifiedImageError
from rich.console import Console
from rich.file_proxy import FileProxy
from rich.progress import track
from torch import Tensor

from rankscope.lab.data.cache import cached
from rankscope.lab.data.hub import (
    DOWNLOAD_AGAIN,
    encoded_files,
    labels,
    parquet_files,
    read_shards,
)

MODES = {1: "L", 3: "RGB"}  # Pillow's mode for a number of channels


@dataclass(frozen=True)
class Images:
    """Images with one label each, 0 <= label < classes."""

    inputs: UInt8[Tensor, "n c h w"]
    labels: Int64[Tensor, " n"]
    classes: int

    def __getitem__(self, rows: Int64[Tensor, " part"]) -> "Images":
        """Select images."""
        return Images(self.inputs[rows], self.labels[rows], self.classes)


@runtime_checkable
class ImageData(Protocol):
    """The declaration of a set of images, such as `HubImages`."""

    def build(self, folder: Path | None = None) -> Images:
        """Build the images. folder: parent of the data sets, if these are read from disk."""


@dataclass(frozen=True)
class HubImages:
    """A split of images in the hub's layout.

    shape: channels, height and width of every image; decoding converts between grey and colour.
    """

    repo: str
    config: str
    split: str
    image_column: str
    label_column: str
    classes: int
    shape: tuple[int, int, int]

    def __post_init__(self) -> None:
        if self.shape[0] not in MODES or min(self.shape) < 1 or self.classes < 1:
            raise ValueError(
                f"images have 1 or 3 channels, at least one pixel and one class; got {self}"
            )

    def build(self, folder: Path | None = None) -> Images:
        """Read the images. folder: parent of the data sets, see `parquet_files`."""
        files = parquet_files(self.repo, self.config, self.split, folder=folder)
        # All fields, since another column or number of classes gives other arrays.
        name = "-".join(str(value) for value in (*astuple(self)[:-1], *self.shape))
        arrays = cached(name.replace("/", "-"), files, lambda: self._decode(files))
        return Images(
            torch.from_numpy(np.array(arrays["inputs"])),
            torch.from_numpy(np.array(arrays["labels"])),
            self.classes,
        )

    def _decode(self, files: Sequence[Path]) -> dict[str, np.ndarray]:
        inputs, answers = [], []
        for path, table in read_shards(files, [self.image_column, self.label_column]):
            answers.append(labels(table[self.label_column], self.classes, path))
            encoded = encoded_files(table[self.image_column], path, self.image_column)
            rows = _with_bar(encoded, f"decoding {self.repo} {path.name}")
            inputs += [
                decode(data, self.shape, f"{path}, row {row}") for row, data in enumerate(rows)
            ]
        return {"inputs": np.stack(inputs), "labels": np.concatenate(answers)}


CIFAR10 = HubImages("uoft-cs/cifar10", "plain_text", "train", "img", "label", 10, (3, 32, 32))
CIFAR100 = HubImages("uoft-cs/cifar100", "cifar100", "train", "img", "fine_label", 100, (3, 32, 32))
CIFAR10_TEST, CIFAR100_TEST = replace(CIFAR10, split="test"), replace(CIFAR100, split="test")
MNIST = HubImages("ylecun/mnist", "mnist", "train", "image", "label", 10, (1, 28, 28))


def decode(
    data: bytes | None, shape: tuple[int, int, int], where: str
) -> UInt8[np.ndarray, "c h w"]:
    """Decode the pixels of one image; `where` names it in messages."""
    channels, height, width = shape
    pixels = np.asarray(decoded(data, where, mode=MODES[channels]))
    if pixels.shape[:2] != (height, width):
        raise ValueError(
            f"{where}: expected an image of {height} x {width} pixels, got {pixels.shape[0]} x "
            f"{pixels.shape[1]}; {DOWNLOAD_AGAIN}, or name the data set it is"
        )
    return np.ascontiguousarray(np.atleast_3d(pixels).transpose(2, 0, 1))


def decoded(data: bytes | None, where: str, *, mode: str = "RGB") -> Image.Image:
    """Decode an image of any mode to grey ("L") or three colours ("RGB")."""
    try:
        with Image.open(io.BytesIO(data or b"")) as image:
            return image.convert(mode)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"{where}: the image does not decode; {DOWNLOAD_AGAIN}") from error


def _with_bar(rows: Sequence[bytes | None], title: str) -> Iterable[bytes | None]:
    """Iterate over the rows with a progress bar on a terminal's stderr.

    There is no bar in a worker process, or if rich already draws on stderr.
    """
    console = Console(stderr=True)
    has_bar = parent_process() is not None or isinstance(sys.stderr, FileProxy)
    hidden = has_bar or not console.is_terminal
    return track(rows, title, console=console, transient=True, disable=hidden)
