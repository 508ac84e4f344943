"""Tensors in the pickles of `torch.save`, described by storage, place, shape and strides."""

import math
from dataclasses import dataclass
from typing import Any

import torch

from rankscope.checkpoints.pickle_machine import Name, Refused, built

MOST_AXES = 16

STORAGES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "ComplexFloatStorage": torch.complex64,
    "ComplexDoubleStorage": torch.complex128,
    "UntypedStorage": torch.uint8,
    "QInt8Storage": torch.int8,
    **dict.fromkeys(("QUInt8Storage", "QUInt4x2Storage", "QUInt2x4Storage"), torch.uint8),
    "QInt32Storage": torch.int32,
}


@dataclass(frozen=True)
class Storage:
    """A run of numbers in the file. view: start and length within it, of an old format."""

    key: str
    dtype: torch.dtype
    count: int
    view: tuple[int, int] | None = None


@dataclass(frozen=True)
class Described:
    """A tensor: which numbers of which storage, in which order."""

    storage: Storage
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def reach(self) -> int:
        """Number of entries of the storage up to the last one that the tensor uses."""
        if 0 in self.shape:
            return self.offset
        steps = zip(self.shape, self.strides, strict=True)
        return self.offset + 1 + sum((size - 1) * step for size, step in steps)

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Unreadable:
    """A tensor of a kind that is refused, with the reason."""

    reason: str
    shape: tuple[int, ...] = ()


def storage(identifier: Any) -> Storage:
    """Return the storage that a persistent id names."""
    if isinstance(identifier, tuple) and identifier[:1] == ("module",):
        raise Refused("it holds a whole module, whose code would have to be run")
    if not isinstance(identifier, tuple) or len(identifier) not in (5, 6):
        raise Refused("its pickle refers to data in an unknown way")
    kind, name, key, _, count, *rest = identifier
    if kind != "storage" or not isinstance(name, Name) or not isinstance(key, str):
        raise Refused("its pickle refers to data in an unknown way")
    dtype = (
        STORAGES.get(name.name) if name.module in ("torch", "torch.storage", "torch.cuda") else None
    )
    if dtype is None:
        raise Refused(f"it holds a storage of an unknown kind: {str(name)[:100]}")
    view = None
    if rest and rest[0] is not None:
        match rest[0]:
            case (_, int(start), int(length)) if start >= 0 and length >= 0:
                view = (start, length)
            case _:
                raise Refused("its pickle refers to data in an unknown way")
    return Storage(key, dtype, _count(count), view)


def _tensor(name: Name, arguments: tuple[Any, ...]) -> Described:
    source, offset, shape, strides = arguments[:4]
    if not isinstance(source, Storage):
        raise Refused("it holds a tensor without numbers")
    shape, strides = axis_sizes(shape), axis_sizes(strides)
    dtype = source.dtype
    if name.name == "_rebuild_tensor_v3":
        dtype = torch_dtype(arguments[6])
    if len(shape) != len(strides):
        raise Refused("it holds a tensor whose shape and strides disagree")
    described = Described(source, dtype, _count(offset), shape, strides)
    available = source.view[1] if source.view else source.count
    if described.reach * dtype.itemsize > available * source.dtype.itemsize:
        raise Refused("it holds a tensor that reaches beyond its numbers")
    if math.prod(shape) > max(1, described.reach - described.offset):
        raise Refused("it holds a tensor that repeats its numbers; save it with .contiguous()")
    return described


def torch_dtype(name: Any) -> torch.dtype:
    """Return the dtype that a name such as torch.float32 stands for."""
    dtype = getattr(torch, name.name, None) if isinstance(name, Name) else None
    if not isinstance(dtype, torch.dtype) or name.module != "torch":
        raise Refused("it holds a tensor of unknown type")
    return dtype


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**50:
        raise Refused("it holds a tensor of unreasonable size")
    return value


def axis_sizes(values: Any) -> tuple[int, ...]:
    """Return a shape or strides that a pickle holds."""
    if not isinstance(values, tuple) or len(values) > MOST_AXES:
        raise Refused("it holds a tensor whose shape is no list of sizes")
    return tuple(map(_count, values))


def _parameter(name: Name, arguments: tuple[Any, ...]) -> Any:
    return arguments[0]


def _size(name: Name, arguments: tuple[Any, ...]) -> tuple[int, ...]:
    return axis_sizes(arguments[0]) if arguments else ()


def _mapping(name: Name, arguments: tuple[Any, ...]) -> dict[Any, Any]:
    items = arguments[-1] if arguments else ()
    if isinstance(items, list):  # Python 2 wrote the items as pairs
        return {key: value for key, value in items if isinstance(key, str)}
    return {}


def _unreadable(name: Name, arguments: tuple[Any, ...]) -> Unreadable:
    kinds = {
        "_rebuild_qtensor": "quantised by torch; dequantise it before saving",
        "_rebuild_sparse_tensor": "stored sparse; save it dense",
        "_rebuild_meta_tensor_no_storage": "on the meta device, which holds no values",
    }
    # A sparse tensor has its parts in a tuple, of which only the shape is a tuple of sizes.
    sparse = name.name == "_rebuild_sparse_tensor"
    parts = arguments[1] if sparse and len(arguments) > 1 else arguments
    shapes = [part for part in parts if isinstance(part, tuple)] if isinstance(parts, tuple) else []
    return Unreadable(kinds[name.name], axis_sizes(shapes[0]) if shapes else ())


def _list(name: Name, arguments: tuple[Any, ...]) -> list[Any]:
    return []  # to which the pickle adds


# Values that training scripts save beside the weights: losses, states of generators, dates.
_BUILTINS = ("bytearray", "bytes", "complex", "frozenset", "object", "range", "set", "slice")
_DATES = ("date", "datetime", "time", "timedelta", "timezone")
_ARRAYS = ("scalar", "_reconstruct", "_frombuffer")
BESIDE = {
    **{(m, n): built for m in ("builtins", "__builtin__") for n in (*_BUILTINS, "xrange")},
    **{("datetime", name): built for name in _DATES},
    **{(f"numpy.{c}.multiarray", name): built for c in ("core", "_core") for name in _ARRAYS},
    ("numpy", "dtype"): built,
    ("_codecs", "encode"): built,
    ("collections", "deque"): _list,
    ("torch", "device"): built,
    ("argparse", "Namespace"): built,
    ("pathlib", "PosixPath"): built,
    ("pathlib", "WindowsPath"): built,
    ("pathlib._local", "PosixPath"): built,
    ("pathlib._local", "WindowsPath"): built,
}
TENSORS = {
    **BESIDE,
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _parameter,
    ("torch._utils", "_rebuild_qtensor"): _unreadable,
    ("torch._utils", "_rebuild_sparse_tensor"): _unreadable,
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): _unreadable,
    ("torch", "Size"): _size,
    ("collections", "OrderedDict"): _mapping,
    ("collections", "defaultdict"): _mapping,
    ("collections", "Counter"): _mapping,
    ("torch.serialization", "_get_layout"): built,
}
