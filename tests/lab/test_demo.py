import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from rich.console import Console

from rankscope.lab.demo import (
    PEAK_RATE,
    demo,
    fresh_folder,
    learning_rate,
    rank_table,
    snapshot_steps,
)


def test_the_demo_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ds = demo(tmp_path, steps=3)
    assert ds["step"].to_numpy().tolist() == [0, 1, 2, 3]
    assert ds["loss"].to_numpy()[0] == pytest.approx(np.log(256), abs=0.5)
    assert ds["loss"].to_numpy()[-1] < ds["loss"].to_numpy()[0]
    printed = capsys.readouterr()
    rows = [line for line in printed.out.splitlines() if "→" in line]
    names = ds["matrix"].to_numpy()[ds["part_of"].to_numpy() == ""]
    assert [row.split()[0] for row in rows] == list(names)
    assert max(map(len, printed.out.splitlines())) <= 80
    assert "3/3" in printed.err and "nats per byte" in printed.err
    for name in ("overview", "singular_values", "effective_rank", "alignment", "mean_alignment"):
        assert (tmp_path / f"{name}.png").exists() and (tmp_path / f"{name}.svg").exists()


def two_matrices() -> xr.Dataset:
    """`a` goes from full rank 2 to rank 1; its part meets `b` twice as much as chance has it."""
    S = np.array([[[1.0, 1.0], [1.0, np.nan], [2.0, 2.0]], [[1.0, 0.0], [1.0, np.nan], [2.0, 2.0]]])
    alignment = np.array([[[0.1, 0.1], [0.1, np.nan]], [[0.3, 0.5], [0.15, np.nan]]])
    return xr.Dataset(
        {
            "singular_values": (("step", "matrix", "k"), S),
            "alignment": (("step", "pair", "i"), alignment),
            "alignment_background": (("step", "pair"), np.array([[0.2, 0.1], [0.2, 0.1]])),
        },
        coords={
            "step": [0, 9],
            "matrix": ["a", "a.part", "b"],
            "m": ("matrix", [2, 1, 2]),
            "n": ("matrix", [3, 3, 2]),
            "part_of": ("matrix", ["", "a", ""]),
            "pair": ["a.part > b", "a > a"],
            "pair_kind": ("pair", ["one", "other"]),
            "earlier": ("pair", ["a.part", "a"]),
            "later": ("pair", ["b", "a"]),
        },
    )


def test_the_table_compares_first_and_last_and_names_the_strongest_pair() -> None:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(rank_table(two_matrices()))
    rows = [line.split() for line in capture.get().splitlines() if "→" in line]
    # effective rank 2 to 1, stable rank 2 to 1; a.part > b: 0.4 / 0.2 = 2, a > a: 0.15 / 0.1 = 1.5.
    assert rows == [
        ["a", "2x3", "2", "→", "1", "2", "→", "1", "0.40", "(2.0x)", "one"],
        ["b", "2x2", "2", "→", "2", "2", "→", "2", "0.40", "(2.0x)", "one"],
    ]


@pytest.mark.parametrize("steps", [1, 7, 600])
def test_snapshots_start_at_zero_and_end_at_the_end(steps: int) -> None:
    found = snapshot_steps(steps)
    assert found[0] == 0 and found[-1] == steps
    assert list(found) == sorted(set(found))
    assert len(found) <= 40


def test_learning_rate_rises_to_its_peak_and_falls_to_a_tenth() -> None:
    rates = [learning_rate(step, 600) for step in range(601)]
    assert max(rates) == rates[50] == PEAK_RATE
    assert rates[-1] == pytest.approx(PEAK_RATE / 10)
    assert rates[0] == pytest.approx(PEAK_RATE / 50)
    assert np.all(np.diff(rates[:50]) > 0) and np.all(np.diff(rates[50:]) < 0)


def test_only_an_earlier_demo_is_replaced(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert fresh_folder(run) == run
    for attributes in ({}, {"made_by": "someone"}):
        run.mkdir(exist_ok=True)
        (run / "zarr.json").write_text(json.dumps({"attributes": attributes}))
        with pytest.raises(ValueError, match="not an earlier demo's; choose another folder"):
            fresh_folder(run)
    (run / "zarr.json").write_text(json.dumps({"attributes": {"made_by": "rankscope demo"}}))
    assert not fresh_folder(run).exists()
    run.mkdir()
    with pytest.raises(ValueError, match="not an earlier demo's"):
        fresh_folder(run)
