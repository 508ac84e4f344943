"""Runs by two processes together: one after the other, failures included, nobody waits in vain."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.toy_group import runs
from lab.training.test_distributed import output_of
from rankscope import store
from rankscope.lab.running.placement import choose_placement
from rankscope.lab.training.task import Machine

EXPERIMENT = "boix2023/vit-imagenet"


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a folder for each scene."""
    folder = tmp_path_factory.mktemp("scenes")
    assert output_of("lab.toy_group", folder) == ["0 0", "1 1", "1 1"]
    return folder


def said(scenes: Path, scene: str) -> list[list[str]]:
    return [(scenes / scene / f"said-{rank}").read_text().splitlines() for rank in range(2)]


def test_one_run_after_the_other(scenes: Path) -> None:
    """What does not train comes last, without the other process."""
    failed = ["odd, seed 0 failed", "large, seed 0 failed"]
    assert said(scenes, "whole") == [[*failed, "good, seed 0 ended", "flow, seed 0 ended"], []]
    flow, odd, large, good = runs(scenes / "whole")
    assert (flow.state, good.state) == ("whole", "whole")
    assert (odd.state, large.state) == ("interrupted", "interrupted")
    assert odd.failure is not None and "cannot be split among 2 processes" in odd.failure
    assert large.failure is not None and "batch of 80 needs as many" in large.failure
    assert "Traceback" in odd.failure_file.read_text()


@pytest.mark.parametrize("scene", ["0", "1"])
def test_a_failure_while_training_ends_both(scenes: Path, scene: str) -> None:
    breaks, never = runs(scenes / scene)
    assert (breaks.state, never.state) == ("interrupted", "missing") and breaks.resumable
    assert breaks.failure == "ArithmeticError: no more clouds"
    assert ", in draw\n" in breaks.failure_file.read_text()


def test_who_leads_and_who_failed_talk(scenes: Path) -> None:
    words = "failed breaks, seed 0: ArithmeticError: no more clouds (process 1)"
    assert said(scenes, "0") == [["breaks, seed 0 failed"], []]
    assert said(scenes, "1") == [["breaks, seed 0 failed"], [words]]


@pytest.fixture
def second_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torchrun tells a process."""
    for name, value in (("RANK", "1"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)


def test_a_group_of_one_is_none(second_of_two, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_placement(device="cpu").follow is not None
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert choose_placement(device="cpu").follow is None


def test_each_process_has_a_gpu(second_of_two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert choose_placement().machine == Machine("cuda:1")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(ValueError, match="process 1 of this machine has no GPU of its own"):
        choose_placement()


def test_torchrun_or_ray(second_of_two) -> None:
    with pytest.raises(ValueError, match="use either it or --on ray"):
        choose_placement(device="cpu", on="ray")


def test_the_command_line(tmp_path: Path) -> None:
    """What the laboratory's page says, with two processes on the CPU."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    options = ["--scale=smoke", "--device=cpu", f"--out={tmp_path}", "--json"]
    ran = subprocess.run(
        [*command, "-m", "rankscope", "run", EXPERIMENT, *options],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert json.loads(ran.stdout)["scale"] == "smoke"  # said once
    assert "2 of 2 runs" in ran.stderr and "failed" not in ran.stderr
    whole = tmp_path / EXPERIMENT / "smoke"
    assert [store.open(path).attrs["whole"] for path in whole.glob("*/*/seed-0")] == [True, True]
    assert (whole / "verdicts.json").exists()
