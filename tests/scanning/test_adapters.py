"""Scans of adapters: changes scale * B A against SVDs of what they multiply out to."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

import rankscope as rs
from lora.adapter_cases import (
    LAYERS,
    RANK,
    kohya_adapter,
    peft_adapter,
    peft_changes,
    peft_config,
    peft_tensors,
    write_peft,
)
from rankscope.scanning.adapters import open_scanned
from rankscope.scanning.command import run_scan
from scanning.cases import saved, weights


def assert_spectra(scan: rs.scanning.Scan, changes: dict[str, Tensor]) -> None:
    matrices = {matrix.name: matrix for matrix in scan.checkpoints[-1].matrices}
    assert matrices.keys() >= changes.keys()
    for name, change in changes.items():
        S = np.linalg.svd(change.numpy(), compute_uv=False)
        np.testing.assert_allclose(matrices[name].S, S, rtol=1e-12, atol=1e-12 * S[0])
        assert matrices[name].norm == pytest.approx(float(change.norm()), rel=1e-12)
        assert matrices[name].kind == "lora"


@pytest.mark.parametrize(
    ("config", "scale"),
    [({}, 8 / RANK), ({"use_rslora": True}, 8 / RANK**0.5), ({"lora_alpha": 1}, 1 / RANK)],
)
def test_an_adapter_is_its_changes(tmp_path: Path, config: dict[str, Any], scale: float) -> None:
    scan = rs.scan(peft_adapter(tmp_path / "a", **config))
    assert_spectra(scan, peft_changes(scale=scale))
    assert scan.coverage.summary == "3 matrices of 6 tensors: 6 read"
    assert "directions are zero" not in "".join(scan.table()["stands_out"])
    assert (scan.table()["r99"] <= RANK).all()


def test_low_rank_is_nothing_that_stands_out_in_an_adapter(tmp_path: Path) -> None:
    factors = {}
    for layer in range(3):
        module = f"base_model.model.layers.{layer}"
        factors[f"{module}.lora_A.weight"] = torch.randn(1, 20)
        factors[f"{module}.lora_B.weight"] = torch.randn(16, 1)
    scan = rs.scan(write_peft(tmp_path / "a", factors, {**peft_config(), "r": 1}))
    assert (scan.table()["r99"] == 1).all()
    assert not scan.table()["stands_out"].any()


def test_a_file_of_an_adapter_is_read_as_its_folder(tmp_path: Path) -> None:
    folder = peft_adapter(tmp_path / "a")
    assert_spectra(rs.scan(folder / "adapter_model.safetensors"), peft_changes())


def test_kohya_names(tmp_path: Path) -> None:
    path, changes = kohya_adapter(tmp_path / "x.safetensors")
    assert_spectra(rs.scan(path), changes)


def test_modules_that_are_saved_whole_are_scanned_too(tmp_path: Path) -> None:
    table = {"base_model.model.embed_tokens.weight": torch.randn(30, 8)}
    scan = rs.scan(write_peft(tmp_path / "a", {**peft_tensors(), **table}, peft_config()))
    assert_spectra(scan, peft_changes())
    assert scan.table().loc["base_model.model.embed_tokens", "kind"] == "embedding"


def test_patterns_choose_modules(tmp_path: Path) -> None:
    scan = rs.scan(peft_adapter(tmp_path / "a"), include="*.q", leading=2)
    assert [matrix.name for matrix in scan.checkpoints[0].matrices] == list(LAYERS)[:2]
    assert all(len(matrix.S) == 2 for matrix in scan.checkpoints[0].matrices)


def test_a_series_of_adapters_is_a_run(tmp_path: Path) -> None:
    for step in (10, 20):
        peft_adapter(tmp_path / "series" / f"checkpoint-{step}", lora_alpha=step)
    for _ in range(2):  # the second time everything is stored
        scan = run_scan([str(tmp_path / "series")], out=tmp_path / "run")
        norms = scan.table().set_index("step", append=True)["norm"].unstack()
        np.testing.assert_allclose(norms[20], 2 * norms[10], rtol=1e-12)
    stored = rs.open(tmp_path / "run")["norm"].to_pandas()
    np.testing.assert_allclose(stored.loc[20, list(LAYERS)], norms.loc[list(LAYERS), 20])


def test_an_adapter_that_is_no_product_is_scanned_by_factors(tmp_path: Path) -> None:
    scan = rs.scan(peft_adapter(tmp_path / "a", use_dora=True))
    (problem,) = scan.problems
    assert "factors are scanned one by one" in problem and "DoRA" in problem
    assert len(scan.table()) == 6


def test_a_model_with_an_adapter_inside_is_scanned_as_it_is_stored(tmp_path: Path) -> None:
    save_file(peft_tensors(), tmp_path / "model.safetensors")  # no scale is stored
    scan = rs.scan(tmp_path / "model.safetensors")
    assert len(scan.table()) == 6 and not scan.problems


def test_an_adapter_has_no_base(tmp_path: Path) -> None:
    base = saved(tmp_path / "base.safetensors", weights())
    with pytest.raises(ValueError, match="a change already; scan it alone, or type rankscope lora"):
        rs.scan(peft_adapter(tmp_path / "a"), base=base)


def test_a_factor_that_is_not_finite_is_named_and_the_rest_is_scanned(tmp_path: Path) -> None:
    tensors = peft_tensors()
    tensors["base_model.model.model.layers.1.q.lora_A.weight"][0, 0] = torch.nan
    scan = rs.scan(write_peft(tmp_path / "a", tensors, peft_config()))
    (problem,) = scan.problems
    assert "holds NaN" in problem and len(scan.table()) == 2


def test_changes_can_be_read_as_tensors(tmp_path: Path) -> None:
    checkpoint = open_scanned(peft_adapter(tmp_path / "a"))
    for module, change in peft_changes().items():
        name = f"base_model.model.{module}.lora_B.weight"
        torch.testing.assert_close(checkpoint.read(name), change)
        torch.testing.assert_close(checkpoint.read_rows(name, 2, 5), change[2:5])
