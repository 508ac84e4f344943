"""Format of a run's files: Zarr v3 metadata and chunk bytes, written here and read by zarr itself.

This is the part of the format that a run needs: arrays that grow along their first axis,
little-endian numbers or UTF-8 strings, zstd, checksums. A file of an array with several dimensions
is a shard: the rows of a few steps, in chunks of some entries of the second dimension each. A few
steps of all matrices and a few matrices at all steps are then both quick to read.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import DTypeLike

from rankscope.store.chunk import ZSTD_LEVEL, ChunkFormat, Place
from rankscope.store.metadata import SCHEMA, Json, parse_root, sealed
from rankscope.store.names import check_scalar_name
from rankscope.store.shard import shard_bytes

# Chunks of small rows hold many steps (4096 of a scalar), so that a long run has few files. Chunks
# of huge rows hold few, so that the unfinished chunk of a large model fits in memory.
SMALL_CHUNK_BYTES = 32 * 1024
LARGE_CHUNK_BYTES = 16 * 1024 * 1024

# A file is cut along its second dimension into chunks of about this size.
INNER_CHUNK_BYTES = 256 * 1024

# Size of the files into which a finished run is compacted.
COMPACT_BYTES = 64 * 1024 * 1024

# Attributes of the root that the store sets itself.
RESERVED_ATTRS = {"rankscope_schema", "append_axes", "coordinates"}


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
    """Format of one array on disk; `Contents` holds its length along dims[0].

    columns: entries of dims[1] in each chunk of a shard; 0 if a file is one chunk.
    blocks: chunks along dims[0] in each shard; more than 1 in a compacted run.
    checked: each chunk has a checksum; those of schema 1 have none.
    """

    dims: tuple[str, ...]
    dtype: str
    fill: int | float | str
    row_shape: tuple[int, ...]
    chunk_rows: int
    attrs: Mapping[str, Json]
    columns: int = 0
    blocks: int = 1
    checked: bool = True

    @classmethod
    def of(cls, variable: Variable, sizes: Mapping[str, int], chunk_steps: int) -> "Layout":
        dtype = np.dtype(variable.dtype)
        name = "string" if dtype.kind in "UOT" else dtype.name
        row_shape = tuple(sizes[dim] for dim in variable.dims[1:])
        row_bytes = max(1, math.prod(row_shape) * (8 if name == "string" else dtype.itemsize))
        rows = max(chunk_steps, SMALL_CHUNK_BYTES // row_bytes)
        rows = max(1, min(rows, LARGE_CHUNK_BYTES // row_bytes))
        fill = _default_fill(name) if variable.fill is None else variable.fill
        columns = 0
        if name != "string" and math.prod(row_shape) and row_shape:
            chunks = max(1, min(row_shape[0], rows * row_bytes // INNER_CHUNK_BYTES))
            columns = -(-row_shape[0] // chunks)
        return cls(variable.dims, name, fill, row_shape, rows, variable.attrs, columns)

    @classmethod
    def from_metadata(cls, metadata: Json) -> "Layout":
        fill = metadata["fill_value"]
        file_shape = metadata["chunk_grid"]["configuration"]["chunk_shape"]
        codecs, columns, blocks, chunk_rows = metadata["codecs"], 0, 1, file_shape[0]
        if codecs[0]["name"] == "sharding_indexed":
            chunk_rows, columns, *_ = codecs[0]["configuration"]["chunk_shape"]
            codecs, blocks = codecs[0]["configuration"]["codecs"], file_shape[0] // chunk_rows
        return cls(
            dims=tuple(metadata["dimension_names"]),
            dtype=metadata["data_type"],
            fill=math.nan if fill == "NaN" and metadata["data_type"] != "string" else fill,
            row_shape=tuple(metadata["shape"][1:]),
            chunk_rows=chunk_rows,
            attrs=metadata["attributes"],
            columns=columns,
            blocks=blocks,
            checked=codecs[-1]["name"] == "crc32c",
        )

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks in a shard along each dimension."""
        across = -(-self.row_shape[0] // self.columns)
        return (self.blocks, across, *(1 for _ in self.row_shape[1:]))

    @property
    def chunk(self) -> ChunkFormat:
        """Format of one chunk."""
        # Zarr has no chunks of size 0: an axis of size 0 gets chunks of 1 that are never written.
        shape = (self.chunk_rows, *(max(1, size) for size in self.row_shape))
        if self.columns:
            shape = (self.chunk_rows, self.columns, *self.row_shape[1:])
        return ChunkFormat(self.dtype, shape, ("zstd", "crc32c") if self.checked else ("zstd",))

    def metadata(self, length: int) -> Json:
        """Return the array's zarr.json for `length` rows."""
        bytes_codec = {"name": "bytes", "configuration": {"endian": "little"}}
        string_codec = {"name": "vlen-utf8", "configuration": {}}
        zstd = {"name": "zstd", "configuration": {"level": ZSTD_LEVEL, "checksum": False}}
        crc32c = {"name": "crc32c"}
        codecs = [string_codec if self.dtype == "string" else bytes_codec, zstd]
        codecs += [crc32c] if self.checked else []
        file_shape = chunk_shape = list(self.chunk.shape)
        if self.columns:
            grid = self.grid
            file_shape = [size * count for size, count in zip(chunk_shape, grid, strict=True)]
            configuration = {
                "chunk_shape": chunk_shape,
                "codecs": codecs,
                "index_codecs": [bytes_codec, crc32c],
                "index_location": "end",
            }
            codecs = [{"name": "sharding_indexed", "configuration": configuration}]
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [length, *self.row_shape],
            "data_type": self.dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": file_shape}},
            "chunk_key_encoding": {
                "name": "default" if self.blocks == 1 else "v2",
                "configuration": {"separator": "."},
            },
            "fill_value": "NaN" if self.fill != self.fill else self.fill,
            "codecs": codecs,
            "attributes": dict(self.attrs),
            "dimension_names": list(self.dims),
            "storage_transformers": [],
        }

    def blank(self, rows: int) -> np.ndarray:
        """Return an array of `rows` rows that hold nothing yet."""
        dtype = object if self.dtype == "string" else np.dtype(self.dtype).newbyteorder("<")
        return np.full((rows, *self.row_shape), self.fill, dtype)

    def chunk_name(self, index: int) -> str:
        """Return the name of file `index`: c.1.0.0, or 1.0.0 if compacted.

        The two differ, so that both can lie there while one replaces the other.
        """
        numbers = [str(index), *("0" for _ in self.row_shape)]
        return ".".join(numbers if self.blocks > 1 else ["c", *numbers])

    def encode(self, name: str, index: int, rows: np.ndarray, *, filled: int) -> bytes:
        """Return the bytes of file `index` of array `name`; its first `filled` rows hold values."""
        if not self.columns:
            place = Place(name, (index, *(0 for _ in self.row_shape)), filled)
            return self.chunk.encode(rows, place)
        chunks, rest = {}, tuple(0 for _ in self.row_shape[1:])
        for column in range(self.grid[1]):
            part = rows[:, column * self.columns : (column + 1) * self.columns]
            if part.shape[1] < self.columns:
                missing = self.columns - part.shape[1]
                blank = self.blank(len(rows))[:, :1].repeat(missing, axis=1)
                part = np.concatenate([part, blank], axis=1)
            place = Place(name, (index, column, *rest), filled)
            chunks[(0, column, *rest)] = self.chunk.encode(part, place)
        return shard_bytes(chunks, self.grid)


