"""Folders of a checkpoint: shards and their index, configurations, adapters."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rankscope.checkpoints.checkpoint import Checkpoint
from rankscope.checkpoints.files import File, LocalFile, inside
from rankscope.checkpoints.json_text import read_json
from rankscope.checkpoints.tensors import Loader, StoredTensor

SHARD = re.compile(r"(?P<stem>.+)-(?P<index>\d{5,6})-of-(?P<count>\d{5,6})(?P<end>\.[a-z]+)")
INDEX = ".index.json"
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".ckpt")
# Whole weights by name, in the order in which they are looked for.
USUAL = (
    "adapter_model.safetensors",
    "adapter_model.bin",
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "diffusion_pytorch_model.safetensors",
    "diffusion_pytorch_model.safetensors.index.json",
)
CONFIGURATIONS = ("config", "adapter_config")
MOST_SHARDS = 10_000
MOST_TENSORS = 500_000  # of all shards

Opener = Callable[[str], Checkpoint]


def weights_in(names: Sequence[str]) -> list[str]:
    """Return the files that hold a folder's weights: one file, its index, or all its shards.

    Empty if there are none, or if several files could be meant.
    """
    usual = next((name for name in USUAL if name in names), None)
    if usual is not None:
        return [usual]
    indexes = [name for name in names if name.endswith(INDEX)]
    if len(indexes) == 1:
        return indexes
    files = sorted(name for name in names if name.endswith(WEIGHTS))
    stems = {match["stem"] + match["end"] for name in files if (match := SHARD.fullmatch(name))}
    sharded = len(stems) == 1 and all(SHARD.fullmatch(name) for name in files)
    return files if sharded or len(files) == 1 else []


def not_one_checkpoint(source: str, names: Sequence[str], *, advice: str) -> ValueError:
    """Return the refusal of a folder that holds no weights, or several files of them."""
    files = [name for name in names if name.endswith(WEIGHTS)]
    if len(files) > 1:
        return ValueError(
            f"{source!r} holds several files of weights, such as {files[0][:80]} and "
            f"{files[1][:80]}; {advice}"
        )
    return ValueError(
        f"{source!r} holds no checkpoint that is known; pass a file, or a folder with "
        "model.safetensors or the index of its shards"
    )


def joined(
    source: str, names: Sequence[str], read: Opener, index: Mapping[str, str] | None = None
) -> Checkpoint:
    """Return one checkpoint of several shards; a shard that is missing or damaged is a problem.

    index: tensor name -> file name, of an index; tensors that it puts elsewhere are not read.
    """
    tensors: dict[str, StoredTensor] = {}
    loaders: dict[str, Loader] = {}
    problems: list[str] = list(_missing_shards(names))
    wanted_of: dict[str, set[str]] = {name: set() for name in names}
    for tensor, file in (index or {}).items():
        wanted_of[file].add(tensor)
    for name in names:
        wanted = wanted_of[name] if index else None
        try:
            shard = read(name)
        except ValueError as refusal:
            lost = f"; {len(wanted)} tensors are missing with it" if wanted else ""
            problems.append(f"{refusal}{lost}")
            continue
        problems += shard.problems
        if len(tensors) + len(shard.tensors) > MOST_TENSORS:
            raise ValueError(f"{source} holds more than {MOST_TENSORS} tensors")
        if wanted is not None and (absent := sorted(wanted - shard.tensors.keys())):
            problems.append(
                f"{name} lacks {len(absent)} tensors that the index puts there, "
                f"first {absent[0][:80]!r}"
            )
        for tensor, stored in shard.tensors.items():
            if wanted is not None and tensor not in wanted:
                if index is not None and tensor not in index:
                    problems.append(f"{name} holds {tensor[:80]!r}, which is not in the index")
                continue
            if tensor in tensors:
                problems.append(f"{name} holds {tensor[:80]!r} a second time; the first is read")
                continue
            tensors[tensor] = stored
            if tensor in shard.loaders:
                loaders[tensor] = shard.loaders[tensor]
    if not tensors:
        raise ValueError(problems[0] if problems else f"{source} holds no tensors")
    return Checkpoint(source, tensors, loaders, problems=tuple(problems))


def _missing_shards(names: Sequence[str]) -> Iterator[str]:
    """Yield a sentence on shards that the names of the others count and that are not there."""
    matches = [match for name in names if (match := SHARD.fullmatch(name))]
    if not matches:
        return
    count = int(matches[0]["count"])
    present = {int(match["index"]) for match in matches}
    missing = sorted(set(range(1, min(count, MOST_SHARDS) + 1)) - present)
    if missing and min(present) > 0:
        listed = ", ".join(map(str, missing[:8])) + (" and more" if len(missing) > 8 else "")
        yield f"{len(missing)} of {count} shards are missing: {listed}"


def shard_index(file: File) -> Mapping[str, str]:
    """Return tensor name -> file name, as the index beside sharded weights has it."""
    weight_map = read_json(file).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ValueError(f"{file.name} is damaged: expected a weight_map of tensors to files")
    if not all(isinstance(name, str) for name in weight_map.values()):
        raise ValueError(f"{file.name} is damaged: its weight_map holds more than file names")
    if len(weight_map) > MOST_TENSORS:
        raise ValueError(f"{file.name} is damaged: its weight_map lists {len(weight_map)} tensors")
    if len(set(weight_map.values())) > MOST_SHARDS:
        raise ValueError(f"{file.name} is damaged: more than {MOST_SHARDS} shards")
    return weight_map


def configurations(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the JSON configurations of a folder by name, and sentences on unreadable ones."""
    metadata: dict[str, Any] = {}
    problems: list[str] = []
    for name in CONFIGURATIONS:
        if not (folder / f"{name}.json").exists():
            continue
        try:
            metadata[name] = read_json(LocalFile.at(inside(folder, f"{name}.json")))
        except ValueError as refusal:
            problems.append(str(refusal))
    return metadata, problems
