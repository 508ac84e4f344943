"""Two processes that train with DDP or FSDP2: activations and gradients are those of both."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import rankscope as rs

SCRIPT = Path(__file__).with_name("rank_of_two.py")


@pytest.mark.parametrize("way", ["all ranks", "first rank", "fsdp2"])
def test_activations_of_two_ranks(tmp_path: Path, way: str) -> None:
    commands = [[sys.executable, str(SCRIPT), str(rank), str(tmp_path), way] for rank in (0, 1)]
    ranks = [subprocess.Popen(c, stderr=subprocess.PIPE, text=True) for c in commands]
    errors = [rank.communicate(timeout=120)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], errors
    ds = rs.open(tmp_path / "run")
    seen = [torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in (0, 1)]
    assert list(ds.step.values) == [0, 2, 4]
    assert np.isfinite(ds.update_norm_ratio).all()
    for step in (0, 2, 4):
        outputs = [rank["outputs"][step] for rank in seen]
        X = torch.cat(outputs[:1] if way == "first rank" else outputs)
        here = ds.sel(step=step, activation="0")
        assert here.activation_tokens == len(X)
        G = torch.linalg.svdvals(seen[0]["gradients"][step].double())
        gradient = ds.gradient_leading_values.sel(step=step, matrix="0")[: len(G)]
        np.testing.assert_allclose(gradient, G, rtol=1e-4, atol=1e-6 * float(G[0]))
        S = torch.linalg.svdvals(X.double())
        measured = here.activation_singular_values.dropna("activation_k")[: len(S)]
        np.testing.assert_allclose(measured, S[: len(measured)], rtol=1e-5, atol=1e-6)
