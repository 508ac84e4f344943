"""Merged models: base weights plus scale * B A, written shard by shard, one weight at a time."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Num
from torch import Tensor

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.checkpoints.files import LocalFile, StrPath, inside, read_bytes
from rankscope.checkpoints.tensors import Range
from rankscope.lora.adapter import Adapter, open_adapter
from rankscope.lora.peft import CONFIG, PREFIX
from rankscope.lora.targets import Target, read_target, targets
from rankscope.lora.writing import (
    check_free,
    file_in_place,
    folder_in_place,
    write_safetensors,
)

Setting = LocalFile | Mapping[str, Any]  # a file to copy, or the content of a JSON file

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
BESIDE = (".json", ".txt", ".model", ".jinja")  # configurations and tokenizers
MOST_BESIDE = 2**26  # bytes


@dataclass(frozen=True)
class Merged:
    """A model that was written.

    changed: names of the weights that the adapter changed.
    added: names of tensors that only the adapter has, such as a new output layer.
    """

    path: Path
    changed: tuple[str, ...]
    added: tuple[str, ...]


def merge(
    adapter: StrPath | Adapter, base: StrPath | Checkpoint, out: StrPath, *, overwrite: bool = False
) -> Merged:
    """Write base + adapter as safetensors, with the shards, formats and settings of the base.

    Sums are formed in float64 and rounded once. An `out` that ends in .safetensors is one file.
    """
    adapter = adapter if isinstance(adapter, Adapter) else open_adapter(adapter)
    base = base if isinstance(base, Checkpoint) else open_checkpoint(base)
    if base.problems:
        raise ValueError(f"{base.source}: {base.problems[0]}")
    target = Path(out).expanduser()
    check_free(target, overwrite=overwrite)
    modules = {t.tensor: (module, t) for module, t in targets(adapter, base).items()}
    whole = _whole_tensors(adapter, base)
    layout = {name: (t.shape, t.dtype) for name, t in base.tensors.items() if t.part_of is None} | {
        n: (adapter.checkpoint.tensors[o].shape, adapter.checkpoint.tensors[o].dtype)
        for n, o in whole.items()
    }

    if target.is_dir() and overwrite:
        _check_no_other_weights(target, replaced=_shards(base, list(layout)))

    def read(name: str) -> Tensor:
        if name in whole:
            return adapter.checkpoint.read(whole[name])
        return _added(base, adapter, *modules[name]) if name in modules else base.read(name)

    one_file = target.suffix == ".safetensors"
    settings = {} if one_file else _settings(base)  # refused before anything is written
    _write(target, base, layout, read, settings, overwrite=overwrite)
    added = tuple(name for name in whole if name not in base.tensors)
    changed = (*modules, *(name for name in whole if name in base.tensors))
    return Merged(target, changed, added)


def _added(base: Checkpoint, adapter: Adapter, module: str, target: Target) -> Num[Tensor, "..."]:
    """Return weight + change in the format of the weight; ValueError if it does not fit into it."""
    weight, product = read_target(base, target), adapter.product(module)
    W = target.matrix(weight).double() + product.left @ product.right.mT
    result = target.stored(W).to(weight.dtype)
    if not bool(result.isfinite().all()):
        shown = base.tensors[target.tensor].format
        raise ValueError(
            f"{target.tensor!r} with the change of {adapter.source} is too large for {shown}; pass "
            "a base of a wider format"
        )
    return result


def _whole_tensors(adapter: Adapter, base: Checkpoint) -> dict[str, str]:
    """Return tensors that the adapter holds whole, by their name in the base."""
    names = {}
    for name in adapter.others:
        plain = name.removeprefix(PREFIX).replace(".base_layer.", ".")
        plain = plain.replace(".modules_to_save.", ".")
        stems = [t for t in base.tensors if t == plain or plain.endswith(f".{t}")]
        if stems or not adapter.config.get("ensure_weight_tying"):  # a second name of a table
            names[max(stems, key=len, default=plain)] = name
    return names


def _check_no_other_weights(folder: Path, *, replaced: Collection[str]) -> None:
    """Refuse a folder whose weights would stay beside the new ones, or be replaced one by one."""
    others = [p.name for p in folder.iterdir() if p.suffix == ".safetensors" or p.name == INDEX]
    if others and not others == [WHOLE] == list(replaced):
        raise ValueError(f"{folder} holds other weights, such as {others[0]}; choose a new folder")


def _write(
    target: Path,
    base: Checkpoint,
    layout: Mapping[str, tuple[tuple[int, ...], torch.dtype]],
    read: Callable[[str], Tensor],
    settings: Mapping[str, Setting],
    *,
    overwrite: bool,
) -> None:
    if target.suffix == ".safetensors":
        with file_in_place(target, overwrite=overwrite) as unfinished:
            write_safetensors(unfinished, layout, read)
        return
    shards = _shards(base, list(layout))
    with folder_in_place(target, overwrite=overwrite) as folder:
        for file, names in shards.items():
            write_safetensors(folder / file, {name: layout[name] for name in names}, read)
        if len(shards) > 1:
            sizes = (torch.Size(s).numel() * d.itemsize for s, d in layout.values())
            weight_map = {name: file for file, names in shards.items() for name in names}
            index = {"metadata": {"total_size": sum(sizes)}, "weight_map": weight_map}
            (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n")
        for name, setting in settings.items():
            _write_setting(folder / name, setting)


def _shards(base: Checkpoint, names: list[str]) -> dict[str, list[str]]:
    """Return the tensors by new file, divided like those of the base; new ones in the last."""
    files = {name: _file(base, name) for name in names if name in base.tensors}
    order = sorted(set(files.values()))
    last = order[-1] if order else ""
    by_file: dict[str, list[str]] = {file: [] for file in order}
    for name in names:
        by_file.setdefault(files.get(name, last), []).append(name)
    if len(by_file) == 1:
        return {WHOLE: next(iter(by_file.values()))}
    count = len(by_file)
    return {
        f"model-{number:05d}-of-{count:05d}.safetensors": held
        for number, held in enumerate(by_file.values(), start=1)
    }


def _file(base: Checkpoint, name: str) -> str:
    """Return the file that holds a tensor of the base."""
    loader = base.loaders.get(name)
    return loader.file.name if isinstance(loader, Range) else ""


def _settings(base: Checkpoint) -> dict[str, Setting]:
    """Return configurations and tokenizers by name, so that the merged folder loads like the base.

    Of a model on the hub only the configurations are known. ValueError if a link leads outside.
    """
    source = Path(base.source)
    if not source.is_dir():
        config = base.metadata.get("config")
        return {} if config is None else {"config.json": config}
    settings: dict[str, Setting] = {}
    for entry in sorted(source.iterdir()):
        name = entry.name
        if entry.suffix not in BESIDE or name.endswith(".index.json") or name == CONFIG:
            continue
        file = LocalFile.at(inside(source, name))
        if file.size <= MOST_BESIDE:
            settings[name] = file
    return settings


def _write_setting(path: Path, setting: Setting) -> None:
    if isinstance(setting, LocalFile):
        path.write_bytes(read_bytes(setting, 0, setting.size))
    else:
        path.write_text(json.dumps(setting, indent=2) + "\n")
    if path.name == "config.json":
        _forget_quantization(path)


def _forget_quantization(config: Path) -> None:
    """Drop how the base was quantised: merged weights are stored as plain numbers."""
    try:
        settings = json.loads(config.read_text())
    except ValueError:  # as damaged as that of the base
        return
    if isinstance(settings, dict) and settings.pop("quantization_config", None) is not None:
        config.write_text(json.dumps(settings, indent=2) + "\n")
