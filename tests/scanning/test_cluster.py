"""A scan on a Ray cluster gives what a scan here gives."""

from pathlib import Path

import numpy as np
import pytest
import torch

from rankscope.scanning import portions
from rankscope.scanning.command import run_scan
from scanning.cases import saved, series, weights

pytest.importorskip("ray")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_result_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "PORTION", 1000)  # several portions of one checkpoint
    states = series(tmp_path / "series", 5)
    broken = {**states[20], "1.weight": torch.full((24, 16), torch.nan)}
    saved(tmp_path / "series" / "step20.safetensors", broken)
    (tmp_path / "series" / "step30.safetensors").write_bytes(b"\x10")
    base = str(saved(tmp_path / "base.pt", weights(3)))
    paths = [str(tmp_path / "series")]
    here = run_scan(paths, base=base)
    there = run_scan(paths, base=base, out=tmp_path / "run", on="ray")
    assert here.problems == there.problems and here.notes == there.notes
    for one, other in zip(here.checkpoints, there.checkpoints, strict=True):
        assert one.step == other.step
        for a, b in zip(one.matrices, other.matrices, strict=True):
            np.testing.assert_array_equal(a.S, b.S)
            np.testing.assert_array_equal(a.change, b.change)
            assert a.name == b.name and (a.norm == b.norm or np.isnan(a.norm))
