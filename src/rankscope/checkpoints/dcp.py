"""Folders of torch's distributed checkpoint (DCP), in which FSDP2 and torchtitan runs end."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from rankscope.checkpoints.checkpoint import Checkpoint
from rankscope.checkpoints.dcp_chunks import Chunk, Chunks
from rankscope.checkpoints.dcp_names import key_paths, weight_names
from rankscope.checkpoints.files import File, LocalFile, Part, inside, read_bytes
from rankscope.checkpoints.folders import MOST_TENSORS
from rankscope.checkpoints.pickle_machine import Built, Call, Refused, built
from rankscope.checkpoints.pickles import MOST_BYTES, describe
from rankscope.checkpoints.tensors import Loader, StoredTensor
from rankscope.checkpoints.torch_pickles import TENSORS, axis_sizes, torch_dtype

METADATA = ".metadata"
MOST_CHUNKS = 8192  # of one tensor

_CLASSES = (
    *("Metadata", "TensorStorageMetadata", "TensorProperties", "ChunkStorageMetadata"),
    *("BytesStorageMetadata", "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING"),
)
NAMES: Mapping[tuple[str, str], Call] = {
    **TENSORS,
    **{("torch.distributed.checkpoint.metadata", name): built for name in _CLASSES},
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): built,
}


def open_dcp(folder: Path) -> Checkpoint:
    """Return the weights in a folder of torch.distributed.checkpoint."""
    file = LocalFile.at(inside(folder, METADATA))
    state = _metadata(file)
    tensors_by_fqn = _mapping(file, state.get("state_dict_metadata"))
    parts = _parts(file, folder, _mapping(file, state.get("storage_data")))
    fqns = [fqn for fqn in tensors_by_fqn if isinstance(fqn, str)]
    paths, lies = key_paths(file.name, fqns, state.get("planner_data"))
    tensors: dict[str, StoredTensor] = {}
    loaders: dict[str, Loader] = {}
    problems = list(lies)
    names = weight_names(paths)
    if len(names) > MOST_TENSORS:
        raise ValueError(f"{file.name} is damaged: it lists {len(names)} tensors")
    for fqn, name in names.items():
        entry = tensors_by_fqn[fqn]
        if not isinstance(entry, Built) or entry.name.name != "TensorStorageMetadata":
            continue
        try:
            chunks = _tensor(file, fqn, entry, parts)
        except ValueError as damage:
            problems.append(str(damage))
            continue
        count = math.prod(chunks.shape) * chunks.dtype.itemsize
        shown = str(chunks.dtype).removeprefix("torch.")
        tensors[name] = StoredTensor(name, chunks.shape, chunks.dtype, count, shown)
        loaders[name] = chunks
    if not tensors:
        raise ValueError(problems[0] if problems else f"{folder} holds no tensors")
    return Checkpoint(str(folder), tensors, loaders, problems=tuple(problems))


def _metadata(file: File) -> dict[Any, Any]:
    if file.size > MOST_BYTES:
        raise ValueError(f"{file.name} is damaged: it has {file.size} bytes")
    try:
        content, _ = describe(read_bytes(file, 0, file.size), calls=NAMES)
    except Refused as refusal:
        raise ValueError(f"{file.name!r} cannot be read as a checkpoint: {refusal}") from None
    if not isinstance(content, Built) or content.name.name != "Metadata":
        raise ValueError(f"{file.name!r} cannot be read as a checkpoint: it holds no metadata")
    return content.attributes()


def _mapping(file: File, value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{file.name!r} cannot be read as a checkpoint: it names no tensors")
    return value


Parts = dict[tuple[str, tuple[int, ...]], tuple[Path | ValueError, int, int]]


def _parts(file: File, folder: Path, storage: dict[Any, Any]) -> Parts:
    """Return file, start and length of each box, by tensor and offsets."""
    parts: Parts = {}
    files: dict[str, Path | ValueError] = {}
    for index, info in storage.items():
        if not isinstance(index, Built) or not isinstance(info, Built):
            continue
        where, place = index.attributes(), info.attributes()
        fqn, offsets, name = where.get("fqn"), where.get("offset"), place.get("relative_path")
        start, length = _position(place.get("offset")), _position(place.get("length"))
        if place.get("transform_descriptors"):
            raise ValueError(f"{file.name}: its tensors are compressed; save them without")
        if not isinstance(fqn, str) or not isinstance(name, str):
            continue
        if offsets is None or isinstance(offsets, tuple):
            if name not in files:
                try:
                    files[name] = inside(folder, name)
                except ValueError as refusal:
                    files[name] = refusal
            box = (fqn, tuple(offsets or ()))
            if box in parts:
                raise ValueError(f"{file.name} is damaged: a part of {fqn[:80]!r} is listed twice")
            parts[box] = (files[name], start, length)
    return parts


def _position(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**50:
        raise ValueError("the metadata are damaged: they name no place in a file")
    return value


def _tensor(file: File, fqn: str, entry: Built, parts: Parts) -> Chunks:
    """Return the boxes of a tensor; ValueError if one is missing or they do not fill it."""
    fields = entry.attributes()
    properties, chunks = fields.get("properties"), fields.get("chunks")
    state = properties.state if isinstance(properties, Built) else None
    if not isinstance(state, tuple) or not state or not isinstance(chunks, list):
        raise ValueError(f"{file.name} is damaged: {fqn[:80]!r} has no shape or type")
    if len(chunks) > MOST_CHUNKS:
        raise ValueError(f"{file.name} is damaged: {fqn[:80]!r} has {len(chunks)} parts")
    try:
        shape, dtype = axis_sizes(fields.get("size")), torch_dtype(state[0])
    except Refused as refusal:
        raise ValueError(f"{file.name} is damaged: {fqn[:80]!r}: {refusal}") from None
    boxes = tuple(_boxes(file, fqn, shape, dtype, chunks, parts))
    if sum(box.count for box in boxes) != math.prod(shape):
        raise ValueError(f"{file.name} is damaged: the parts of {fqn[:80]!r} do not fill it")
    return Chunks(fqn, shape, dtype, boxes)


def _boxes(
    file: File,
    fqn: str,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    chunks: Sequence[Any],
    parts: Parts,
) -> Iterator[Chunk]:
    sizes_of: dict[Path, LocalFile] = {}
    for chunk in chunks:
        offsets, sizes = _box(file, fqn, shape, chunk)
        if not math.prod(sizes):
            continue  # an empty shard
        place = parts.get((fqn, offsets))
        if place is None and len(chunks) == 1:
            place = parts.get((fqn, ()))  # a tensor that is whole may be listed without offsets
        if place is None:
            raise ValueError(f"{file.name} is damaged: a part of {fqn[:80]!r} is nowhere")
        path, start, length = place
        if isinstance(path, ValueError):
            raise path
        if path not in sizes_of:
            sizes_of[path] = LocalFile.at(path)
        if start + length > sizes_of[path].size:
            raise ValueError(f"{path} is cut short: {fqn[:80]!r} is missing")
        if math.prod(sizes) * dtype.itemsize > length:
            raise ValueError(
                f"{file.name} is damaged: a part of {fqn[:80]!r} should have shape {sizes}, and "
                f"{length} bytes are too few"
            )
        yield Chunk(offsets, sizes, Part(sizes_of[path], start, length))


def _box(
    file: File, fqn: str, shape: tuple[int, ...], chunk: Any
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return offsets and sizes of a part, which must lie within its tensor."""
    fields = chunk.attributes() if isinstance(chunk, Built) else {}
    try:
        offsets, sizes = axis_sizes(fields.get("offsets")), axis_sizes(fields.get("sizes"))
    except Refused:
        offsets, sizes = (), (-1,)
    fits = len(offsets) == len(sizes) == len(shape)
    if fits and all(o + s <= whole for o, s, whole in zip(offsets, sizes, shape, strict=True)):
        return offsets, sizes
    raise ValueError(f"{file.name} is damaged: a part of {fqn[:80]!r} is outside of it")
