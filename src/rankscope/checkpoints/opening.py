"""Open a checkpoint of any format that is known, by what it holds and not by how it is called."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rankscope.checkpoints.checkpoint import Checkpoint
from rankscope.checkpoints.dcp import METADATA, open_dcp
from rankscope.checkpoints.files import File, LocalFile, inside, read_bytes
from rankscope.checkpoints.folders import (
    INDEX,
    configurations,
    joined,
    shard_index,
    weights_in,
)
from rankscope.checkpoints.safetensors import open_safetensors
from rankscope.checkpoints.torch_files import open_legacy, open_zip


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Return the checkpoint at a path; only headers are read.

    A path is a safetensors file, an index of shards, or a folder with either, such as that of a
    Hugging Face model or a PEFT adapter.
    """
    place = Path(path).expanduser()
    if place.is_dir():
        return _open_folder(place)
    if not os.path.lexists(place):
        raise ValueError(
            f"{str(place)!r} does not exist; pass the path of a checkpoint: a file or a folder"
        )
    if place.name.endswith(INDEX):
        return _open_index(place.parent, place.name)
    return open_file(LocalFile.at(place))


def open_file(file: File) -> Checkpoint:
    """Return the checkpoint in one file."""
    if file.size < 8:
        raise ValueError(f"{file.name} is damaged and cannot be read: it has {file.size} bytes")
    start = read_bytes(file, 0, min(16, file.size))
    if start[:4] == b"PK\x03\x04":
        return open_zip(file)
    if start[8:9] == b"{":
        return open_safetensors(file)
    if start[:1] == b"\x80":
        return open_legacy(file)
    raise ValueError(
        f"{file.name!r} cannot be read as a checkpoint; save model.state_dict() with torch.save "
        "or as .safetensors"
    )


def _open_folder(folder: Path) -> Checkpoint:
    names = sorted(entry.name for entry in os.scandir(folder))
    if METADATA in names:
        return open_dcp(folder)
    files = weights_in(names)
    if not files:
        raise ValueError(
            f"{str(folder)!r} holds no checkpoint that is known; pass a file, or a folder with "
            "model.safetensors or the index of its shards"
        )
    if files[0].endswith(INDEX):
        checkpoint = _open_index(folder, files[0])
    elif len(files) == 1:
        checkpoint = replace(open_file(LocalFile.at(inside(folder, files[0]))), source=str(folder))
    else:
        checkpoint = _open_shards(folder, str(folder), files)
    metadata, problems = configurations(folder)
    return replace(
        checkpoint,
        metadata={**checkpoint.metadata, **metadata},
        problems=(*checkpoint.problems, *problems),
    )


def _open_index(folder: Path, name: str) -> Checkpoint:
    index = shard_index(LocalFile.at(inside(folder, name)))
    files = sorted(set(index.values()))
    return _open_shards(folder, str(folder), files, index)


def _open_shards(
    folder: Path, source: str, files: list[str], index: Mapping[str, str] | None = None
) -> Checkpoint:
    return joined(source, files, lambda name: open_file(LocalFile.at(inside(folder, name))), index)
