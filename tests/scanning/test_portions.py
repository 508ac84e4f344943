"""Portions: one in memory at a time, the next read ahead, in natural order."""

import json
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import rankscope as rs
from lora.adapter_cases import peft_adapter
from rankscope.checkpoints import open_checkpoint
from rankscope.scanning import portions as module
from rankscope.scanning.adapters import open_scanned
from rankscope.scanning.portions import needs_of, planned, portions
from rankscope.scanning.progress import Lines
from scanning.cases import saved


@pytest.mark.parametrize(("room", "expected"), [(1, 5), (80, 3), (10**9, 1)])
def test_portions_hold_every_tensor_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, expected: int
) -> None:
    monkeypatch.setattr(module, "PORTION", room)
    tensors = {f"layers.{number}.weight": torch.full((3, 3), number) * 1.0 for number in range(5)}
    matrices = rs.views(saved(tmp_path / "x.safetensors", tensors))
    sizes = dict.fromkeys(tensors, 36)
    plan = planned(matrices, sizes)
    assert len(plan) == expected and [name for part in plan for name in part] == list(tensors)
    threads = threading.active_count()
    for portion, names in zip(portions(matrices, plan, sizes), plan, strict=True):
        assert tuple(portion.tensors) == names
        for reading in portion.readings:
            assert torch.equal(portion.tensors[reading.parameter], tensors[reading.parameter])
    next(portions(matrices, plan, sizes)).tensors.clear()  # a caller may stop early
    assert threading.active_count() == threads


def test_what_a_measurement_holds_is_counted_in_memory(tmp_path: Path) -> None:
    """Quantised numbers take more room in memory than on disk, and a base needs the change."""
    tensors = {
        "a.weight": torch.ones(64, 64).to(torch.float8_e4m3fn),
        "a.weight_scale": torch.ones(1),
        "b_blocks": torch.zeros(4, 64, 2, 16, dtype=torch.uint8),
        "b_scales": torch.zeros(4, 64, 2, dtype=torch.uint8),
        "c.weight": torch.ones(64, 64).bfloat16(),
    }
    checkpoint = open_checkpoint(saved(tmp_path / "x.safetensors", tensors))
    needs = needs_of(checkpoint, with_base=False)
    sizes = {"a.weight": 4 * 64 * 64, "b": 4 * 4 * 64 * 64, "c.weight": 2 * 64 * 64}
    assert {name: needs[name] for name in sizes} == sizes
    with_base = needs_of(checkpoint, with_base=True)
    assert with_base["c.weight"] == sizes["c.weight"] + 4 * 64 * 64
    product = open_scanned(peft_adapter(tmp_path / "adapter"))
    (first, *_) = (name for name in product.tensors if "lora_B" in name)
    assert needs_of(product, with_base=False)[first] == product.tensors[first].bytes


def test_progress_names_tensors_speed_and_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(always=True)
    lines.start("runs/step10", 4, 4_000_000_000)
    lines.advance(1, 1_000_000_000)
    line = lines.line(2.0)
    assert line == "step10: 1 of 4 tensors, 1.00 of 4.00 GB, 0.50 GB/s, 6 s left"
    lines.finish()
    assert "1 of 4 tensors" in capsys.readouterr().err


def test_progress_of_a_series_counts_the_checkpoints_that_remain() -> None:
    lines = Lines(always=True)
    lines.start("runs/step10", 4, 4_000_000, remaining=2)
    lines.advance(1, 1_000_000)
    expected = "step10: 1 of 4 tensors, 1.00 of 4.00 MB, 0.50 MB/s, 2 more to scan, 22 s left"
    assert lines.line(2.0) == expected


def test_progress_stays_within_the_line_of_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = Lines(always=True)
    lines.start("model-with-a-long-name", 4, 4_000_000_000)
    lines.advance(1, 1_000_000_000)
    lines.start("another", 4, 4_000_000_000)
    lines.advance(1, 1_000_000_000)  # too soon after the line before
    (line,) = capsys.readouterr().err.split("\r")[1:]
    assert len(line) == 39 and line.endswith(" s left")


SCAN = """
import sys, resource
import rankscope as rs
from pathlib import Path
rs.scan(sys.argv[2], leading=0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rs.scan(sys.argv[1], leading=0)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.slow
def test_memory_is_bounded_by_the_largest_tensor(tmp_path: Path) -> None:
    """A file of zeros in the shapes of a 70B model, which takes no room; four of its layers."""
    shapes = [(128256, 8192)] * 2
    shapes += [(8192, 8192), (1024, 8192), (28672, 8192), (28672, 8192), (8192, 28672)] * 4
    header, position = {}, 0
    for number, (m, n) in enumerate(shapes):
        end = position + 2 * m * n
        header[f"{number}.weight"] = {
            "dtype": "BF16",
            "shape": [m, n],
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(header).encode()
    with (tmp_path / "large.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + position)
    small = saved(tmp_path / "small.safetensors", {"a.weight": torch.ones(300, 300)})
    ran = subprocess.run(
        [sys.executable, "-c", SCAN, tmp_path / "large.safetensors", small],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(ran.stdout) < 128256 * 8192 * 2 + 2e9


@pytest.mark.skipif("RANKSCOPE_DATA" not in os.environ, reason="needs RANKSCOPE_DATA")
def test_a_real_series_is_scanned() -> None:
    folder = Path(os.environ["RANKSCOPE_DATA"]) / "checkpoints" / "mnist-diffusion-cnn"
    scan = rs.scan(folder, base=folder / "epoch_0000.safetensors")
    assert [checkpoint.step for checkpoint in scan.checkpoints] == [*range(0, 2000, 100), 1999]
    assert not scan.problems and not scan.notes
    table = scan.table()
    assert (table[table["step"] == 0]["stands_out"] == "unchanged").all()
    assert table[table["step"] == 1999]["change"].between(0.5, 1.5).all()
