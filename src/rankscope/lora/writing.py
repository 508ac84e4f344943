"""Safetensors files written one tensor at a time, and folders that appear only when whole."""

import json
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from jaxtyping import Shaped
from torch import Tensor

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
ALIGNMENT = 8  # of the first tensor, as the format's own library writes it

Layout = Mapping[str, tuple[tuple[int, ...], torch.dtype]]  # shape and format by name


def write_safetensors(
    path: Path, layout: Layout, read: Callable[[str], Shaped[Tensor, "..."]]
) -> None:
    """Write tensors to a file in the order of `layout`, reading each when its turn comes."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (shape, dtype) in layout.items():
        if dtype not in DTYPES:
            raise ValueError(f"tensor {name!r} has the format {dtype}, which is not written")
        start, end = end, end + dtype.itemsize * torch.Size(shape).numel()
        header[name] = {"dtype": DTYPES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, (shape, dtype) in layout.items():
            tensor = read(name).detach().cpu().contiguous()
            assert (tuple(tensor.shape), tensor.dtype) == (tuple(shape), dtype), name
            file.write(tensor.reshape(-1).view(torch.uint8).numpy().data)
        file.flush()
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
    taken = os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir()))
    if taken and not overwrite:
        raise ValueError(f"{path} exists; choose another place, or pass --overwrite")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
