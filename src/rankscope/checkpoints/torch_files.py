"""Files of `torch.save`: zip archives, and the older format of pickles one after another."""

import struct
from collections.abc import Callable, Mapping
from typing import Any

import torch

from rankscope.checkpoints.checkpoint import Checkpoint
from rankscope.checkpoints.files import File, read_bytes
from rankscope.checkpoints.pickle_machine import Refused
from rankscope.checkpoints.pickles import MOST_BYTES, describe
from rankscope.checkpoints.tensors import MOST_TENSORS, Loader, Range, StoredTensor, Strided
from rankscope.checkpoints.torch_pickles import TENSORS, Described, Storage, Unreadable, storage
from rankscope.checkpoints.zips import Member, in_place, zip_members

# Keys under which training scripts keep the weights beside the state of the optimizer.
WEIGHTS = ("state_dict", "model_state_dict", "model", "module")
# Containers beside the weights.
OTHERS = ("optimizer", "optim", "optimizer_state_dict", "lr_scheduler", "dataloader", "train_state")
MAGIC = 0x1950A86A20F9469CFC6C  # first pickle of the older format
DEEPEST = 4  # containers around the weights

Place = Callable[[Storage], Range]


def open_zip(file: File) -> Checkpoint:
    """Return the tensors of a file of `torch.save`, read in place from its archive."""
    content, place = zip_content(file)
    return checkpoint_of(file, content, place)


def zip_content(file: File) -> tuple[Any, Place]:
    """Return what the archive's pickle describes, and where its storages are."""
    members = zip_members(file)
    roots = [name.removesuffix("/data.pkl") for name in members if name.endswith("/data.pkl")]
    if len(roots) != 1:
        raise _unreadable(file, "its archive is none of torch.save")
    root = roots[0]
    if f"{root}/constants.pkl" in members:
        raise _unreadable(file, "it is a TorchScript program")
    order = members.get(f"{root}/byteorder")
    if order is not None and order.size <= 16 and _content(order) != b"little":
        raise _unreadable(file, "its numbers are big-endian")
    pickle = in_place(members[f"{root}/data.pkl"])
    content, _ = _described(file, _bytes(pickle), 0)

    def place(stored: Storage) -> Range:
        member = members.get(f"{root}/data/{stored.key}")
        if member is None or member.size != stored.count * stored.dtype.itemsize:
            raise _unreadable(file, f"its archive lacks the numbers {stored.key[:20]!r}")
        return Range(in_place(member), 0, (stored.count,), stored.dtype)

    return content, place


def open_legacy(file: File) -> Checkpoint:
    """Return the tensors of a file in the format that torch wrote before 1.6."""
    data = read_bytes(file, 0, min(file.size, MOST_BYTES))
    magic, position = _described(file, data, 0)
    if magic != MAGIC:
        raise _unreadable(file, "it is a pickle, and none of torch.save")
    _, position = _described(file, data, position)
    system, position = _described(file, data, position)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise _unreadable(file, "its numbers are big-endian")
    sizes: dict[str, int] = {}

    def noted(identifier: Any) -> Storage:
        stored = storage(identifier)
        sizes[stored.key] = stored.dtype.itemsize
        return stored

    content, position = _described(file, data, position, noted)
    keys, position = _described(file, data, position)
    starts: dict[str, tuple[int, int]] = {}
    for key in keys if isinstance(keys, list) else ():
        if not isinstance(key, str) or key not in sizes:
            raise _unreadable(file, "its list of storages is damaged")
        (count,) = struct.unpack("<Q", read_bytes(file, position, 8))
        starts[key] = (position + 8, count)
        position += 8 + count * sizes[key]
        if position > file.size:
            raise _unreadable(file, "it is cut short")

    def place(stored: Storage) -> Range:
        start, count = starts.get(stored.key, (0, -1))
        if count != stored.count:
            raise _unreadable(file, f"it lacks the numbers {stored.key[:20]!r}")
        first, length = stored.view or (0, count)
        if first + length > count:
            raise _unreadable(file, "it holds a tensor that reaches beyond its numbers")
        return Range(file, start + first * stored.dtype.itemsize, (length,), stored.dtype)

    return checkpoint_of(file, content, place)


def checkpoint_of(file: File, content: Any, place: Place) -> Checkpoint:
    """Return the tensors of the state dict in a described file."""
    state, notes = _state_dict(file, content)
    if len(state) > MOST_TENSORS:
        raise _unreadable(file, f"it has {len(state)} entries")
    tensors: dict[str, StoredTensor] = {}
    loaders: dict[str, Loader] = {}
    first_names: dict[Described, str] = {}
    for name, value in state.items():
        if isinstance(value, Unreadable):
            tensors[name] = StoredTensor(
                name, value.shape, torch.uint8, 0, "quantised", refusal=value.reason
            )
            continue
        if not isinstance(value, Described):
            continue
        first = first_names.setdefault(value, name) if value.bytes else name
        shown = str(value.dtype).removeprefix("torch.")
        tied_to = None if first == name else first
        tensors[name] = StoredTensor(
            name, value.shape, value.dtype, value.bytes, shown, tied_to=tied_to
        )
        loaders[name] = loader(value, place)
    return Checkpoint(file.name, tensors, loaders, notes=notes)


