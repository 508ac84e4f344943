"""A Dataset as one file: a Zarr store in a zip, the same bytes for the same Dataset."""

import json
import zipfile
import zlib
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from zarr.codecs import BloscCodec
from zarr.storage import MemoryStore, ZipStore

SUFFIX = ".zarr.zip"
ROOT = "zarr.json"
LEVEL = 7  # of Blosc's zstd; its highest, 9, saves a fifteenth and takes twenty times as long


def packed(ds: xr.Dataset) -> bytes:
    """The bytes of the file."""
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
    return _zipped({**store, ROOT: json.dumps(root).encode()})


def open_archive(path: Path) -> xr.Dataset:
    """The Dataset in the file at `path`, read whole."""
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not a run in one file; give a {SUFFIX}, or a run's folder")
    try:
        with ZipStore(path, mode="r") as store:
            ds: xr.Dataset = xr.open_zarr(store, chunks=None, consolidated=True).load()
    except (zipfile.BadZipFile, zlib.error) as damage:
        raise ValueError(
            f"{path} is damaged ({damage}); restore it, or keep the run again"
        ) from None
    return ds


def archive_attrs(path: Path) -> dict[str, Any]:
    """The attributes of the Dataset at `path`; none where there is no file, or no whole one."""
    try:
        with zipfile.ZipFile(path) as archive:
            attrs: dict[str, Any] = json.loads(archive.read(ROOT))["attributes"]
    except (OSError, zipfile.BadZipFile, zlib.error, KeyError, ValueError):
        return {}
    return attrs


def _encoding(array: xr.Variable) -> dict[str, Any]:
    """One chunk for all of an array."""
    if not array.ndim:
        return {}
    found: dict[str, Any] = {"chunks": tuple(max(1, size) for size in array.shape)}
    if np.issubdtype(array.dtype, np.floating):
        found["compressors"] = [BloscCodec(cname="zstd", clevel=LEVEL, shuffle="shuffle")]
    return found


def _zipped(files: Mapping[str, bytes]) -> bytes:
    """In the order of their names and without the time of day."""
    found = BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name])
    return found.getvalue()
