"""Opening a run."""

from pathlib import Path

import xarray as xr

from rankscope.store.archive import SUFFIX, open_archive
from rankscope.store.layout import SCHEMA


def open(path: str | Path) -> xr.Dataset:
    """The run at `path`, a folder or a URL that zarr can open; values are read when they are used.

    One of the results that are kept as a file each, `.zarr.zip`, is read at once.
    All lengths come from one file, so a run being written shows whole snapshots only; open it
    again to see more. Plain `xarray.open_zarr(path)` gives the same dataset.
    """
    if str(path).endswith(SUFFIX):
        return open_archive(Path(path))
    try:
        dataset = xr.open_dataset(path, engine="zarr", chunks=None, consolidated=True)
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise ValueError(
            f"{path} is not a run ({error}); give the folder that a tracker wrote"
        ) from None
    schema = dataset.attrs.get("rankscope_schema")
    if schema is None:
        raise ValueError(f"{path} is a Zarr group but not a run: it has no 'rankscope_schema'")
    if schema > SCHEMA:
        raise ValueError(
            f"{path} has schema {schema}, this rankscope reads up to {SCHEMA}; update rankscope"
        )
    return dataset