def loader(tensor: Described, place: Place) -> Loader:
    """Return the way to read a described tensor."""
    numbers = place(tensor.storage)
    if tensor.dtype != numbers.dtype:  # an untyped storage counts bytes
        count = numbers.bytes // tensor.dtype.itemsize
        numbers = Range(numbers.file, numbers.offset, (count,), tensor.dtype)
    return Strided(numbers, tensor.offset, tensor.shape, tensor.strides)


def _state_dict(file: File, content: Any) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the mapping from names to tensors within what a file holds.

    The sentences are on weights beside it, such as their average.
    """
    if not isinstance(content, dict):
        raise _unreadable(file, f"it holds a {_kind(content)}, expected a state dict")
    if "param_groups" in content:
        raise _unreadable(file, "it holds the state of an optimizer")
    states = _state_dicts(content, DEEPEST, set())
    # Two networks, or one and its average, and not a few vectors beside.
    states = {keys: state for keys, state in states.items() if _holds_matrices(state)} or states
    if not states:
        shown = [key if isinstance(key, str | int) else type(key).__name__ for key in content]
        raise ValueError(
            f"{file.name}: expected tensors by name, got {str(shown[:5])[:200]} without any; "
            "save model.state_dict()"
        )
    state = next(iter(states.values())) if len(states) == 1 else _joined(states)
    unnamed = [
        key
        for key, value in state.items()
        if not isinstance(key, str) and isinstance(value, Described)
    ]
    if unnamed:
        raise _unreadable(file, f"it has {_kind(unnamed[0])} keys, expected names")
    read = {keys[0] for keys in states if keys}
    notes = tuple(
        f"{file.name} has other weights in {key[:80]!r}, which are left out; save them alone"
        for key, value in content.items()
        if read and isinstance(key, str) and key not in (*read, *OTHERS) and _holds_matrices(value)
    )
    return {key: value for key, value in state.items() if isinstance(key, str)}, notes


def _state_dicts(
    content: Mapping[Any, Any], depth: int, seen: set[int]
) -> dict[tuple[Any, ...], Mapping[Any, Any]]:
    """Return the state dicts within nested dicts, by the keys that lead to them.

    Each dict is looked at once: a forgery may name one a million times.
    """
    for key in WEIGHTS:
        if inner := _within(content, key, depth, seen):
            return inner
    if _holds_matrices(content):
        return {(): content}
    states: dict[tuple[Any, ...], Mapping[Any, Any]] = {}
    for key in content:
        if key not in OTHERS:
            states |= _within(content, key, depth, seen)
    return states or ({(): content} if _holds_tensors(content) else {})


def _within(
    content: Mapping[Any, Any], key: Any, depth: int, seen: set[int]
) -> dict[tuple[Any, ...], Mapping[Any, Any]]:
    """Return the state dicts under one key; an optimizer's own holds none."""
    value = content.get(key)
    if not isinstance(value, dict) or depth == 0 or id(value) in seen or "param_groups" in value:
        return {}
    seen.add(id(value))
    return {(key, *keys): state for keys, state in _state_dicts(value, depth - 1, seen).items()}


def _joined(states: Mapping[tuple[Any, ...], Mapping[Any, Any]]) -> dict[str, Any]:
    """Return the tensors of several state dicts, with the keys of each before their names."""
    return {
        ".".join(map(str, (*keys, name))): value
        for keys, state in states.items()
        for name, value in state.items()
        if isinstance(name, str)
    }


def _holds_matrices(value: Any) -> bool:
    return isinstance(value, dict) and any(
        isinstance(item, Described | Unreadable) and len(item.shape) > 1 for item in value.values()
    )


def _holds_tensors(value: Any) -> bool:
    return isinstance(value, dict) and any(
        isinstance(item, Described | Unreadable) for item in value.values()
    )


def _kind(value: Any) -> str:
    return "Tensor" if isinstance(value, Described) else type(value).__name__


def _described(
    file: File, data: bytes, start: int, persistent: Callable[[Any], Any] = storage
) -> tuple[Any, int]:
    try:
        return describe(data, calls=TENSORS, persistent=persistent, start=start)
    except Refused as refusal:
        raise _unreadable(file, str(refusal)) from None


def _bytes(file: File) -> bytes:
    if file.size > MOST_BYTES:
        raise _unreadable(file, f"its pickle has more than {MOST_BYTES} bytes")
    return read_bytes(file, 0, file.size)


def _content(member: Member) -> bytes:
    return _bytes(in_place(member))


def _unreadable(file: File, reason: str) -> ValueError:
    return ValueError(
        f"{file.name!r} cannot be read as a checkpoint of tensors ({reason}); "
        "save model.state_dict() with torch.save or as .safetensors"
    )
