"""Metadata of a run, checked before anything is built from it.

Only what rankscope writes is accepted: Zarr v3, arrays of numbers or strings on a regular grid,
and the codecs of `chunk.py`. The root zarr.json ends with the CRC32C of the text before it.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankscope.store.chunk import CHUNK_BYTES, ChunkFormat, Damage, checksum

Json = Any

ROOT = "zarr.json"
SCHEMA = 2  # 1 had no checksums and one chunk across each row

ROOT_BYTES = 32 * 1024 * 1024  # largest root zarr.json
MOST_ARRAYS = 10_000
MOST_CHUNKS = 2**20  # of one array

DTYPES = {
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "string"),
}
PACKINGS = {("zstd",), ("zstd", "crc32c"), ("blosc",), ("blosc", "crc32c")}
INDEX_CODECS = ("bytes", "crc32c")
SEAL = re.compile(rb', "checksum": "([0-9a-f]{8})"\}\}$')


@dataclass(frozen=True)
class ArrayFormat:
    """Format of one array. A file holds `file_shape`, one chunk or several (a shard)."""

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    file_shape: tuple[int, ...]
    chunk: ChunkFormat
    sharded: bool
    prefix: tuple[str, ...]
    separator: str
    fill: Any
    attrs: Mapping[str, Json]

    @property
    def dtype(self) -> np.dtype:
        if self.chunk.dtype == "string":
            return np.dtypes.StringDType()
        return np.dtype(self.chunk.dtype)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.chunk.item_bytes

    @property
    def is_scalar(self) -> bool:
        """Whether this may be a scalar that first came late in the run."""
        return len(self.dims) == 1 and self.chunk.dtype == "float64" and self.name not in self.dims

    @property
    def chunks_per_file(self) -> tuple[int, ...]:
        return tuple(
            whole // part for whole, part in zip(self.file_shape, self.chunk.shape, strict=True)
        )

    @property
    def file_bytes(self) -> int:
        """Return the largest possible size of a file."""
        return math.prod(self.chunks_per_file) * (self.chunk.most_bytes + 16) + 4

    def rows(self, index: tuple[int, ...]) -> range:
        """Return the positions along the first dimension that the chunk at `index` holds."""
        if not index:
            return range(0)
        size = self.chunk.shape[0]
        return range(index[0] * size, min(self.shape[0], (index[0] + 1) * size))

    def file_name(self, index: tuple[int, ...]) -> str:
        return self.separator.join([*self.prefix, *map(str, index)]) or "0"


@dataclass(frozen=True)
class Root:
    """The root zarr.json.

    checked: it has a checksum, and so has every chunk.
    checksums: those of files whose chunks have none of their own, as in archives.
    """

    attrs: dict[str, Json]
    arrays: dict[str, ArrayFormat]
    checked: bool
    checksums: Mapping[str, int]


def sealed(root: Json) -> bytes:
    """Return the root zarr.json of `root`, with a checksum where zarr ignores it."""
    text = json.dumps(root, allow_nan=False).encode()
    assert text.endswith(b"}}")
    return text[:-2] + b', "checksum": "%08x"}}' % checksum(text)


def parse_root(data: bytes) -> Root:
    """Return the root zarr.json; Damage if rankscope did not write it.

    ValueError if a newer rankscope did.
    """
    if len(data) > ROOT_BYTES:
        raise Damage(f"zarr.json has {len(data)} bytes, more than {ROOT_BYTES}")
    seal = SEAL.search(data[-32:])
    if seal is not None:
        text = data[: -len(seal[0])] + b"}}"
        if int(seal[1], 16) != checksum(text):
            raise Damage("zarr.json: checksum differs")
    try:
        root = json.loads(data)
    except (ValueError, RecursionError):
        raise Damage("zarr.json is not JSON") from None
    _require(isinstance(root, dict), "zarr.json is not a JSON object")
    _require(root.get("zarr_format") == 3, "it is not Zarr v3, the only format read")
    _require(root.get("node_type") == "group", "zarr.json does not describe a group")
    attrs = root.get("attributes", {})
    _require(isinstance(attrs, dict), "its attributes are not a JSON object")
    _require(type(attrs.get("dropped", 0)) is int, "its attribute 'dropped' is not a number")
    schema = attrs.get("rankscope_schema", 0)
    _require(type(schema) is int, f"its schema is {schema!r}")
    if schema > SCHEMA:
        raise ValueError(
            f"the run has schema {schema}, this rankscope reads up to {SCHEMA}; update rankscope"
        )
    _require(seal is not None or schema < 2, "zarr.json has lost its checksum")
    consolidated = root.get("consolidated_metadata")
    _require(isinstance(consolidated, dict), "zarr.json does not list the arrays")
    metadata, checksums = consolidated.get("metadata"), consolidated.get("checksums", {})
    _require(isinstance(metadata, dict), "zarr.json does not list the arrays")
    _require(isinstance(checksums, dict), "zarr.json does not list the checksums")
    _require(len(metadata) <= MOST_ARRAYS, f"{len(metadata)} arrays, more than {MOST_ARRAYS}")
    arrays = {name: _parse_array(name, array) for name, array in metadata.items()}
    _check_sizes(arrays)
    return Root(attrs, arrays, seal is not None, checksums)


def _parse_array(name: str, metadata: Json) -> ArrayFormat:
    """Return the format of one array; Damage unless rankscope could have written it."""
    _require(
        name not in ("", ".", "..") and "/" not in name and "\0" not in name,
        f"{name!r} cannot name an array",
    )
    try:
        return _format_of(name, metadata)
    except (KeyError, TypeError, AttributeError, IndexError):
        raise Damage(f"the metadata of {name!r} are incomplete") from None


def _format_of(name: str, metadata: Json) -> ArrayFormat:
    _require(
        metadata["zarr_format"] == 3 and metadata["node_type"] == "array",
        f"{name!r} is not a Zarr v3 array",
    )
    dtype = metadata["data_type"]
    _require(isinstance(dtype, str) and dtype in DTYPES, f"{name!r} has the data type {dtype!r}")
    dims = tuple(metadata["dimension_names"] or ())
    shape = _sizes(name, metadata["shape"], least=0)
    grid = metadata["chunk_grid"]
    _require(grid["name"] == "regular", f"{name!r} is not on a regular grid")
    file_shape = _sizes(name, grid["configuration"]["chunk_shape"], least=1)
    keys = metadata["chunk_key_encoding"]
    separator = keys["configuration"]["separator"]
    _require(
        keys["name"] in ("default", "v2") and separator in ("/", ".") and len(dims) == len(shape),
        f"the files of {name!r} have other names than rankscope gives",
    )
    prefix = ("c",) if keys["name"] == "default" else ()
    _require(not metadata.get("storage_transformers"), f"{name!r} has storage transformers")
    codecs = metadata["codecs"]
    sharded = codecs[0]["name"] == "sharding_indexed"
    chunk_shape = file_shape
    if sharded:
        _require(len(codecs) == 1, f"{name!r} uses codecs that rankscope does not write")
        chunk_shape, codecs = _inner_chunks(name, codecs[0]["configuration"])
    _require(
        len(shape) == len(file_shape) == len(chunk_shape)
        and all(whole % part == 0 for whole, part in zip(file_shape, chunk_shape, strict=True)),
        f"the chunks of {name!r} do not fit its shape",
    )
    chunk = ChunkFormat(dtype, chunk_shape, _packing(name, dtype, codecs))
    attrs = metadata.get("attributes", {})
    _require(isinstance(attrs, dict), f"the attributes of {name!r} are not a JSON object")
    fill = _fill(name, dtype, metadata["fill_value"])
    result = ArrayFormat(
        name, dims, shape, file_shape, chunk, sharded, prefix, separator, fill, attrs
    )
    count = math.prod(-(-size // part) for size, part in zip(shape, chunk_shape, strict=True))
    _require(
        count <= MOST_CHUNKS and math.prod(result.chunks_per_file) <= MOST_CHUNKS,
        f"{name!r} declares {count} chunks, more than {MOST_CHUNKS}",
    )
    _require(
        chunk.nbytes <= CHUNK_BYTES,
        f"{name!r} declares chunks of {chunk.nbytes} bytes, more than {CHUNK_BYTES}",
    )
    return result


def _sizes(name: str, sizes: Json, *, least: int) -> tuple[int, ...]:
    _require(
        isinstance(sizes, list) and all(type(s) is int and least <= s < 2**40 for s in sizes),
        f"the shape of {name!r} is not a list of sizes",
    )
    return tuple(sizes)


def _inner_chunks(name: str, configuration: Json) -> tuple[tuple[int, ...], Json]:
    index_codecs = tuple(codec["name"] for codec in configuration["index_codecs"])
    _require(
        index_codecs == INDEX_CODECS and configuration.get("index_location", "end") == "end",
        f"{name!r} uses an index that rankscope does not write",
    )
    return _sizes(name, configuration["chunk_shape"], least=1), configuration["codecs"]


def _packing(name: str, dtype: str, codecs: Json) -> tuple[str, ...]:
    first, *rest = codecs
    packing = tuple(codec["name"] for codec in rest)
    wanted = "vlen-utf8" if dtype == "string" else "bytes"
    little = first.get("configuration", {}).get("endian", "little") == "little"
    if first["name"] != wanted or not little or packing not in PACKINGS:
        names = ", ".join(str(codec["name"]) for codec in codecs)
        raise Damage(f"{name!r} uses codecs that rankscope does not write ({names})")
    return packing


def _fill(name: str, dtype: str, fill: Json) -> Any:
    if dtype == "string":
        _require(isinstance(fill, str), f"the fill value of {name!r} is not a string")
        return fill
    if isinstance(fill, str):
        _require(fill in ("NaN", "Infinity", "-Infinity"), f"{name!r} has no usable fill value")
        fill = float(fill)
    try:
        return np.array(fill).astype(dtype)[()]
    except (ValueError, TypeError, OverflowError):
        raise Damage(f"{name!r} has no usable fill value") from None


def _check_sizes(arrays: Mapping[str, ArrayFormat]) -> None:
    """Raise Damage if arrays disagree on the size of a dimension."""
    sizes: dict[str, int] = {}
    for array in arrays.values():
        for dim, size in zip(array.dims, array.shape, strict=True):
            _require(isinstance(dim, str), f"a dimension of {array.name!r} has no name")
            _require(
                sizes.setdefault(dim, size) == size,
                f"{array.name!r} has {size} values along {dim!r}, others {sizes[dim]}",
            )


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Damage(otherwise)
