"""Format of a run's files: Zarr v3 metadata and chunk bytes, written here and read by zarr itself.

This is the part of the format that a run needs: arrays that grow along their first axis, one chunk
across all others, little-endian numbers or UTF-8 strings, zstd.
"""

import json
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numcodecs.zstd import Zstd  # type: ignore[import-untyped]
from numpy.typing import DTypeLike

from rankscope.store.names import check_scalar_name

SCHEMA = 1

# The fastest level that still removes NaN padding. It packs 3 MB of half-padded spectra in 1 ms,
# less than writing them unpacked takes. Higher levels save a tenth of the size for three times the
# time.
ZSTD_LEVEL = -1

# Chunks of small rows hold many steps (4096 of a scalar), so that a long run has few files. Chunks
# of huge rows hold few, so that the unfinished chunk of a large model fits in memory.
SMALL_CHUNK_BYTES = 32 * 1024
LARGE_CHUNK_BYTES = 16 * 1024 * 1024

# Attributes of the root that the store sets itself.
RESERVED_ATTRS = {"rankscope_schema", "append_axes", "coordinates"}

Json = Any


@dataclass(frozen=True)
class Variable:
    """An array that grows along dims[0].

    A variable named as its only dimension sets the dtype of that axis: Variable(("time",), float).
    The default dtype of an axis is int64.

    fill: value where nothing was written; by default NaN for floats, "" for strings, 0 for others.
    attrs: attributes of the array, such as flag_values and flag_meanings.
    """

    dims: tuple[str, ...]
    dtype: DTypeLike = np.float32
    fill: int | float | str | None = None
    attrs: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """Format of one array on disk; `Contents` holds its length along dims[0]."""

    dims: tuple[str, ...]
    dtype: str
    fill: int | float | str
    row_shape: tuple[int, ...]
    chunk_rows: int
    attrs: Mapping[str, Json]

    @classmethod
    def of(cls, variable: Variable, sizes: Mapping[str, int], chunk_steps: int) -> "Layout":
        dtype = np.dtype(variable.dtype)
        name = "string" if dtype.kind in "UOT" else dtype.name
        row_shape = tuple(sizes[dim] for dim in variable.dims[1:])
        row_bytes = max(1, math.prod(row_shape) * (8 if name == "string" else dtype.itemsize))
        rows = max(chunk_steps, SMALL_CHUNK_BYTES // row_bytes)
        rows = max(1, min(rows, LARGE_CHUNK_BYTES // row_bytes))
        fill = _default_fill(name) if variable.fill is None else variable.fill
        return cls(variable.dims, name, fill, row_shape, rows, variable.attrs)

    @classmethod
    def from_metadata(cls, metadata: Json) -> "Layout":
        fill = metadata["fill_value"]
        return cls(
            dims=tuple(metadata["dimension_names"]),
            dtype=metadata["data_type"],
            fill=math.nan if fill == "NaN" and metadata["data_type"] != "string" else fill,
            row_shape=tuple(metadata["shape"][1:]),
            chunk_rows=metadata["chunk_grid"]["configuration"]["chunk_shape"][0],
            attrs=metadata["attributes"],
        )

    def metadata(self, length: int) -> Json:
        """Return the array's zarr.json for `length` rows."""
        # Zarr has no chunks of size 0: an axis of size 0 gets chunks of 1 that are never written.
        chunk_shape = [self.chunk_rows, *(max(1, size) for size in self.row_shape)]
        bytes_codec = {"name": "bytes", "configuration": {"endian": "little"}}
        string_codec = {"name": "vlen-utf8", "configuration": {}}
        zstd = {"name": "zstd", "configuration": {"level": ZSTD_LEVEL, "checksum": False}}
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [length, *self.row_shape],
            "data_type": self.dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk_shape}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
            "fill_value": "NaN" if self.fill != self.fill else self.fill,
            "codecs": [string_codec if self.dtype == "string" else bytes_codec, zstd],
            "attributes": dict(self.attrs),
            "dimension_names": list(self.dims),
            "storage_transformers": [],
        }

    def blank(self, rows: int) -> np.ndarray:
        """Return an array of `rows` rows that hold nothing yet."""
        dtype = object if self.dtype == "string" else np.dtype(self.dtype).newbyteorder("<")
        return np.full((rows, *self.row_shape), self.fill, dtype)

    def chunk_name(self, index: int) -> str:
        return ".".join(["c", str(index), *("0" for _ in self.row_shape)])

    def encode(self, chunk: np.ndarray) -> bytes:
        """Return the bytes of one whole chunk."""
        data = _string_bytes(chunk) if self.dtype == "string" else np.ascontiguousarray(chunk)
        return bytes(Zstd(level=ZSTD_LEVEL).encode(data))


def _default_fill(dtype: str) -> int | float | str:
    if dtype == "string":
        return ""
    return math.nan if dtype.startswith("float") else 0


def _string_bytes(chunk: np.ndarray) -> bytes:
    """Return Zarr's vlen-utf8: the number of items, then the length and bytes of each."""
    packed = {}
    for text in set(chunk.flat):
        data = text.encode()
        packed[text] = struct.pack("<I", len(data)) + data
    return struct.pack("<I", chunk.size) + b"".join(packed[text] for text in chunk.flat)


@dataclass(frozen=True)
class Contents:
    """Contents of the root zarr.json: arrays, lengths, attributes.

    `lengths` holds every dimension; `axes` names those that grow. The file holds the metadata of
    every array (Zarr calls it consolidated), so a reader takes all lengths from one file, which is
    replaced in one step.
    """

    layouts: Mapping[str, Layout]
    lengths: Mapping[str, int]
    axes: tuple[str, ...]
    attrs: Mapping[str, Json]

    @classmethod
    def from_json(cls, data: bytes) -> "Contents":
        root = json.loads(data)
        attrs = dict(root["attributes"])
        if attrs["rankscope_schema"] > SCHEMA:
            raise ValueError(
                f"the run has schema {attrs['rankscope_schema']}; update rankscope to write it"
            )
        axes = tuple(attrs["append_axes"])
        attrs = {name: value for name, value in attrs.items() if name not in RESERVED_ATTRS}
        arrays = root["consolidated_metadata"]["metadata"]
        lengths = {
            dim: size
            for array in arrays.values()
            for dim, size in zip(array["dimension_names"], array["shape"], strict=True)
        }
        layouts = {name: Layout.from_metadata(array) for name, array in arrays.items()}
        return cls(layouts, lengths, axes, attrs)

    def to_json(self) -> bytes:
        metadata = {name: self.metadata(name) for name in self.layouts}
        root = {
            "zarr_format": 3,
            "node_type": "group",
            "attributes": {
                **self.attrs,
                "rankscope_schema": SCHEMA,
                "append_axes": list(self.axes),
                # xarray's convention for coordinates that are not an index, such as m(matrix).
                "coordinates": " ".join(sorted(self.fixed() - set(self.lengths))),
            },
            "consolidated_metadata": {
                "kind": "inline",
                "must_understand": False,
                "metadata": metadata,
            },
        }
        return json.dumps(root, allow_nan=False).encode()

    def metadata(self, name: str) -> Json:
        layout = self.layouts[name]
        return layout.metadata(self.lengths[layout.dims[0]])

    def along(self, axis: str) -> dict[str, Layout]:
        """Return the arrays that grow along `axis`, with its own coordinate."""
        return {name: layout for name, layout in self.layouts.items() if layout.dims[0] == axis}

    def with_scalars(self, along: str, names: Iterable[str]) -> "Contents":
        """Return contents with an array for each new name, and for the axis if it is new."""
        scalar = Layout.of(Variable((along,), np.float64), {}, 1)
        layouts = dict(self.layouts)
        for name in names:
            if name in self.lengths or layouts.setdefault(name, scalar).dims[0] != along:
                raise name_taken(name)
            check_scalar_name(name)
        if along in self.axes:
            return replace(self, layouts=layouts)
        if along in self.lengths or along in self.layouts:
            raise ValueError(
                f"{along!r} names a coordinate that does not grow; choose another axis"
            )
        layouts[along] = Layout.of(Variable((along,), np.int64), {}, 1)
        lengths = {**self.lengths, along: 0}
        return Contents(layouts, lengths, (*self.axes, along), self.attrs)

    def fixed(self) -> set[str]:
        """Return the names of the coordinates that never grow."""
        return {name for name, layout in self.layouts.items() if layout.dims[0] not in self.axes}


def name_taken(name: str) -> ValueError:
    return ValueError(f"{name!r} is the name of a stored variable or coordinate; rename the scalar")
