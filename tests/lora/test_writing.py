"""Files that are whole or not there, in the format that the safetensors library reads."""

import os
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from rankscope.checkpoints.tensor_file import NAMES, bytes_of
from rankscope.lora.writing import file_in_place, folder_in_place, write_safetensors


def test_the_library_reads_what_was_written(tmp_path: Path) -> None:
    tensors = {str(dtype): torch.arange(6).reshape(2, 3).to(dtype) for dtype in NAMES}
    tensors |= {
        "scalar": torch.tensor(1.5),
        "none": torch.ones(0, 3),
        "strided": torch.eye(3)[:, 1],
    }
    layout = {name: (tuple(t.shape), t.dtype) for name, t in tensors.items()}
    path = tmp_path / "a.safetensors"
    write_safetensors(path, layout, tensors.__getitem__)
    loaded = load_file(path)
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype and loaded[name].shape == tensor.shape
        assert bytes(bytes_of(loaded[name])) == bytes(bytes_of(tensor))
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt"}


@pytest.mark.parametrize("in_place", [file_in_place, folder_in_place])
def test_what_is_not_finished_never_appears(tmp_path: Path, in_place: object) -> None:
    target = tmp_path / "out"
    with pytest.raises(RuntimeError, match="power"), in_place(target, overwrite=False) as path:  # type: ignore[operator]
        (path / "a" if path.is_dir() else path).write_text("half")
        raise RuntimeError("power")
    assert list(tmp_path.iterdir()) == []


def test_a_good_file_outlives_a_failed_second_try(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with folder_in_place(target, overwrite=False) as path:
        (path / "a").write_text("good")
        (path / "b").write_text("mine")
    with pytest.raises(RuntimeError), folder_in_place(target, overwrite=True) as path:
        (path / "a").write_text("bad")
        raise RuntimeError
    assert (target / "a").read_text() == "good"
    with folder_in_place(target, overwrite=True) as path:
        (path / "a").write_text("better")
    assert (target / "a").read_text() == "better" and (target / "b").read_text() == "mine"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("in_place", [file_in_place, folder_in_place])
def test_nothing_is_overwritten_unasked(tmp_path: Path, in_place: object) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "a").touch()
    with pytest.raises(ValueError, match="exists; choose"), in_place(taken, overwrite=False):  # type: ignore[operator]
        pass


def test_permissions_are_the_usual_ones(tmp_path: Path) -> None:
    with file_in_place(tmp_path / "a", overwrite=False) as path:
        path.touch()
    with folder_in_place(tmp_path / "b", overwrite=False):
        pass
    mask = os.umask(0)
    os.umask(mask)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o666 & ~mask
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o777 & ~mask
