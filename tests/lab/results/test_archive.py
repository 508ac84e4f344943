import zipfile
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from rankscope.lab.results.archive import (
    archive_attrs,
    archive_path,
    digest,
    is_results,
    open_archive,
    write_archive,
)


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
    path = archive_path(tmp_path, "paper/experiment", "net/decay-0", 3)
    assert path == tmp_path / "paper/experiment/net/decay-0/seed-3.zarr.zip"
    write_archive(dataset(), path)
    found = open_archive(path)
    xr.testing.assert_identical(found, dataset())
    assert {name: found[name].dtype for name in found} == {
        name: dataset()[name].dtype for name in dataset()
    }
    assert archive_attrs(path) == dataset().attrs
    assert [p.name for p in path.parent.iterdir()] == ["seed-3.zarr.zip"]


def test_the_same_dataset_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_archive(dataset(), tmp_path / "one.zarr.zip")
    monkeypatch.setattr("time.time", lambda: 2e9)
    write_archive(open_archive(tmp_path / "one.zarr.zip"), tmp_path / "two.zarr.zip")
    assert digest(tmp_path / "one.zarr.zip") == digest(tmp_path / "two.zarr.zip")


def test_other_readers_open_it_too(tmp_path: Path) -> None:
    """Also those that do not look into the root for the metadata of arrays."""
    write_archive(dataset(), tmp_path / "run.zarr.zip")
    with zipfile.ZipFile(tmp_path / "run.zarr.zip") as archive:
        archive.extractall(tmp_path / "run")
    found = xr.open_zarr(tmp_path / "run", consolidated=False, chunks=None)
    xr.testing.assert_equal(found.load(), dataset())


def test_what_is_no_archive_has_no_attributes(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no zip")
    assert archive_attrs(tmp_path / "text") == archive_attrs(tmp_path / "missing") == {}


def test_results_are_told_from_runs_by_their_ledger(tmp_path: Path) -> None:
    assert not is_results(tmp_path)
    (tmp_path / "ledger.json").write_text("{}")
    assert is_results(tmp_path)
