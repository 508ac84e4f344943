"""Reading of runs."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.core import indexing

from rankscope.store.archive import SUFFIX, archive_source
from rankscope.store.chunk import Damage
from rankscope.store.metadata import ROOT
from rankscope.store.source import ArchiveFile, Folder, Remote, Source, leads_into
from rankscope.store.stored_run import Absent, StoredRun, damaged

ARRAY = b'"node_type": "array"'
COORDINATES = "coordinates"  # names of coordinates that are not an index, such as m(matrix)

# What an archive may unpack to: its values are read at once.
ARCHIVE_BYTES = 1024**3


def open(path: str | Path, *, within: Path | None = None, at_once: bool = True) -> xr.Dataset:
    """Open the run at `path`: a folder, a URL that fsspec can read, or a `.zarr.zip` archive.

    Values are read when they are used; those of an archive at once. A run that is being written
    shows whole snapshots only; open it again to see more. Plain `xarray.open_zarr(path)` gives the
    same Dataset.

    Everything that is read is compared with its checksum, and only what rankscope writes is read:
    a damaged or foreign file raises ValueError, here or when its values are used.

    within: a folder without links in its path; a file that a link leads out of it is refused.
    at_once: read the values of an archive now, not when they are used.
    """
    path = os.path.expanduser(path)
    if path.endswith(SUFFIX) and "://" not in path:
        if within is not None and not leads_into(Path(path), within):
            raise ValueError(f"{path} is a link to a file outside {within}; copy it there")
        return open_archive(Path(path), at_once=at_once)
    source = Remote.at(path) if "://" in path else Folder(Path(path), within=within)
    try:
        run = StoredRun.at(source)
    except Absent:
        raise ValueError(
            f"{path} is not a run: it holds no {ROOT}; give the folder that a tracker wrote"
        ) from None
    except Damage as damage:
        raise damaged(path, damage) from None
    if "rankscope_schema" not in run.root.attrs:
        raise ValueError(f"{path} is a Zarr group but not a run: it has no 'rankscope_schema'")
    return _dataset(run)


def is_run(path: str | Path) -> bool:
    """Tell whether `path` looks like a run: an archive by its name, a folder by its root.

    The folder of an array is none. A run that has lost its root is one, which `open` then says.
    """
    path = Path(path).expanduser()
    if path.name.endswith(SUFFIX):
        return True
    root = path / ROOT
    if not root.is_file():
        return root.is_symlink() or root.exists() or (path / "singular_values" / ROOT).is_file()
    try:
        with root.open("rb") as file:
            return ARRAY not in file.read(100)
    except OSError:
        return True  # opening it says what is wrong


def open_archive(path: Path, *, at_once: bool = True) -> xr.Dataset:
    """Read the Dataset in the archive at `path`, all of it or as its values are used."""
    with archive_source(path) as opened:
        source: Source = opened if at_once else ArchiveFile(path)
        try:
            run = StoredRun.at(source, lenient=True)
            declared = sum(array.nbytes for array in run.root.arrays.values())
            if declared > ARCHIVE_BYTES:
                raise Damage(f"its arrays have {declared} bytes, more than {ARCHIVE_BYTES}")
        except Damage as damage:
            raise ValueError(
                f"{path} is damaged ({damage}); restore it, or keep the run again"
            ) from None
        return _dataset(run).load() if at_once else _dataset(run)


def _dataset(run: StoredRun) -> xr.Dataset:
    ds: xr.Dataset = xr.open_dataset(run, engine=_Backend, chunks=None)  # type: ignore[arg-type]
    return ds


class _Backend(BackendEntrypoint):
    """The way from a `StoredRun` to a Dataset."""

    def open_dataset(  # type: ignore[override]
        self,
        filename_or_obj: StoredRun,
        *,
        drop_variables: str | Iterable[str] | None = None,
    ) -> xr.Dataset:
        run = filename_or_obj
        arrays, attrs = run.root.arrays, dict(run.root.attrs)
        coords = {name for name, array in arrays.items() if name in array.dims}
        coords |= set(str(attrs.pop(COORDINATES, "")).split())
        if isinstance(attrs.get("append_axes"), list):  # schema 1; netCDF has no lists of strings
            attrs["append_axes"] = json.dumps(attrs["append_axes"])
        variables = {}
        for name, array in arrays.items():
            own = dict(array.attrs)
            coords |= set(str(own.pop(COORDINATES, "")).split())
            own.pop("_FillValue", None)  # xarray adds it to the floats of an archive: NaN
            encoding = {"preferred_chunks": dict(zip(array.dims, array.chunk.shape, strict=True))}
            values = indexing.LazilyIndexedArray(_Values(run, name))
            variables[name] = xr.Variable(array.dims, values, own, encoding)
        return xr.Dataset(
            {name: variable for name, variable in variables.items() if name not in coords},
            {name: variable for name, variable in variables.items() if name in coords},
            attrs,
        )


class _Values(BackendArray):
    """The values of one array, read when they are used."""

    def __init__(self, run: StoredRun, name: str) -> None:
        array = run.root.arrays[name]
        self.run, self.name = run, name
        # Strings are Python's: pandas and netCDF know them, NumPy's own type they do not.
        self.shape = array.shape
        self.dtype = np.dtype(object) if array.chunk.dtype == "string" else array.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        return self.run.read(self.name, *key).astype(self.dtype, copy=False)
