"""Reading of runs."""

from pathlib import Path

import xarray as xr

from rankscope.store.archive import SUFFIX, open_archive
from rankscope.store.layout import SCHEMA


def open(path: str | Path) -> xr.Dataset:
    """Open the run at `path`: a folder, a URL that zarr can open, or a `.zarr.zip` archive.

    Values are read when they are used; those of an archive at once. A run that is being written
    shows whole snapshots only; open it again to see more. Plain `xarray.open_zarr(path)` gives the
    same Dataset.
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
