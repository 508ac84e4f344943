"""SECURITY.md's promise: nothing that is read from a file is executed."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import rankscope


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
    with pytest.raises(Exception, match="can execute arbitrary code"):
        rankscope.open(tmp_path / "run").load()
    assert not (tmp_path / "proof").exists()


def test_loading_reference_weights_executes_nothing(tmp_path: Path) -> None:
    checkpoint = tmp_path / "weights.pt"
    torch.save({"weight": Trap(tmp_path / "proof")}, checkpoint)
    with pytest.raises(ValueError, match="cannot be read as a checkpoint"):
        rankscope.Tracker(torch.nn.Linear(2, 2), tmp_path / "run", reference=checkpoint)
    assert not (tmp_path / "proof").exists()
