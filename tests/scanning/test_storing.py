"""Scans as runs of the store: what other tools read, and what an interruption leaves."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import rankscope as rs
from rankscope.scanning import scanner
from rankscope.scanning.command import run_scan
from scanning.cases import saved, series, weights


def test_a_series_is_a_run(tmp_path: Path) -> None:
    states = series(tmp_path / "series")
    base = str(saved(tmp_path / "base.safetensors", weights(0)))
    result = run_scan([str(tmp_path / "series")], base=base, out=tmp_path / "run")
    run = rs.open(tmp_path / "run")
    assert run["step"].to_numpy().tolist() == sorted(states)
    assert run["matrix"].to_numpy().tolist() == ["0", "1", "3"]
    for position, checkpoint in enumerate(result.checkpoints):
        for number, matrix in enumerate(checkpoint.matrices):
            row = run.isel(step=position, matrix=number)
            k = len(matrix.S)
            np.testing.assert_allclose(row["singular_values"].to_numpy()[:k], matrix.S, rtol=1e-6)
            assert row["norm"] == matrix.norm and row["change_norm"] == matrix.change_norm
    ranks = run.rankscope.effective_rank().sel(step=30).to_numpy()
    expected = result.checkpoints[-1].matrices
    np.testing.assert_allclose(
        ranks, [float(rs.metrics.effective_rank(matrix.S)) for matrix in expected], rtol=1e-5
    )
    assert rs.Manifest.from_json(run.attrs["manifest"]).coverage.summary == result.coverage.summary
    assert rs.summary(tmp_path / "run")["change"].notna().all()


def test_an_interrupted_series_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    series(tmp_path / "series")
    whole = run_scan([str(tmp_path / "series")])
    opened: list[str] = []
    scanned = scanner.Scanner._scanned

    def failing(self: scanner.Scanner, job: scanner.Job) -> scanner.CheckpointScan:
        opened.append(Path(job.member.path).name)
        if len(opened) == 3:
            raise KeyboardInterrupt
        return scanned(self, job)

    monkeypatch.setattr(scanner.Scanner, "_scanned", failing)
    with pytest.raises(KeyboardInterrupt):
        run_scan([str(tmp_path / "series")], out=tmp_path / "run")
    assert rs.open(tmp_path / "run")["step"].to_numpy().tolist() == [0, 10]
    result = run_scan([str(tmp_path / "series")], out=tmp_path / "run")
    assert opened[3:] == ["step20.safetensors", "step30.safetensors"]
    assert [c.step for c in result.checkpoints] == [0, 10, 20, 30]
    for before, after in zip(whole.checkpoints, result.checkpoints, strict=True):
        for one, other in zip(before.matrices, after.matrices, strict=True):
            np.testing.assert_allclose(one.S, other.S, rtol=1e-6)
            assert one.norm == other.norm
    again = run_scan([str(tmp_path / "series")], out=tmp_path / "run")
    assert len(opened) == 5 and len(again.checkpoints) == 4


def test_a_stored_scan_has_the_coverage_of_its_patterns(tmp_path: Path) -> None:
    series(tmp_path / "series")
    scans = [
        run_scan([str(tmp_path / "series")], out=tmp_path / "run", include=["1"]) for _ in range(2)
    ]
    summaries = [[c.coverage.summary for c in scan.checkpoints] for scan in scans]
    assert summaries[0] == summaries[1]


def test_what_is_damaged_leaves_a_gap(tmp_path: Path) -> None:
    states = series(tmp_path / "series")
    states[20]["1.weight"] = torch.full((24, 16), torch.nan)
    states[20]["3.weight"] = torch.zeros(12, 24)
    saved(tmp_path / "series" / "step20.safetensors", states[20])
    (tmp_path / "series" / "step0.safetensors").write_bytes(b"")
    run_scan([str(tmp_path / "series")], out=tmp_path / "run")
    run = rs.open(tmp_path / "run")
    assert run["step"].to_numpy().tolist() == [10, 20, 30]
    assert run["status"].to_numpy().tolist() == [[0, 0, 0], [0, 2, 1], [0, 0, 0]]


def test_what_stays_damaged_is_named_each_time(tmp_path: Path) -> None:
    """A scan that continues tells the same as one in a single go, though most of it is stored."""
    states = series(tmp_path / "series")
    states[20]["1.weight"] = torch.full((24, 16), torch.nan)
    saved(tmp_path / "series" / "step20.safetensors", states[20])
    (tmp_path / "series" / "step10.safetensors").write_bytes(b"")
    other = {**states[30], "3.weight": torch.ones(7, 5), "new.weight": torch.eye(3)}
    saved(tmp_path / "series" / "step30.safetensors", other)
    whole = run_scan([str(tmp_path / "series")])
    first = run_scan([str(tmp_path / "series")], out=tmp_path / "run")
    again = run_scan([str(tmp_path / "series")], out=tmp_path / "run")
    for scan in (first, again):
        assert scan.problems == whole.problems and scan.notes == whole.notes
        assert [c.step for c in scan.checkpoints] == [0, 20, 30]
        assert scan.coverage.summary == whole.coverage.summary
        pd.testing.assert_frame_equal(scan.table(), whole.table(), rtol=1e-5)
    assert whole.problems[0].startswith("step 10 is left out: ")
    assert whole.notes == (
        "step 20 has NaN or Inf in 1",
        "step 30 has in addition: new",
        "step 30 has in another shape: 3",
    )


def test_what_the_base_lacks_is_named_each_time(tmp_path: Path) -> None:
    series(tmp_path / "series")
    part = {name: tensor for name, tensor in weights(0).items() if not name.startswith("1.")}
    base = str(saved(tmp_path / "base.safetensors", part))
    paths = [str(tmp_path / "series")]
    whole, _, again = (
        run_scan(paths, base=base, out=out) for out in (None, tmp_path / "run", tmp_path / "run")
    )
    assert again.table().loc["1", "stands_out"].tolist() == ["not in the base"] * 4
    pd.testing.assert_frame_equal(again.table(), whole.table(), rtol=1e-5)


def test_shards_that_stay_missing_are_named_each_time(tmp_path: Path) -> None:
    shards = tmp_path / "series" / "step10"
    saved(tmp_path / "series" / "step0" / "model.safetensors", weights(0))
    for number, (name, tensor) in enumerate(weights(1).items(), 1):
        saved(shards / f"model-{number:05}-of-00005.safetensors", {name: tensor})
    (shards / "model-00002-of-00005.safetensors").unlink()  # 1.weight
    first, again = (run_scan([str(tmp_path / "series")], out=tmp_path / "run") for _ in range(2))
    assert first.problems == again.problems == ("step 10: 1 of 5 shards are missing: 2",)
    assert first.notes == again.notes == ("step 10 lacks: 1",)
    assert [m.name for m in again.checkpoints[1].matrices] == ["0", "3"]


def test_a_stored_checkpoint_that_is_damaged_later_stays(tmp_path: Path) -> None:
    series(tmp_path / "series")
    first = run_scan([str(tmp_path / "series")], out=tmp_path / "run")
    (tmp_path / "series" / "step10.safetensors").write_bytes(b"")
    again = run_scan([str(tmp_path / "series")], out=tmp_path / "run")
    pd.testing.assert_frame_equal(again.table(), first.table(), rtol=1e-5)
    (problem,) = again.problems
    assert problem.startswith("step 10: it is stored, and cannot be read again: ")


def test_other_runs_and_other_settings_are_refused(tmp_path: Path) -> None:
    series(tmp_path / "series")
    run_scan([str(tmp_path / "series")], out=tmp_path / "run", leading=3)
    with pytest.raises(ValueError, match="holds a scan with another leading; choose"):
        run_scan([str(tmp_path / "series")], out=tmp_path / "run")
    with rs.Tracker(torch.nn.Linear(3, 3), tmp_path / "other") as tracker:
        tracker.observe(0)
    with pytest.raises(ValueError, match="is a run, and none of a scan"):
        run_scan([str(tmp_path / "series")], out=tmp_path / "other")
