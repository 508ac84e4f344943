"""The loops of the how-to on two processes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import rankscope as rs
from integrations.ranks import Ranks


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    ranks = Ranks("integrations.loops")
    yield ranks
    ranks.close()


def test_accelerate(tmp_path: Path, ranks: Ranks) -> None:
    assert ranks.train("accelerate_ddp", tmp_path) == ["DistributedDataParallel"] * 2
    for name, file in (("run", "trained.pt"), ("average", "averaged.pt")):
        run = rs.open(tmp_path / name)
        assert run.step.values.tolist() == [0, 1, 2, 3, 4]
        weights = torch.load(tmp_path / file, weights_only=True)
        for matrix in ("0", "2"):
            expected = torch.linalg.svdvals(weights[f"{matrix}.weight"].double())
            stored = run.singular_values.isel(step=-1).sel(matrix=matrix)
            np.testing.assert_allclose(stored[: len(expected)], expected, rtol=1e-4)


def test_torchtitan(tmp_path: Path, ranks: Ranks) -> None:
    assert ranks.train("titan", tmp_path) == ["5", "None"]
    run, dropped = rs.open(tmp_path / "run"), rs.open(tmp_path / "run/dropped/1")
    assert run.step.values.tolist() == [0, 1, 2, 3, 4, 5]
    assert dropped.step.values.tolist() == [0, 1, 2, 3, 4]
    # The same data from the same checkpoint, so the steps taken again are the same.
    for name in ("singular_values", "grad_norm"):
        np.testing.assert_allclose(
            run[name].sel(step=slice(3)), dropped[name].sel(step=slice(3)), rtol=1e-5
        )
