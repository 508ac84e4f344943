"""Archives: a Dataset as one file, a Zarr store in a zip; equal Datasets give equal bytes."""

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
LEVEL = 7  # of Blosc's zstd; level 9 saves a fifteenth and takes twenty times as long


def packed(ds: xr.Dataset) -> bytes:
    """Return the bytes of the archive of `ds`."""
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
    """Read the Dataset in the archive at `path`, all of it."""
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
    """Read the attributes of the archive at `path`; {} if there is none or it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            attrs: dict[str, Any] = json.loads(archive.read(ROOT))["attributes"]
    except (OSError, zipfile.BadZipFile, zlib.error, KeyError, ValueError):
        return {}
    return attrs


def _encoding(array: xr.Variable) -> dict[str, Any]:
    """Return the encoding of an array in one chunk."""
    if not array.ndim:
        return {}
    encoding: dict[str, Any] = {"chunks": tuple(max(1, size) for size in array.shape)}
    if np.issubdtype(array.dtype, np.floating):
        encoding["compressors"] = [BloscCodec(cname="zstd", clevel=LEVEL, shuffle="shuffle")]
    return encoding


def _zipped(files: Mapping[str, bytes]) -> bytes:
    """Return a zip of `files`, sorted by name and without time stamps."""
    data = BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name])
    return data.getvalue()
