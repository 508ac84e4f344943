"""Safetensors files written one tensor at a time, and folders that appear only when whole."""

import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from jaxtyping import Shaped
from torch import Tensor

from rankscope.checkpoints import tensor_file
from rankscope.checkpoints.tensor_file import NAMES, Entry, Source, bytes_of

Layout = Mapping[str, tuple[tuple[int, ...], torch.dtype]]  # shape and format by name


def write_safetensors(
    path: Path, layout: Layout, read: Callable[[str], Shaped[Tensor, "..."]]
) -> None:
    """Write tensors to a file, reading each when its turn comes."""
    for name, (_, dtype) in layout.items():
        if dtype not in NAMES:
            raise ValueError(f"tensor {name!r} has the format {dtype}, which is not written")
    entries = {
        name: Entry(NAMES[dtype], tuple(shape), dtype.itemsize * math.prod(shape))
        for name, (shape, dtype) in layout.items()
    }

    def content(name: str) -> tuple[memoryview]:
        tensor = read(name)
        assert (tuple(tensor.shape), tensor.dtype) == layout[name], name
        return (bytes_of(tensor),)

    tensor_file.write(path, [Source(entries, content)], metadata={"format": "pt"})
    with path.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def folder_in_place(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Give a temporary sibling to write into; it takes the place of `path` if the block ends well.

    In a folder that exists, files of the same names are replaced and all others stay.
    """
    check_free(path, overwrite=overwrite)
    if path.is_file():
        raise ValueError(f"{path} is a file; give a folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        yield unfinished
        unfinished.chmod(0o777 & ~_umask())
        if path.exists():
            for file in sorted(unfinished.iterdir()):
                os.replace(file, path / file.name)
        else:
            os.rename(unfinished, path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def file_in_place(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Give a temporary sibling of a file; when the block ends well it takes the place of `path`."""
    check_free(path, overwrite=overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(descriptor)
    try:
        yield Path(name)
        Path(name).chmod(0o666 & ~_umask())
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def check_free(path: Path, *, overwrite: bool) -> None:
    """Refuse a path that is taken; an empty folder is free."""
    is_taken = os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir()))
    if is_taken and not overwrite:
        raise ValueError(f"{path} exists; choose another place, or pass --overwrite")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
