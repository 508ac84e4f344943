"""Folders of torch's distributed checkpoint (DCP), in which FSDP2 and torchtitan runs end."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Shaped
from torch import Tensor

from rankscope.checkpoints.checkpoint import Checkpoint
from rankscope.checkpoints.files import File, LocalFile, Part, inside, read_bytes
from rankscope.checkpoints.folders import MOST_TENSORS
from rankscope.checkpoints.pickles import MOST_BYTES, Built, Call, Refused, built, describe
from rankscope.checkpoints.tensors import Loader, StoredTensor
from rankscope.checkpoints.torch_files import WEIGHTS, loader, zip_content
from rankscope.checkpoints.torch_pickles import TENSORS, Described, torch_dtype

METADATA = ".metadata"
# Containers beside the weights.
OTHERS = ("optimizer", "optim", "optimizer_state_dict", "lr_scheduler", "dataloader", "train_state")

_CLASSES = (
    *("Metadata", "TensorStorageMetadata", "TensorProperties", "ChunkStorageMetadata"),
    *("BytesStorageMetadata", "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING"),
)
NAMES: Mapping[tuple[str, str], Call] = {
    **TENSORS,
    **{("torch.distributed.checkpoint.metadata", name): built for name in _CLASSES},
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): built,
}


@dataclass(frozen=True)
class Chunk:
    """A box of a tensor, and the part of a file that holds it as a file of its own."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    part: Part

    @property
    def count(self) -> int:
        return math.prod(self.sizes)

    def read(self, dtype: torch.dtype, fqn: str) -> Shaped[Tensor, "..."]:
        """Read the box, which must have the shape and type that the metadata names."""
        content, place = zip_content(self.part)
        if not isinstance(content, Described):
            raise ValueError(f"{self.part.name} is damaged: no tensor where {fqn!r} should be")
        tensor = loader(content, place).load()
        if tuple(tensor.shape) != self.sizes or tensor.dtype != dtype:
            raise ValueError(
                f"{self.part.name} is damaged: {fqn!r} should have a part of shape {self.sizes} "
                f"and type {dtype}, and has {tuple(tensor.shape)} and {tensor.dtype}"
            )
        return tensor


@dataclass(frozen=True)
class Chunks:
    """A tensor in several boxes, which fill it without overlap."""

    fqn: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    chunks: tuple[Chunk, ...]

    def load(self) -> Shaped[Tensor, "..."]:
        return self.load_rows(0, self.shape[0]) if self.shape else self._only()

    def load_rows(self, start: int, stop: int) -> Shaped[Tensor, "..."]:
        self._check()
        if len(self.chunks) == 1:
            return self._only()[start:stop]
        rows = torch.empty((stop - start, *self.shape[1:]), dtype=self.dtype)
        for chunk in self.chunks:
            first = max(start, chunk.offsets[0])
            last = min(stop, chunk.offsets[0] + chunk.sizes[0])
            if first >= last:
                continue
            box = chunk.read(self.dtype, self.fqn)
            ends = zip(chunk.offsets[1:], chunk.sizes[1:], strict=True)
            target = (
                slice(first - start, last - start),
                *(slice(offset, offset + size) for offset, size in ends),
            )
            rows[target] = box[first - chunk.offsets[0] : last - chunk.offsets[0]]
        return rows

    def _only(self) -> Tensor:
        return self.chunks[0].read(self.dtype, self.fqn)

    def _check(self) -> None:
        """Raise ValueError if two boxes overlap; their sizes add up already."""
        boxes = sorted((c.offsets, c.sizes) for c in self.chunks)
        flat = all(sizes[1:] == self.shape[1:] for _, sizes in boxes)
        pairs = pairwise(boxes) if flat else combinations(boxes[:1024], 2)
        for (a, a_sizes), (b, b_sizes) in pairs:
            if all(
                x < y + q and y < x + p for x, p, y, q in zip(a, a_sizes, b, b_sizes, strict=True)
            ):
                raise ValueError(f"the metadata are damaged: two parts of {self.fqn!r} overlap")


