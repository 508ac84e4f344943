"""Runs of the viewer's benchmark, written once and used again: two large ones, one that grows."""

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rankscope.store import Variable, Writer

FOLDER = Path(tempfile.gettempdir()) / "rankscope-benchmark-view"
LIVE_SNAPSHOTS = 10_000


@dataclass(frozen=True)
class Size:
    """A run: whole matrices of one width, heads of 64, and how many snapshots."""

    name: str
    whole: int
    heads: int
    k: int
    snapshots: int

    @property
    def matrices(self) -> int:
        return self.whole + self.heads

    @property
    def lengths(self) -> np.ndarray:
        return np.array([self.k] * self.whole + [min(64, self.k)] * self.heads)


# 350 x 768 x 2,000; and a language model of 1.1 billion weights: 156 matrices, 2,112 heads.
LARGE = Size("large", 350, 0, 768, 2_000)
LANGUAGE = Size("language", 156, 2_112, 2_048, 200)
LIVE = Size("live", 48, 0, 64, LIVE_SNAPSHOTS)


def written(size: Size) -> Path:
    """Return the run's path; write it if it is not there."""
    path, mark = FOLDER / size.name, FOLDER / f"{size.name}.done"
    if mark.exists():
        return path
    shutil.rmtree(path, ignore_errors=True)
    with create(path, size) as writer:
        for block in _blocks(size):
            append(writer, size, block)
    mark.touch()
    return path


def create(path: Path, size: Size) -> Writer:
    """Begin a run of that size."""
    layers = [f"blocks.{row // 7}.{'qkvo12g'[row % 7]}" for row in range(size.whole)]
    heads = [
        f"blocks.{row // 96}.attn.h{row % 96 // 3}.{'qkv'[row % 3]}" for row in range(size.heads)
    ]
    parts = [""] * size.whole + [f"blocks.{row // 96}.q" for row in range(size.heads)]

    def texts(values: list[str]) -> tuple[tuple[str, ...], np.ndarray]:
        return ("matrix",), np.array(values, object)

    return Writer.create(
        path,
        coords={
            "matrix": texts([*layers, *heads]),
            "m": (("matrix",), size.lengths),
            "n": (("matrix",), np.full(size.matrices, size.k)),
            "kind": texts(["linear"] * size.whole + ["head"] * size.heads),
            "part_of": texts(parts),
            "dtype": texts(["bfloat16"] * size.matrices),
            "k": (("k",), np.arange(size.k)),
        },
        variables={
            "singular_values": Variable(("step", "matrix", "k")),
            "status": Variable(("step", "matrix"), np.int8),
        },
        attrs={"started": "benchmark"},
    )


def append(writer: Writer, size: Size, snapshots: range) -> None:
    """Commit some snapshots at once: power laws whose exponents grow, with noise."""
    generator = np.random.default_rng(snapshots.start)
    time = (np.array(snapshots) / size.snapshots)[:, None]
    rate = np.linspace(0.1, 1.2, size.matrices)[None]
    exponents = (rate * time).astype(np.float32)[..., None]
    spectra = np.exp(-exponents * np.log1p(np.arange(size.k, dtype=np.float32)))
    spectra *= 1 + 0.01 * generator.random((1, size.matrices, size.k), np.float32)
    spectra[:, np.arange(size.k)[None] >= size.lengths[:, None]] = np.nan
    values: dict[str, Any] = {
        "singular_values": spectra,
        "status": np.zeros((len(snapshots), size.matrices), np.int8),
        "loss": 3 * np.exp(-3 * time[:, 0]) + 0.01 * generator.random(len(snapshots)),
    }
    writer.extend("step", 10 * np.array(snapshots), values)


def _blocks(size: Size) -> Iterator[range]:
    rows = max(1, min(512, 64 * 1024 * 1024 // (4 * size.matrices * size.k)))
    for start in range(0, size.snapshots, rows):
        yield range(start, min(size.snapshots, start + rows))
