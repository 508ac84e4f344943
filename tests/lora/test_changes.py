"""Checkpoints side by side: names, wrappers, formats, and what cannot be compared."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from lora.adapter_cases import peft_adapter
from rankscope.lora import changes
from rankscope.lora.changes import decomposed, open_changes
from rankscope.matrices import difference

Pair = tuple[Path, Path]


def checkpoints(folder: Path, base: dict[str, Tensor], tuned: dict[str, Tensor]) -> Pair:
    for name, tensors in (("base", base), ("tuned", tuned)):
        save_file(tensors, folder / f"{name}.safetensors")
    return folder / "base.safetensors", folder / "tuned.safetensors"


def weights(prefix: str = "") -> dict[str, Tensor]:
    torch.manual_seed(0)
    return {f"{prefix}h.{i}.fc.weight": torch.randn(6, 4) for i in range(2)}


@pytest.mark.parametrize("before", ["", "transformer.", "module.", "_orig_mod."])
@pytest.mark.parametrize("after", ["", "transformer.", "module."])
def test_prefixes_and_wrappers(tmp_path: Path, before: str, after: str) -> None:
    tuned = {name: tensor + torch.ones(6, 1) for name, tensor in weights(after).items()}
    paths = checkpoints(tmp_path, weights(before), tuned)
    spectra = changes(*paths)
    prefix = after.removeprefix("module.")
    assert set(spectra) == {f"{prefix}h.0.fc", f"{prefix}h.1.fc"}
    for spectrum in spectra.values():
        assert spectrum.norm == pytest.approx(24**0.5, rel=1e-5)
        assert spectrum.energy_rank(0.99) == 1


def test_tensors_that_cannot_be_compared_are_named(tmp_path: Path) -> None:
    base = weights() | {"old.weight": torch.ones(2, 2), "wte.weight": torch.ones(9, 4)}
    tuned = weights() | {"new.weight": torch.ones(2, 2), "wte.weight": torch.ones(10, 4)}
    both = open_changes(*checkpoints(tmp_path, base, tuned))
    assert set(both.names) == set(weights())
    assert both.left_out["old.weight"] == "not in the tuned checkpoint"
    assert both.left_out["new.weight"] == "not in the base"
    assert both.left_out["wte.weight"].startswith("its shape changed from (9, 4) to (10, 4)")


def test_differences_are_rounded_once() -> None:
    """In float32 the difference of two near numbers is exact, in bfloat16 it would not be."""
    torch.manual_seed(0)
    before = torch.randn(50, 40).bfloat16()
    after = (before.float() * (1 + 0.1 * torch.rand(50, 40))).bfloat16()
    exact = after.double() - before.double()
    assert torch.equal(difference(after, before).double(), exact)
    near = before.float() * (1 + 1e-6)
    assert torch.equal(difference(near, before.float()).double(), near.double() - before.double())
    assert difference(after, before.double()).dtype == torch.float64


def test_another_format_alone_is_rounding(tmp_path: Path) -> None:
    torch.manual_seed(0)
    base = {"fc.weight": torch.randn(100, 80)}
    paths = checkpoints(tmp_path, base, {"fc.weight": base["fc.weight"].bfloat16()})
    assert changes(*paths)["fc"].signal == 0


@pytest.mark.parametrize(("dtype", "factor"), [(torch.bfloat16, 2.5), (torch.float32, 0.1)])
@pytest.mark.parametrize("size", [64, 256])
def test_directions_above_rounding_are_counted(
    tmp_path: Path, size: int, dtype: torch.dtype, factor: float
) -> None:
    """A training that starts from stored bfloat16 weights has no rounding of the base in it."""
    torch.manual_seed(0)
    base = (0.02 * torch.randn(size, size)).bfloat16()
    U, V = (torch.linalg.qr(torch.randn(size, 12)).Q for _ in range(2))
    rounding = 0.02 * 2.0**-8 * 2 * size**0.5 / 12**0.5
    change = factor * rounding * (U * torch.linspace(2, 1, 12)) @ V.mT
    tuned = (base + change).to(dtype)
    paths = checkpoints(tmp_path, {"fc.weight": base}, {"fc.weight": tuned})
    assert changes(*paths)["fc"].signal == 12


def test_experts_are_one_matrix_each(tmp_path: Path) -> None:
    torch.manual_seed(0)
    base = {"mlp.experts.gate_up": torch.randn(3, 8, 5)}
    change = torch.stack([torch.zeros(8, 5), torch.randn(8, 5), torch.randn(8, 5)])
    tuned = {"mlp.experts.gate_up": base["mlp.experts.gate_up"] + change}
    spectra = changes(*checkpoints(tmp_path, base, tuned))
    assert list(spectra) == [f"mlp.experts.gate_up.e{i}" for i in range(3)]
    for spectrum, dW in zip(spectra.values(), change, strict=True):
        assert spectrum.norm == pytest.approx(float(dW.norm()), rel=1e-5)


def test_the_leading_part_of_a_large_change_is_as_good_as_the_full_svd(tmp_path: Path) -> None:
    """Within 1e-6 of the least error, and its stated error is the true one."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    base = {"fc.weight": normal(900, 700)}
    dW = 0.1 * normal(900, 20) @ normal(20, 700) + 0.3 * normal(900, 700)
    paths = checkpoints(tmp_path, base, {"fc.weight": base["fc.weight"] + dW})
    before, after = open_changes(*paths).pair("fc.weight")
    part = decomposed(before, after, kind="linear", leading=32)
    exact = after.double() - before.double()
    S = torch.linalg.svdvals(exact)
    least = float(S[32:].norm())
    error = float((exact - (part.U * part.spectrum.S) @ part.Vh).norm())
    assert error <= least * (1 + 1e-6)
    assert part.spectrum.rest == pytest.approx(error, rel=1e-5)
    assert part.spectrum.norm == pytest.approx(float(S.norm()), rel=1e-6)
    assert part.spectrum.signal == 20


def test_one_tensor_of_each_is_in_memory(tmp_path: Path) -> None:
    tuned = {name: tensor + 1 for name, tensor in weights().items()}
    both = open_changes(*checkpoints(tmp_path, weights(), tuned))
    for name in both.names:
        both.pair(name)
        assert list(both._latest) == [name]


def test_a_shard_that_is_missing_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "base"
    folder.mkdir()
    for number, (name, tensor) in enumerate(weights().items(), start=1):
        save_file({name: tensor}, folder / f"model-0000{number}-of-00003.safetensors")
    save_file(weights(), tmp_path / "tuned.safetensors")
    with pytest.raises(ValueError, match="1 of 3 shards are missing: 3"):
        changes(folder, tmp_path / "tuned.safetensors")


def test_an_adapter_is_no_model(tmp_path: Path) -> None:
    adapter = peft_adapter(tmp_path / "a")
    save_file({"model.layers.0.q.weight": torch.ones(12, 8)}, tmp_path / "base.safetensors")
    with pytest.raises(ValueError, match=r"holds an adapter, .*rs\.lora\.used_directions"):
        open_changes(tmp_path / "base.safetensors", adapter)
