from pathlib import Path

import pytest
import torch

from rankscope import Tracker
from rankscope.lab.running.integrity import check_runs
from rankscope.lab.training.checkpoint import Checkpoint


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of the laboratory that was interrupted: store, reference, checkpoint."""
    model = torch.nn.Linear(3, 2)
    with Tracker(model, tmp_path / "seed-0") as tracker:
        tracker.observe(0, loss=1.0)
    Checkpoint(tmp_path / "seed-0").save(1, model, torch.optim.SGD(model.parameters(), 0.1))
    return tmp_path / "seed-0"


def test_a_whole_run_has_no_damage(run: Path) -> None:
    (report,) = check_runs(run.parent)
    assert report.path == run and report.damage == [] and report.chunks > 5
    assert report.lines() == [f"{run}: {report.chunks} chunks read, no damage"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("seed-0/reference.safetensors", "reference.safetensors is damaged: checksum differs"),
        ("seed-0.checkpoint", "the checkpoint beside it is damaged: checksum differs"),
        ("seed-0/loss/c.0", "'loss' of step 0 is damaged (loss/c.0): checksum differs"),
    ],
)
def test_each_file_is_checked(run: Path, name: str, message: str) -> None:
    path = run.parent / name
    data = bytearray(path.read_bytes())
    data[-6] ^= 1
    if name.endswith("checkpoint"):
        data[-2] ^= 1
        data[-6] ^= 1
    path.write_bytes(data)
    (line,) = check_runs(run)[0].damage
    assert message in line


def test_lost_weights_are_named_once_a_snapshot_promised_them(run: Path) -> None:
    (run / "reference.safetensors").unlink()
    (line,) = check_runs(run)[0].damage
    assert "it has lost reference.safetensors" in line
    Tracker(torch.nn.Linear(3, 2), run.parent / "empty").close()
    Tracker(torch.nn.Linear(3, 2), run.parent / "none", reference=None).snapshot(0)
    assert all(report.damage == [] for report in check_runs(run.parent)[:2])


def test_damaged_metadata_are_one_line(run: Path) -> None:
    (run / "zarr.json").write_text("{")
    (run / "reference.safetensors").unlink()
    assert len(check_runs(run)[0].damage) == 1


def test_a_folder_without_runs_is_a_mistake(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(ValueError, match="holds no run; give a run, an archive or a folder"):
            check_runs(path)
