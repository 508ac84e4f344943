"""Benchmarks that have a size for tests: they run, and print whole tables."""

import os
import re

import pytest
import torch

from benchmarks import __main__ as benchmarks
from benchmarks import engine, overhead, timing
from rankscope import snapshot
from rankscope.lab.papers.boix2023 import vit_imagenet


def test_cost_of_imagenet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hours follow from the printed time of a step, and cores from images per second."""
    monkeypatch.setattr("sys.argv", ["benchmarks", "imagenet", "--size", "tiny", "--device", "cpu"])
    benchmarks.main()
    printed = capsys.readouterr().out
    rows = {
        name.strip(): float(re.sub("[^0-9.]", "", value))
        for _, name, value, _ in (line.split("│") for line in printed.splitlines() if "│" in line)
    }
    step = rows["step of 8 images, as one of 8 GPUs"] / 1000
    assert 0 < step < 60 and rows["step of 16 images in 2 parts, one GPU"] > 0
    hours = rows[f"{vit_imagenet.PAPER.steps:,} steps of 64 images on 8 GPUs"]
    assert hours == pytest.approx(vit_imagenet.PAPER.steps * step / 3600, rel=0.01)
    assert rows["... 2 initial scales, one seed"] == pytest.approx(2 * hours, rel=0.01)
    needed, decoded = (rows[f"images/s that {who}"] for who in WHO)
    assert needed == pytest.approx(64 / step, rel=0.01)
    assert rows["cores that keep up with them"] == pytest.approx(needed / decoded, abs=1, rel=0.02)


WHO = ("8 GPUs then take", "one core decodes")


@pytest.mark.gpu
def test_a_step_of_the_paper_is_measured_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "sys.argv", ["benchmarks", "imagenet", "--size", "tiny", "--device", "cuda"]
    )
    with torch.compiler.set_stance("force_eager"):  # shapes are checked, see test_step.py
        benchmarks.main()
    assert "cuda:0" in capsys.readouterr().out


def test_the_size_of_the_paper_wants_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "imagenet"])
    benchmarks.main()
    assert "nothing is measured" in capsys.readouterr().out


def rows_of(printed: str) -> list[list[str]]:
    lines = [line for line in printed.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_one_row_of_the_engine_is_measured_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """A GPU is lent for minutes, too few for all rows."""
    engine.main("cpu", only="llama", spectrum="64", on="device", rounds=1)
    (row,) = rows_of(capsys.readouterr().out)
    network, spectrum, where, *seconds, memory, redone = row
    assert (network, spectrum, where, memory, redone) == ("Llama, 1.1B", "64", "cpu", "", "0")
    step, alone, beside, lost = (float(text.split()[0]) for text in seconds)
    assert min(step, alone, beside) >= 0 and lost >= -beside


def test_training_waits_for_no_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that waited for the whole GPU would wait for what the tracker has queued."""
    waits: list[None] = []
    for module in (engine, timing):
        monkeypatch.setattr(module, "wait_for_gpu", lambda: waits.append(None))
    model, step = engine.vit("cpu", full=False)
    engine.beside_training(model, step, "full", "cpu", rounds=3)
    assert len(waits) == 3  # before each snapshot


def test_a_tracker_that_fails_ends_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker fails beside training, which would wait for its snapshot for ever."""
    model, step = engine.vit("cpu", full=False)
    measure, seen = snapshot.measure, []

    def failing(*args: object, **options: object) -> object:
        seen.append(len(seen))
        if len(seen) > 1:
            raise OSError("broken")
        return measure(*args, **options)

    monkeypatch.setattr(snapshot, "measure", failing)
    monkeypatch.setattr(engine, "LONGEST", 0.5)
    with pytest.raises(OSError, match="broken"):
        engine.beside_training(model, step, "full", "cpu", rounds=1)


def test_overhead_of_tiny_networks_on_cores_of_their_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cores, pinned = sorted(os.sched_getaffinity(0)), []
    if len(cores) < 2:
        pytest.skip("there is one core")
    time_epoch = overhead.epoch_seconds

    def watched(learn, steps, tracker, start):
        if tracker is not None:
            measuring = tracker._recorder._measurer._child.pid
            pinned.append((os.sched_getaffinity(0), os.sched_getaffinity(measuring)))
        return time_epoch(learn, steps, tracker, start)

    monkeypatch.setattr(overhead, "TRAINING_CORES", 1)
    monkeypatch.setattr(overhead, "epoch_seconds", watched)
    overhead.main("cpu", size="tiny", only="vit", epochs=2)
    assert pinned == [({cores[0]}, set(cores[1:]))] * 2
    assert os.sched_getaffinity(0) == set(cores)
    (row,) = rows_of(capsys.readouterr().out)
    assert row[:4] == ["ViT", "17", "8", "2"]
    overhead.main("cpu", size="tiny", only="vit", epochs=40, minutes=0.0)
    (row,) = rows_of(capsys.readouterr().out)
    assert row[3] == "1"  # no further epoch is begun
