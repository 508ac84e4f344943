import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from rankscope import store
from rankscope.store.archive import archive_attrs, packed
from rankscope.store.reader import open_archive


def dataset() -> xr.Dataset:
    """Every kind of variable that a run has."""
    rng = np.random.default_rng(0)
    spectra = rng.standard_normal((5, 2, 3)).astype(np.float32)
    spectra[:, 1, 2] = np.nan
    names = np.array(["a", "über"], dtype=np.dtypes.StringDType())
    return xr.Dataset(
        {
            "singular_values": (("step", "matrix", "k"), spectra),
            "loss": ("step", rng.standard_normal(5)),
            "status": (("step", "matrix"), np.ones((5, 2), np.int8)),
            "nothing": (("step", "pair"), np.empty((5, 0), np.float32)),
        },
        coords={"step": np.arange(5) * 10, "matrix": names, "m": ("matrix", [3, 2])},
        attrs={"whole": True, "declaration": {"class": "Run", "decays": [0.1, 1]}, "none": None},
    )


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "run.zarr.zip"
    path.write_bytes(packed(dataset()))
    opened = open_archive(path)
    xr.testing.assert_identical(opened, dataset())
    xr.testing.assert_identical(store.open(path), opened)
    assert {name: opened[name].dtype for name in opened} == {
        name: dataset()[name].dtype for name in dataset()
    }
    assert archive_attrs(path) == dataset().attrs


def test_the_same_dataset_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = packed(dataset())
    (tmp_path / "run.zarr.zip").write_bytes(one)
    monkeypatch.setattr("time.time", lambda: 2e9)
    assert packed(open_archive(tmp_path / "run.zarr.zip")) == one


def test_other_readers_open_it_too(tmp_path: Path) -> None:
    """Also those that do not look into the root for the metadata of arrays."""
    (tmp_path / "run.zarr.zip").write_bytes(packed(dataset()))
    with zipfile.ZipFile(tmp_path / "run.zarr.zip") as archive:
        archive.extractall(tmp_path / "run")
    opened = xr.open_zarr(tmp_path / "run", consolidated=False, chunks=None)
    xr.testing.assert_equal(opened.load(), dataset())


def test_what_is_no_whole_archive_has_no_attributes(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no zip")
    assert archive_attrs(tmp_path / "text") == archive_attrs(tmp_path / "missing") == {}
    whole = packed(dataset())
    for size in (len(whole) // 2, len(whole) - 1):
        (tmp_path / "part").write_bytes(whole[:size])
        assert archive_attrs(tmp_path / "part") == {}
    with zipfile.ZipFile(tmp_path / "empty", "w") as archive:
        archive.writestr("zarr.json", "{")
    assert archive_attrs(tmp_path / "empty") == {}


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.zarr.zip"
    data = bytearray(packed(dataset()))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        chunk = next(entry for entry in archive.infolist() if "/c/" in entry.filename)
    data[chunk.header_offset + 30 + len(chunk.filename) + chunk.compress_size // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"run.zarr.zip is damaged: 'loss'.*Bad CRC-32.*; restore"):
        store.open(path)


def test_what_is_no_such_file(tmp_path: Path) -> None:
    (tmp_path / "text.zarr.zip").write_text("no zip")
    for name in ("text.zarr.zip", "nothing.zarr.zip"):
        with pytest.raises(ValueError, match=f"{name} is not a run in one file"):
            store.open(tmp_path / name)