def _default_fill(dtype: str) -> int | float | str:
    if dtype == "string":
        return ""
    return math.nan if dtype.startswith("float") else 0


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
    schema: int = SCHEMA

    @classmethod
    def from_json(cls, data: bytes) -> "Contents":
        parse_root(data)  # raises if anything is not as rankscope writes it
        root = json.loads(data)
        attrs = dict(root["attributes"])
        schema, axes = attrs["rankscope_schema"], attrs["append_axes"]
        axes = tuple(json.loads(axes) if isinstance(axes, str) else axes)
        attrs = {name: value for name, value in attrs.items() if name not in RESERVED_ATTRS}
        arrays = root["consolidated_metadata"]["metadata"]
        lengths = {
            dim: size
            for array in arrays.values()
            for dim, size in zip(array["dimension_names"], array["shape"], strict=True)
        }
        layouts = {name: Layout.from_metadata(array) for name, array in arrays.items()}
        return cls(layouts, lengths, axes, attrs, schema)

    def to_json(self) -> bytes:
        metadata = {name: self.metadata(name) for name in self.layouts}
        root = {
            "zarr_format": 3,
            "node_type": "group",
            "attributes": {
                **self.attrs,
                "rankscope_schema": self.schema,
                "append_axes": json.dumps(self.axes),  # netCDF has no lists of strings
                # xarray's convention for coordinates that are not an index, such as m(matrix).
                "coordinates": " ".join(sorted(self.fixed() - set(self.lengths))),
            },
            "consolidated_metadata": {
                "kind": "inline",
                "must_understand": False,
                "metadata": metadata,
            },
        }
        return sealed(root) if self.schema > 1 else json.dumps(root, allow_nan=False).encode()

    def metadata(self, name: str) -> Json:
        layout = self.layouts[name]
        return layout.metadata(self.lengths[layout.dims[0]])

    def along(self, axis: str) -> dict[str, Layout]:
        """Return the arrays that grow along `axis`, with its own coordinate."""
        return {name: layout for name, layout in self.layouts.items() if layout.dims[0] == axis}

    def with_scalars(self, along: str, names: Iterable[str]) -> "Contents":
        """Return contents with an array for each new name, and for the axis if it is new."""
        checked = self.schema > 1
        scalar = replace(Layout.of(Variable((along,), np.float64), {}, 1), checked=checked)
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
        counter = Layout.of(Variable((along,), np.int64), {}, 1)
        layouts[along] = replace(counter, checked=checked)
        lengths = {**self.lengths, along: 0}
        return replace(self, layouts=layouts, lengths=lengths, axes=(*self.axes, along))

    def fixed(self) -> set[str]:
        """Return the names of the coordinates that never grow."""
        return {name for name, layout in self.layouts.items() if layout.dims[0] not in self.axes}


def name_taken(name: str) -> ValueError:
    return ValueError(f"{name!r} is the name of a stored variable or coordinate; rename the scalar")
