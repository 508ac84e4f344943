"""Ranks of changes over a series whose directions are known."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from lora.adapter_cases import peft_adapter, peft_changes
from rankscope.lora import growth

STEPS = [0, 10, 20, 100]


def series(folder: Path) -> Path:
    """Write checkpoints; the change at the i-th has i directions of equal value."""
    torch.manual_seed(0)
    W0 = torch.randn(12, 9, dtype=torch.float64)
    Q = torch.linalg.qr(torch.randn(12, 9, dtype=torch.float64)).Q
    folder.mkdir()
    for i, step in enumerate(STEPS):
        W = W0 + 2.0 * Q[:, :i] @ torch.eye(9, dtype=torch.float64)[:i]
        save_file(
            {"fc.weight": W, "norm.weight": torch.ones(3)}, folder / f"step{step}.safetensors"
        )
    return folder


def test_a_direction_more_at_every_step(tmp_path: Path) -> None:
    table = growth(series(tmp_path / "run"))
    assert list(table["step"]) == STEPS[1:] and set(table["matrix"]) == {"fc"}
    for column in ("stable_rank", "effective_rank"):
        assert list(table[column]) == pytest.approx([1, 2, 3])
    assert list(table["r99"]) == [1, 2, 3]
    assert list(table["norm"]) == pytest.approx([2 * i**0.5 for i in (1, 2, 3)])
    assert table.attrs["problems"] == table.attrs["notes"] == []


def test_another_base(tmp_path: Path) -> None:
    folder = series(tmp_path / "run")
    table = growth(folder, base=folder / "step20.safetensors")
    assert list(table["step"]) == [0, 10, 100]
    assert list(table["stable_rank"]) == pytest.approx([2, 1, 1])


def test_a_damaged_checkpoint_is_named_and_left_out(tmp_path: Path) -> None:
    folder = series(tmp_path / "run")
    data = (folder / "step10.safetensors").read_bytes()
    (folder / "step10.safetensors").write_bytes(data[:-50])
    table = growth(folder)
    assert list(table["step"]) == [20, 100]
    assert len(table.attrs["problems"]) == 1 and "step10" in table.attrs["problems"][0]


def test_a_series_of_adapters(tmp_path: Path) -> None:
    for step in (5, 10):
        peft_adapter(tmp_path / f"checkpoint-{step}", lora_alpha=step)
    table = growth(tmp_path)
    for step in (5, 10):
        rows = table[table["step"] == step].set_index("matrix")
        for module, change in peft_changes(scale=step / 4).items():
            assert rows.loc[module, "norm"] == pytest.approx(float(change.norm()))


def test_adapters_have_no_base(tmp_path: Path) -> None:
    for step in (5, 10):
        peft_adapter(tmp_path / f"checkpoint-{step}")
    save_file({"fc.weight": torch.ones(3, 3)}, tmp_path / "base.safetensors")
    with pytest.raises(ValueError, match=r"checkpoint-5 holds an adapter, .* leave out the base"):
        growth(tmp_path, base=tmp_path / "base.safetensors", pattern="checkpoint-*")


def test_nothing_to_measure(tmp_path: Path) -> None:
    save_file({"fc.weight": torch.ones(3, 3)}, tmp_path / "step1.safetensors")
    save_file({"fc.weight": torch.ones(3, 3)}, tmp_path / "step2.safetensors")
    with pytest.raises(ValueError, match="no change was measured"):
        growth(tmp_path)