def open_dcp(folder: Path) -> Checkpoint:
    """Return the weights in a folder of torch.distributed.checkpoint."""
    file = LocalFile.at(inside(folder, METADATA))
    state = _metadata(file)
    tensors_by_fqn = _mapping(file, state.get("state_dict_metadata"))
    parts = _parts(file, folder, _mapping(file, state.get("storage_data")))
    planned = state.get("planner_data")
    paths = planned if isinstance(planned, dict) else {}
    tensors: dict[str, StoredTensor] = {}
    loaders: dict[str, Loader] = {}
    problems: list[str] = []
    names = _weights({f: paths.get(f) for f in tensors_by_fqn if isinstance(f, str)})
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
            parts[fqn, tuple(offsets or ())] = (files[name], start, length)
    return parts


def _position(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**50:
        raise ValueError("the metadata are damaged: they name no place in a file")
    return value


def _tensor(file: File, fqn: str, entry: Built, parts: Parts) -> Chunks:
    """Return the boxes of a tensor; ValueError if one is missing or they do not fill it."""
    fields = entry.attributes()
    properties, shape, chunks = fields.get("properties"), fields.get("size"), fields.get("chunks")
    if not isinstance(properties, Built) or not isinstance(shape, tuple):
        raise ValueError(f"{file.name} is damaged: {fqn[:80]!r} has no shape or type")
    if not isinstance(properties.state, tuple) or not isinstance(chunks, list):
        raise ValueError(f"{file.name} is damaged: {fqn[:80]!r} has no shape or type")
    dtype = torch_dtype(properties.state[0])
    boxes = tuple(_boxes(file, fqn, shape, chunks, parts))
    if sum(box.count for box in boxes) != math.prod(shape):
        raise ValueError(f"{file.name} is damaged: the parts of {fqn[:80]!r} do not fill it")
    return Chunks(fqn, shape, dtype, boxes)


def _boxes(
    file: File, fqn: str, shape: tuple[int, ...], chunks: Sequence[Any], parts: Parts
) -> Iterator[Chunk]:
    sizes_of: dict[Path, LocalFile] = {}
    for chunk in chunks:
        fields = chunk.attributes() if isinstance(chunk, Built) else {}
        offsets, sizes = fields.get("offsets"), fields.get("sizes")
        if not (
            isinstance(offsets, tuple)
            and isinstance(sizes, tuple)
            and _within(offsets, sizes, shape)
        ):
            raise ValueError(f"{file.name} is damaged: a part of {fqn[:80]!r} is outside of it")
        if not math.prod(sizes):
            continue  # an empty shard
        place = parts.get((fqn, offsets)) or parts.get((fqn, ()))
        if place is None:
            raise ValueError(f"{file.name} is damaged: a part of {fqn[:80]!r} is nowhere")
        path, start, length = place
        if isinstance(path, ValueError):
            raise path
        if path not in sizes_of:
            sizes_of[path] = LocalFile.at(path)
        if start + length > sizes_of[path].size:
            raise ValueError(f"{path} is cut short: {fqn[:80]!r} is missing")
        yield Chunk(offsets, sizes, Part(sizes_of[path], start, length))


def _within(offsets: tuple[int, ...], sizes: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    if not len(offsets) == len(sizes) == len(shape):
        return False
    boxes = zip(offsets, sizes, shape, strict=True)
    return all(offset + size <= whole for offset, size, whole in boxes)


def _weights(paths: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the weights by their names in the file, without their container's."""
    containers = {fqn: _container(fqn, path) for fqn, path in paths.items()}
    for key in WEIGHTS:
        inner = [fqn for fqn in paths if containers[fqn] == key and fqn != key]
        if inner:
            return {fqn: fqn.removeprefix(f"{key}.") for fqn in inner}
    return {fqn: fqn for fqn in paths if containers[fqn] not in OTHERS}


def _container(fqn: str, path: Any) -> str:
    """Return the name of the dict that held a tensor, which is no part of the tensor's name."""
    if isinstance(path, tuple):
        return str(path[0]) if len(path) > 1 else ""
    first = fqn.partition(".")[0]  # written without a plan; a model's own names stay whole
    return first if first in OTHERS else ""
