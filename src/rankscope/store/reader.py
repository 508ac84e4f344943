"""Reading of runs."""

import json
from pathlib import Path
from typing import Any

import xarray as xr
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore

from rankscope.store.archive import SUFFIX, open_archive
from rankscope.store.dropped import folder_of
from rankscope.store.files import ROOT
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
        dataset = xr.open_dataset(
            path if "://" in str(path) else _RunStore(path),  # type: ignore[arg-type]
            engine="zarr",
            chunks=None,
            consolidated=True,
        )
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


class _RunStore(LocalStore):
    """Files of a run as they were when it was opened, also if it goes back to an earlier step."""

    def __init__(self, root: Path | str, *, read_only: bool = True) -> None:
        super().__init__(root, read_only=True)
        self._root_file: Buffer | None = None
        self._attrs: dict[str, Any] = {}

    async def get(
        self,
        key: str,
        prototype: BufferPrototype | None = None,
        byte_range: ByteRequest | None = None,
    ) -> Buffer | None:
        if key == ROOT and self._root_file is not None:
            return self._root_file
        while True:
            data = await super().get(key, prototype, byte_range)
            if key == ROOT:
                self._root_file = data
                self._attrs = {} if data is None else json.loads(data.to_bytes())["attributes"]
                return data
            folder = folder_of(self.root, self._attrs)
            if folder == self.root:
                return data
            data = await LocalStore(folder).get(key, prototype, byte_range)
            if data is not None or folder.exists():
                return data
