"""Open a checkpoint of any format that is known, by what it holds and not by how it is called."""

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rankscope.checkpoints.checkpoint import Checkpoint
from rankscope.checkpoints.dcp import METADATA, open_dcp
from rankscope.checkpoints.files import File, LocalFile, inside, printable, read_bytes
from rankscope.checkpoints.folders import (
    INDEX,
    SHARD,
    USUAL,
    configurations,
    joined,
    not_one_checkpoint,
    shard_index,
    weights_in,
)
from rankscope.checkpoints.gguf import MAGIC, open_gguf
from rankscope.checkpoints.hub import HubFolder, cached, hub_id
from rankscope.checkpoints.json_text import read_json
from rankscope.checkpoints.natural_order import numbered_in_order
from rankscope.checkpoints.safetensors import open_safetensors
from rankscope.checkpoints.scales import with_scales
from rankscope.checkpoints.torch_files import open_legacy, open_zip

LONGEST_NAME = 300
MOST_OF_EMPTY = 2**31  # product of the axes of an empty tensor that are not 0


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Return the checkpoint at a path; only headers are read.

    A path is a file (safetensors, `torch.save`, GGUF), an index of shards, or a folder with any of
    them, such as a Hugging Face model, a PEFT adapter or a distributed checkpoint. "org/model" and
    "org/model@revision" are models on the hub, of which only the tensors that are read are fetched.

    Weights in float8 or MXFP4 are read with their scales. Other integers are refused by name.
    """
    try:
        return _without_odd(with_scales(_opened(path)))
    except ValueError as refusal:
        raise ValueError(printable(str(refusal))) from None


def _without_odd(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint without tensors of names or shapes that nothing can be done with."""
    problems = [*checkpoint.problems]
    unnamed = [name for name in checkpoint.tensors if not _is_shown(name)]
    if unnamed:
        first = repr(unnamed[0][:80])
        problems.append(
            f"{len(unnamed)} tensors have names that no terminal should show, first {first}"
        )
    # No byte of a file stands behind the other axes of an empty tensor.
    endless = [
        name
        for name, stored in checkpoint.tensors.items()
        if 0 in stored.shape and math.prod(size for size in stored.shape if size) > MOST_OF_EMPTY
    ]
    if endless:
        shape = checkpoint.tensors[endless[0]].shape
        problems.append(
            f"{len(endless)} tensors are empty and of unreasonable size, first "
            f"{endless[0][:80]!r} of shape {shape}"
        )
    odd = {*unnamed, *endless}
    names = numbered_in_order(name for name in checkpoint.tensors if name not in odd)
    tensors = {name: checkpoint.tensors[name] for name in names}
    return replace(checkpoint, tensors=tensors, problems=tuple(map(printable, problems)))


def _is_shown(name: str) -> bool:
    """Tell whether a terminal should show a name."""
    return name.isprintable() and len(name) <= LONGEST_NAME


def _opened(path: str | os.PathLike[str]) -> Checkpoint:
    place = Path(path).expanduser()
    if place.is_dir():
        return _open_folder(place)
    if not os.path.lexists(place):
        if (named := hub_id(str(path))) is not None:
            return _open_hub(*named)
        if "://" in str(path):
            raise ValueError(
                f"{str(path)!r} is a URL; pass a path, or a model on the hub as org/model"
            )
        raise ValueError(
            f"{str(place)!r} does not exist; pass the path of a checkpoint: a file or a folder"
        )
    if place.name.endswith(INDEX):
        return _with_configurations(_open_index(place.parent, place.name), place.parent)
    checkpoint = open_file(LocalFile.at(place))
    # Under another name a configuration may belong to something else.
    return _with_configurations(checkpoint, place.parent) if place.name in USUAL else checkpoint


def open_file(file: File) -> Checkpoint:
    """Return the checkpoint in one file."""
    if file.size < 8:
        raise ValueError(f"{file.name} is damaged and cannot be read: it has {file.size} bytes")
    start = read_bytes(file, 0, min(16, file.size))
    if start[:4] == MAGIC:
        return open_gguf(file)
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
        raise not_one_checkpoint(str(folder), names, advice="pass one of them")
    if files[0].endswith(INDEX):
        checkpoint = _open_index(folder, files[0])
    elif len(files) == 1 and not SHARD.fullmatch(files[0]):
        checkpoint = replace(open_file(LocalFile.at(inside(folder, files[0]))), source=str(folder))
    else:
        checkpoint = _open_shards(folder, str(folder), files)
    return _with_configurations(checkpoint, folder)


def _with_configurations(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    metadata, problems = configurations(folder)
    return replace(
        checkpoint,
        metadata={**checkpoint.metadata, **metadata},
        problems=(*checkpoint.problems, *problems),
    )


def _open_hub(repo: str, revision: str | None) -> Checkpoint:
    source = f"{repo}@{revision}" if revision else repo
    if (snapshot := cached(repo, revision)) is not None:
        return replace(_open_folder(snapshot), source=source)
    folder = HubFolder.at(repo, revision)
    files = weights_in(folder.names)
    if not files:
        raise not_one_checkpoint(source, folder.names, advice="download one and pass its path")
    index = shard_index(folder.open(files[0])) if files[0].endswith(INDEX) else None
    shards = files if index is None else sorted(set(index.values()))
    if index is None and len(shards) == 1 and not SHARD.fullmatch(shards[0]):
        checkpoint = replace(open_file(folder.open(shards[0])), source=source)
    else:
        checkpoint = joined(source, shards, lambda name: open_file(folder.open(name)), index)
    metadata, problems = dict(checkpoint.metadata), list(checkpoint.problems)
    for name, file in folder.configurations():
        try:
            metadata[name] = read_json(file)
        except ValueError as refusal:  # the weights can be read without it, as in a folder
            problems.append(str(refusal))
    return replace(checkpoint, metadata=metadata, problems=tuple(problems))


def _open_index(folder: Path, name: str) -> Checkpoint:
    index = shard_index(LocalFile.at(inside(folder, name)))
    files = sorted(set(index.values()))
    return _open_shards(folder, str(folder), files, index)


def _open_shards(
    folder: Path, source: str, files: list[str], index: Mapping[str, str] | None = None
) -> Checkpoint:
    return joined(source, files, lambda name: open_file(LocalFile.at(inside(folder, name))), index)
