"""Used directions, differences and intruders against matrices that are multiplied out."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import rankscope as rs
from lora.adapter_cases import RANK, kohya_adapter, peft_adapter, peft_changes
from rankscope.lora import difference_of, intruders, resize, used_directions


def test_used_directions(tmp_path: Path) -> None:
    table = used_directions(peft_adapter(tmp_path / "a"))
    for module, change in peft_changes().items():
        S = torch.linalg.svdvals(change)[:RANK]
        row = table.loc[module]
        assert row["norm"] == pytest.approx(float(change.norm()))
        assert row["effective_rank"] == pytest.approx(float(rs.metrics.effective_rank(S)))
        assert row["stable_rank"] == pytest.approx(float(rs.metrics.stable_rank(S)))
        assert row["r90"] == int(rs.metrics.energy_rank(S, 0.9))
        assert row["r"] == RANK


def test_the_difference_of_two_adapters(tmp_path: Path) -> None:
    first = peft_adapter(tmp_path / "a")
    second = peft_adapter(tmp_path / "b", lora_alpha=16, use_rslora=True)
    resize(second, tmp_path / "c", max_rank=2)
    a, b = peft_changes(), peft_changes(scale=16 / RANK**0.5)
    for path, shrink in ((second, None), (tmp_path / "c", 2)):
        table = difference_of(first, path)
        for module in a:
            U, S, Vh = torch.linalg.svd(b[module], full_matrices=False)
            after = (U[:, :shrink] * S[:shrink]) @ Vh[:shrink]
            D, row = after - a[module], table.loc[module]
            assert row["norm"] == pytest.approx(float(D.norm()), rel=1e-5)
            cosine = float((after * a[module]).sum() / after.norm() / a[module].norm())
            assert row["cosine"] == pytest.approx(cosine, rel=1e-5)
            stable = float(D.norm() ** 2 / torch.linalg.matrix_norm(D, 2) ** 2)
            assert row["stable_rank"] == pytest.approx(stable, rel=1e-4)


def test_two_steps_of_one_training_that_hardly_differ(tmp_path: Path) -> None:
    """A relative change of 1e-12 survives, since the products are never subtracted."""
    first = peft_adapter(tmp_path / "a")
    second = peft_adapter(tmp_path / "b")
    file = second / "adapter_model.safetensors"
    tensors = {name: tensor.double() for name, tensor in load_file(file).items()}
    name = "base_model.model.model.layers.0.q.lora_B.weight"
    step = torch.zeros_like(tensors[name])
    step[3, 1] = 2.0**-40
    save_file({**tensors, name: tensors[name] + step}, file)
    row = difference_of(first, second).loc["model.layers.0.q"]
    A = tensors["base_model.model.model.layers.0.q.lora_A.weight"]
    moved = (tensors[name] + step - tensors[name])[3, 1]
    assert row["norm"] == pytest.approx(float(2 * moved * A[1].norm()), rel=1e-9)
    assert row["r99"] == 1


def test_a_module_that_one_adapter_lacks(tmp_path: Path) -> None:
    first = peft_adapter(tmp_path / "a")
    path, changes = kohya_adapter(tmp_path / "b.safetensors")
    table = difference_of(first, path)
    assert len(table) == 5 and table["cosine"].isna().all()
    for module, change in changes.items():
        assert table.loc[module, "norm"] == pytest.approx(float(change.norm()), rel=1e-6)
        assert table.loc[module, "norm_a"] == 0


def planted(tmp_path: Path, size: float) -> tuple[Path, Path]:
    """A base with values 40, 39, ... 1, and an adapter with one direction of value `size`.

    The new direction is orthogonal to all of the base's: rows and columns that the base lacks.
    """
    base = torch.diag(torch.arange(40.0, 0, -1))
    W = torch.zeros(50, 50)
    W[:40, :40] = base
    save_file({"fc.weight": W}, tmp_path / "base.safetensors")
    B, A = torch.zeros(50, 2), torch.zeros(2, 50)
    B[45, 0], A[0, 47] = size, 1.0
    folder = tmp_path / "a"
    folder.mkdir()
    tensors = {"base_model.model.fc.lora_A.weight": A, "base_model.model.fc.lora_B.weight": B}
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text('{"r": 2, "lora_alpha": 2, "peft_type": "LORA"}')
    return folder, tmp_path / "base.safetensors"


@pytest.mark.parametrize(
    ("size", "positions"), [(100.0, "1"), (38.5, "3"), (0.5, ""), (36.5, "5"), (31.5, "10")]
)
def test_a_planted_direction_is_an_intruder(tmp_path: Path, size: float, positions: str) -> None:
    row = intruders(*planted(tmp_path, size)).loc["fc"]
    assert (row["intruders"], row["positions"]) == (bool(positions), positions)
    assert row["lowest_cosine"] == pytest.approx(0 if positions else 1, abs=1e-5)


def test_what_intruders_refuse(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected top >= 1 and below"):
        intruders(*planted(tmp_path, 1.0), top=0)


@pytest.mark.parametrize("old", [True, False])
def test_an_old_direction_that_grew_is_no_intruder(tmp_path: Path, old: bool) -> None:
    """Algorithm 1 of shuttleworth2024 compares with all directions of the base, the last ones too.

    The adapter adds to direction 180 of 200, or to the sum of directions 170 to 179.
    """
    torch.manual_seed(0)
    U, V = (torch.linalg.qr(torch.randn(size, 200)).Q for size in (220, 200))
    W = (U * torch.linspace(2, 1, 200)) @ V.mT
    grown = U[:, 180] if old else U[:, 170:180].sum(1) / 10**0.5
    folder = tmp_path / "a"
    folder.mkdir()
    pair = {"A": V[:, 180][None], "B": 3 * grown[:, None]}
    names = {f"base_model.model.fc.lora_{s}.weight": f.contiguous() for s, f in pair.items()}
    save_file(names, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text('{"r": 1, "lora_alpha": 1, "peft_type": "LORA"}')
    save_file({"fc.weight": W.contiguous()}, tmp_path / "base.safetensors")
    row = intruders(folder, tmp_path / "base.safetensors").loc["fc"]
    U0 = torch.linalg.svd(W, full_matrices=False).U
    U1 = torch.linalg.svd(W + pair["B"] @ pair["A"], full_matrices=False).U
    cosines = (U1[:, :10].mT @ U0).abs().amax(1)
    assert row["intruders"] == int((cosines < 0.5).sum()) == (not old)
    assert row["lowest_cosine"] == pytest.approx(float(cosines.min()), abs=1e-3)
