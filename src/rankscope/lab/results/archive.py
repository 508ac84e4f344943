"""One kept run, one file: a Zarr store in a zip, the same bytes for the same Dataset.

<results>/<paper>/<experiment>/<run>/seed-0.zarr.zip

A folder of results is told from one of runs by its ledger.
"""

import json
import zipfile
from collections.abc import Mapping
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numcodecs.blosc import Blosc  # type: ignore[import-untyped]
from zarr.codecs import BloscCodec, TransposeCodec
from zarr.storage import MemoryStore, ZipStore

from rankscope.store.files import replace_file

LEDGER = "ledger.json"
SUFFIX = ".zarr.zip"
ROOT = "zarr.json"
LEVEL = 7  # of Blosc's zstd; its highest, 9, saves a fifteenth and takes twenty times as long


def is_results(folder: Path) -> bool:
    """Whether `folder` holds kept results and not runs."""
    return (folder / LEDGER).is_file()


def archive_path(results: Path, experiment: str, run: str, seed: int) -> Path:
    return results / experiment / run / f"seed-{seed}{SUFFIX}"


def write_archive(ds: xr.Dataset, path: Path) -> None:
    """Put the Dataset at `path`, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, _zipped(_store_of(ds)), durable=False)


def open_archive(path: Path) -> xr.Dataset:
    """The Dataset at `path` as it lies in the file, read whole."""
    with ZipStore(path, mode="r") as store:
        ds: xr.Dataset = xr.open_zarr(store, chunks=None, consolidated=True).load()
    return ds


def archive_attrs(path: Path) -> dict[str, Any]:
    """The attributes of the Dataset at `path`; none where there is no such file."""
    try:
        with zipfile.ZipFile(path) as archive:
            attrs: dict[str, Any] = json.loads(archive.read(ROOT))["attributes"]
    except (FileNotFoundError, zipfile.BadZipFile, KeyError):
        return {}
    return attrs


def digest(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    return sha256(path.read_bytes()).hexdigest()


def _store_of(ds: xr.Dataset) -> dict[str, bytes]:
    """The files of a Zarr store: name -> bytes, metadata of all arrays also in the root's."""
    bare = ds.drop_encoding()
    files: dict[str, Any] = {}
    bare.to_zarr(
        MemoryStore(files),
        encoding={str(name): _encoding(array) for name, array in bare.variables.items()},
        consolidated=False,
        zarr_format=3,
    )
    store = {name: buffer.to_bytes() for name, buffer in files.items()}
    metadata = {str(name): json.loads(store[f"{name}/{ROOT}"]) for name in bare.variables}
    inline = {"kind": "inline", "must_understand": False, "metadata": metadata}
    root = {**json.loads(store[ROOT]), "consolidated_metadata": inline}
    return {**store, ROOT: json.dumps(root).encode()}


def _encoding(array: xr.Variable) -> dict[str, Any]:
    """One chunk for all of an array; of numbers, in whatever order takes less room."""
    if not array.ndim:
        return {}
    found: dict[str, Any] = {"chunks": tuple(max(1, size) for size in array.shape)}
    if np.issubdtype(array.dtype, np.floating):
        found["compressors"] = [BloscCodec(cname="zstd", clevel=LEVEL, shuffle="shuffle")]
        order = (*range(1, array.ndim), 0)  # neighbours in time next to each other
        values = array.to_numpy()
        if array.ndim > 1 and _packed(values.transpose(order)) < _packed(values):
            found["filters"] = [TransposeCodec(order=order)]
    return found


def _packed(values: np.ndarray) -> int:
    """Bytes that it takes."""
    packing = Blosc(cname="zstd", clevel=LEVEL, shuffle=Blosc.SHUFFLE)
    return len(packing.encode(np.ascontiguousarray(values))) if values.size else 0


def _zipped(files: Mapping[str, bytes]) -> bytes:
    """In the order of their names and without the time of day."""
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name])
    return packed.getvalue()
