"""Scans on a GPU say what scans on the CPU say."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import rankscope as rs
from scanning.cases import saved

pytestmark = pytest.mark.gpu


def checkpoint(path: Path, seed: int) -> Path:
    """Write layers of several types: square, wide, tall, of low rank, zero, and one with a NaN."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    broken = normal(30, 40)
    broken[3, 4] = torch.nan
    tensors = {
        "square.weight": normal(300, 300),
        "wide.weight": normal(64, 500).bfloat16(),
        "tall.weight": normal(500, 64).double(),
        "low.weight": normal(200, 5) @ normal(5, 150),
        "kernel.weight": normal(32, 16, 3, 3).half(),
        "zero.weight": torch.zeros(20, 30),
        "broken.weight": broken,
    }
    return saved(path, tensors)


def assert_alike(one: pd.DataFrame, other: pd.DataFrame) -> None:
    assert one.index.tolist() == other.index.tolist()
    assert one.columns.tolist() == other.columns.tolist()
    numbers = one.select_dtypes("number").columns
    words = one.columns.difference(numbers)
    np.testing.assert_allclose(one[numbers], other[numbers], rtol=1e-6, atol=1e-9)
    assert one[words].equals(other[words])


@pytest.mark.parametrize("leading", [None, 4, 0])
@pytest.mark.parametrize("with_base", [False, True])
def test_a_gpu_measures_what_the_cpu_measures(
    tmp_path: Path, leading: int | None, with_base: bool
) -> None:
    tuned = checkpoint(tmp_path / "tuned.safetensors", 0)
    base = checkpoint(tmp_path / "base.safetensors", 1) if with_base else None
    on_cpu, on_gpu = (
        rs.scan(tuned, base=base, leading=leading, device=device) for device in ("cpu", "cuda")
    )
    assert_alike(on_gpu.table(), on_cpu.table())
    assert on_gpu.checkpoints[0].problems == on_cpu.checkpoints[0].problems
    assert torch.cuda.max_memory_allocated() > 0
