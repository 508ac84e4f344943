"""Checkpoints that are used, and those that are ignored."""

from pathlib import Path

import pytest
import torch
from torch import nn

from rankscope.lab.training.checkpoint import Checkpoint
from rankscope.tracker import Every


def trained() -> tuple[nn.Linear, torch.optim.Optimizer]:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_saved_state_comes_back_into_its_own_store(tmp_path: Path) -> None:
    model, optimizer = trained()
    checkpoint = Checkpoint(tmp_path / "run")
    checkpoint.save(7, model, optimizer)
    other, its_optimizer = trained()
    before = other.weight.clone()
    assert checkpoint.load(other, its_optimizer, snapshots=Every(1), stored=[0, 3]) == 0
    assert torch.equal(other.weight, before)
    assert checkpoint.load(other, its_optimizer, snapshots=Every(1), stored=[0, 7]) == 7
    assert torch.equal(other.weight, model.weight)
    assert torch.equal(
        its_optimizer.state[other.weight]["exp_avg"], optimizer.state[model.weight]["exp_avg"]
    )


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 half a file"])
def test_one_that_cannot_be_read_is_not_used(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.checkpoint").write_bytes(content)
    with pytest.warns(UserWarning, match=r"run.checkpoint is damaged .*; the run starts again"):
        assert Checkpoint(tmp_path / "run").load(*trained(), snapshots=Every(1), stored=[0]) == 0


@pytest.mark.parametrize("place", [50, 1000, -30, -10, -1])
def test_a_flipped_byte_is_noticed(tmp_path: Path, place: int) -> None:
    checkpoint = Checkpoint(tmp_path / "run")
    checkpoint.save(7, *trained())
    assert checkpoint.damage() is None
    data = bytearray((tmp_path / "run.checkpoint").read_bytes())
    data[place] ^= 1
    (tmp_path / "run.checkpoint").write_bytes(data)
    model, optimizer = trained()
    before = model.weight.clone()
    if place == -10:  # then it looks like one without a checksum, and is whole
        assert checkpoint.load(model, optimizer, snapshots=Every(1), stored=[7]) == 7
        return
    with pytest.warns(UserWarning, match="checksum differs"):
        assert checkpoint.load(model, optimizer, snapshots=Every(1), stored=[7]) == 0
    assert torch.equal(model.weight, before)
    assert checkpoint.damage() == "checksum differs"


def test_one_of_an_earlier_version_is_used(tmp_path: Path) -> None:
    """It has no checksum."""
    model, optimizer = trained()
    state = {"step": 7, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, tmp_path / "run.checkpoint")
    other, its_optimizer = trained()
    checkpoint = Checkpoint(tmp_path / "run")
    assert checkpoint.load(other, its_optimizer, snapshots=Every(1), stored=[7]) == 7
    assert torch.equal(other.weight, model.weight)


def test_a_failed_save_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Checkpoint(tmp_path / "run").save(7, *trained())

    def full(state: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space"):
        Checkpoint(tmp_path / "run").save(8, *trained())
    assert [path.name for path in tmp_path.iterdir()] == ["run.checkpoint"]
    assert Checkpoint(tmp_path / "run").load(*trained(), snapshots=Every(1), stored=[7]) == 7


def test_a_step_between_snapshots_needs_the_one_before(tmp_path: Path) -> None:
    Checkpoint(tmp_path / "run").save(7, *trained())
    firsts = [
        Checkpoint(tmp_path / "run").load(*trained(), snapshots=Every(5), stored=stored)
        for stored in ([0], [0, 5], [0, 5, 10])
    ]
    assert firsts == [0, 7, 7]
