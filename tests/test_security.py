"""SECURITY.md's promises: nothing that is read from a file is executed; a bomb costs a sentence."""

import json
import os
import pickle
import time
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numcodecs.zstd import Zstd

import rankscope
from known_run import create, write
from rankscope.store.check import check_run
from rankscope.store.chunk import Place, with_checksum
from rankscope.store.metadata import sealed


class Trap:
    """An object whose unpickling creates a file."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Path]]:
        return Path.touch, (self.proof,)


def write_pickled_run(folder: Path, trap: Trap) -> None:
    """A Zarr v2 group whose only array is a pickle.

    zarr takes the type of the array from the first filter and decodes with all of them.
    """
    group = {"zarr_format": 2}
    attributes = {"rankscope_schema": 1}
    array = {
        "zarr_format": 2,
        "shape": [1],
        "chunks": [1],
        "dtype": "|O",
        "compressor": None,
        "fill_value": None,
        "order": "C",
        "filters": [{"id": "vlen-utf8"}, {"id": "pickle"}],
    }
    files = {
        ".zgroup": group,
        ".zattrs": attributes,
        "step/.zarray": array,
        "step/.zattrs": {"_ARRAY_DIMENSIONS": ["step"]},
    }
    (folder / "step").mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    consolidated = {"zarr_consolidated_format": 1, "metadata": files}
    (folder / ".zmetadata").write_text(json.dumps(consolidated))
    (folder / "step" / "0").write_bytes(pickle.dumps(trap))


def test_trap_works(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Trap(tmp_path / "proof")))
    assert (tmp_path / "proof").exists()


def test_opening_a_run_executes_nothing(tmp_path: Path) -> None:
    write_pickled_run(tmp_path / "run", Trap(tmp_path / "proof"))
    with pytest.raises(ValueError, match="is not a run"):
        rankscope.open(tmp_path / "run").load()
    with zipfile.ZipFile(tmp_path / "run.zarr.zip", "w") as archive:
        for file in (tmp_path / "run").rglob("*"):
            archive.write(file, file.relative_to(tmp_path / "run"))
    with pytest.raises(ValueError, match=r"run\.zarr\.zip is damaged"):
        rankscope.open(tmp_path / "run.zarr.zip")
    assert not (tmp_path / "proof").exists()


def test_loading_reference_weights_executes_nothing(tmp_path: Path) -> None:
    checkpoint = tmp_path / "weights.pt"
    torch.save({"weight": Trap(tmp_path / "proof")}, checkpoint)
    with pytest.raises(ValueError, match="cannot be read as a checkpoint"):
        rankscope.Tracker(torch.nn.Linear(2, 2), tmp_path / "run", reference=checkpoint)
    assert not (tmp_path / "proof").exists()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with create(tmp_path / "run") as writer:
        write(writer, range(3))
    return tmp_path / "run"


def forge(run: Path, change: Callable[[Any], None]) -> None:
    """Change the metadata of a run, and give them the checksum that fits."""
    root = json.loads((run / "zarr.json").read_text())
    del root["consolidated_metadata"]["checksum"]
    change(root)
    (run / "zarr.json").write_bytes(sealed(root))


def arrays(root: Any) -> Any:
    return root["consolidated_metadata"]["metadata"]


@pytest.mark.parametrize(
    "change",
    [
        lambda root: root.update(zarr_format=2),
        lambda root: arrays(root)["loss"].update(zarr_format=2),
        lambda root: arrays(root)["loss"].update(data_type="object"),
        lambda root: arrays(root)["loss"]["codecs"].append({"name": "numcodecs.pickle"}),
        lambda root: arrays(root)["loss"].update(codecs=[{"name": "numcodecs.pickle"}]),
        lambda root: arrays(root)["loss"].update(storage_transformers=[{"name": "x"}]),
        lambda root: arrays(root).update({"../loss": arrays(root)["loss"]}),
        lambda root: arrays(root)["loss"].update(shape="3"),
        lambda root: arrays(root).update(loss=[]),
        lambda root: root.update(attributes=None),
        lambda root: root["attributes"].update(rankscope_schema="2"),
        lambda root: root["attributes"].update(dropped="x"),
    ],
)
def test_only_what_rankscope_writes_is_read(run: Path, change: Callable[[Any], None]) -> None:
    forge(run, change)
    with pytest.raises(ValueError, match=r"run is not a run, or damaged: .*; restore") as refusal:
        rankscope.open(run)
    assert "\n" not in str(refusal.value)
    assert check_run(run).damage


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize("disguise", [pipe, device, Path.mkdir, loop])
@pytest.mark.parametrize("name", ["zarr.json", "loss/c.0", "step/c.0"])
def test_what_is_no_file_is_not_waited_for(
    run: Path, name: str, disguise: Callable[[Path], None]
) -> None:
    (run / name).unlink()
    disguise(run / name)
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"not a regular file|cannot be read"):
        rankscope.open(run).load()
    assert check_run(run).damage
    assert time.monotonic() - began < 5


def large_chunk(run: Path) -> None:
    """32 kB that unpack to 1 GB, with the checksum and the place that fit."""
    packed = bytes(Zstd(level=19).encode(np.zeros(2**24, np.uint8)))  # stands for a larger one
    frame = packed + Place("loss", (0,), 3).frame()
    (run / "loss" / "c.0").write_bytes(with_checksum(frame))


def long_axis(run: Path) -> None:
    def change(root: Any) -> None:
        for array in arrays(root).values():
            if array["dimension_names"][0] == "step":
                array["shape"][0] = 10**10

    forge(run, change)


def long_chunk(run: Path) -> None:
    def change(root: Any) -> None:
        long = arrays(root)["loss"]
        long["chunk_grid"]["configuration"]["chunk_shape"] = [10**10]

    forge(run, change)


def many_arrays(run: Path) -> None:
    forge(
        run,
        lambda root: arrays(root).update(
            {f"x{number}": arrays(root)["loss"] for number in range(20_000)}
        ),
    )


def deep_attributes(run: Path) -> None:
    text = (run / "zarr.json").read_text()
    (run / "zarr.json").write_text(text[:-2] + ', "x": ' + "[" * 200_000 + "]" * 200_000 + "}}")


def large_root(run: Path) -> None:
    (run / "zarr.json").write_bytes(b" " * (2**25 + 1))


@pytest.mark.parametrize(
    "bomb", [large_chunk, long_axis, long_chunk, many_arrays, deep_attributes, large_root]
)
def test_a_bomb_costs_a_sentence(run: Path, bomb: Callable[[Path], None]) -> None:
    bomb(run)
    began = time.monotonic()
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"damaged: .*; restore") as refusal:
        rankscope.open(run).load()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "\n" not in str(refusal.value)
    assert peak < 200e6
    assert time.monotonic() - began < 30


def test_a_zip_bomb_costs_a_sentence(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.zarr.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in run.rglob("*"):
            if file.is_file():
                archive.write(file, file.relative_to(run))
        archive.getinfo("zarr.json")
    rankscope.open(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in run.rglob("*"):
            if file.is_file() and file != run / "loss" / "c.0":
                archive.write(file, file.relative_to(run))
        archive.writestr("loss/c.0", bytes(2**24))
    with pytest.raises(ValueError, match=r"'loss'.*it unpacks to 16777216 bytes, more than"):
        rankscope.open(path)
