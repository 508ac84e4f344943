import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lab.papers.boix2023.vit_runs import trainings
from lab.training.test_training_run import same_but_for_times
from rankscope import store
from rankscope.lab.catalogue import load
from rankscope.lab.data.patterns import ROW_GROUP
from rankscope.lab.data.shards import TINY_IMAGENET, TINY_IMAGENET_VALIDATION
from rankscope.lab.experiment import SCALES
from rankscope.lab.papers.boix2023 import vit_imagenet
from rankscope.lab.tasks.streamed import StreamedClassification

PAGE = Path(__file__).parents[4] / "docs" / "howto" / "papers.md"
REAL = pytest.mark.skipif("RANKSCOPE_DATA" not in os.environ, reason="needs RANKSCOPE_DATA")


def test_paper_scale_is_the_papers() -> None:
    runs = trainings(vit_imagenet.experiment("paper"))
    assert set(runs) == {"vit/scale-1", "vit/scale-0.1"}
    assert vit_imagenet.EPOCH == 1_281_167 // 4096
    for run in runs.values():
        assert (run.optimizer.rate, run.optimizer.decay, run.batch) == (3e-3, 0, 4096)
        assert run.steps == 360 * vit_imagenet.EPOCH
        warm = 15 * vit_imagenet.EPOCH
        assert run.rate(warm - 1) == run.rate(warm) == 1 and run.rate(warm // 2) < 0.51
        assert run.rate(run.steps) == 0
        steps = (*range(vit_imagenet.EPOCH), *range(0, run.steps + 1, vit_imagenet.EPOCH))
        snapshots = sum(run.snapshots(step) for step in set(steps))
        assert 25 <= snapshots <= 40
        for processes in (1, 2, 4, 8, 16):  # as many parts each as make none larger
            parts = math.ceil(run.accumulate / processes)
            assert run.batch % (processes * parts) == 0


def test_it_is_vit_b_16() -> None:
    """86.6 million parameters (dosovitskiy2021, table 1: 86M)."""
    config = vit_imagenet.VIT_B_16
    assert config.pixels == (224, 224) and config.tokens == 1 + 14 * 14
    block = 4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768
    others = 768 * (3 * 16 * 16 + 1) + 768 * 198 + 2 * 768 + 1000 * 769
    assert 12 * block + others == 86_567_656
    smaller = replace(config, depth=1).build()
    assert sum(weight.numel() for weight in smaller.parameters()) == block + others


def test_every_scale_streams() -> None:
    for scale in SCALES:
        for name, run in trainings(vit_imagenet.experiment(scale)).items():
            task = run.task
            assert isinstance(task, StreamedClassification) and run.changes
            assert task.crops.size == task.model.image
            assert f"vit/scale-{task.model.init_scale:g}" == name
            if scale != "paper":  # more than is in memory at any time
                assert task.images.count > 2 * task.window * ROW_GROUP


def test_epochs_of_small_are_whole() -> None:
    small = vit_imagenet.SMALL
    assert small.task.images.count / small.batch == vit_imagenet.SMALL_EPOCH


def test_other_images_change_nothing_but_images_and_classes() -> None:
    declared = vit_imagenet.experiment("small")
    own = vit_imagenet.on_images("mine/tiny", "small", TINY_IMAGENET, TINY_IMAGENET_VALIDATION)
    assert own.name == "mine/tiny" and own.seeds == declared.seeds
    assert {key.experiment for key in own.runs} == {"mine/tiny"}
    for name, run in trainings(own).items():
        plain = trainings(declared)[name]
        model = replace(plain.task.model, classes=200)
        task = replace(plain.task, images=TINY_IMAGENET, test=TINY_IMAGENET_VALIDATION, model=model)
        assert run == replace(plain, task=task)
    of_paper = load("boix2023/vit-imagenet", "small")
    assert own.claims == of_paper.claims
    names = [figure.name for figure in own.figures]
    assert names == [figure.name for figure in of_paper.figures]
    assert all(figure.needs(list(own.runs)) for figure in own.figures)


# The example of the page as one longer run, which often writes checkpoints.
LONG = """
from dataclasses import replace

import tiny_imagenet
from rankscope.lab.training import loop
from rankscope.lab.training.rates import Constant
from rankscope.tracker import Every

loop.CHECKPOINT_SECONDS, loop.CHECKPOINT_SHARE = 0.2, 1.0


def experiment(scale):
    declared = tiny_imagenet.experiment(scale)
    key, run = next(iter(declared.runs.items()))
    run = replace(run, steps=STEPS, snapshots=Every(20), rate=Constant())
    return replace(declared, name="mine/long", runs={key: run})
"""
TOGETHER = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def rankscope_run(folder: Path, *options: str, before: tuple[str, ...] = ()) -> subprocess.Popen:
    """Start `rankscope run` at scale smoke on the CPU."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RANKSCOPE_CACHE": str(folder / "cache")}
    command = [sys.executable, *before, "-m", "rankscope", "run", *options]
    return subprocess.Popen(
        [*command, "--scale=smoke", "--seed=0", "--device=cpu"],
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


def output_of(started: subprocess.Popen) -> str:
    """Wait until it has ended well, and return what it said."""
    _, output = started.communicate(timeout=300)
    assert started.returncode == 0, output[-3000:]
    return str(output)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A folder with the example of the page, `tiny_imagenet.py`."""
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "tiny_imagenet.py").write_text(example)
    return tmp_path


@REAL
@pytest.mark.slow
def test_two_processes_learn_what_one_does_from_real_images(tiny: Path) -> None:
    output_of(rankscope_run(tiny, "tiny_imagenet.py", "--out=one", "--jobs=1"))
    output = output_of(rankscope_run(tiny, "tiny_imagenet.py", "--out=two", before=TOGETHER))
    assert "2 of 2 runs" in output
    one, two = (tiny / out / "mine/tiny-imagenet/smoke" for out in ("one", "two"))
    for name in ("scale-1", "scale-0.1"):
        a, b = (store.open(folder / "vit" / name / "seed-0").load() for folder in (one, two))
        assert a.sizes["step"] > 3 and a.attrs["whole"] and b.attrs["whole"]
        assert a["training_loss"][-1] < a["training_loss"][0]
        for scalar in ("loss", "training_loss", "validation_loss", "validation_accuracy"):
            np.testing.assert_allclose(a[scalar], b[scalar], rtol=1e-5, atol=1e-5)
        for spectrum in ("singular_values", "product_change_singular_values"):
            np.testing.assert_allclose(a[spectrum], b[spectrum], rtol=0, atol=1e-5)
    verdicts = [json.loads((folder / "verdicts.json").read_text()) for folder in (one, two)]
    words = [
        {v["claim"]: [n["verdict"] for n in v["networks"]] for v in judged["verdicts"]}
        for judged in verdicts
    ]
    assert words[0] == words[1]
    assert {word for of_claim in words[0].values() for word in of_claim} > {"holds so far"}
    drawn = {path.stem for path in (two / "figures").iterdir()}
    assert drawn == {"figure-15", "figure-16", "figure-1-imagenet"}


@REAL
@pytest.mark.slow
def test_two_processes_that_were_killed_go_on_from_the_checkpoint(tiny: Path) -> None:
    (tiny / "long_run.py").write_text(LONG.replace("STEPS", "400"))
    place = "mine/long/smoke/vit/scale-1/seed-0"
    killed = rankscope_run(tiny, "long_run.py", "--out=killed", before=TOGETHER)
    checkpoint = tiny / "killed" / f"{place}.checkpoint"
    deadline = time.monotonic() + 200
    while not checkpoint.exists():
        assert killed.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    # torchrun gives each process a session of its own, so killing its group would not reach them.
    children = Path(f"/proc/{killed.pid}/task/{killed.pid}/children").read_text().split()
    assert len(children) == 2
    for process in (*map(int, children), killed.pid):
        os.kill(process, signal.SIGKILL)
    killed.communicate()
    assert not store.open(tiny / "killed" / place).attrs.get("whole")
    shutil.copytree(tiny / "killed", tiny / "alone")
    for out, before in (("killed", TOGETHER), ("alone", ())):
        again = rankscope_run(tiny, "long_run.py", f"--out={out}", before=before)
        assert "not finished; continuing from the checkpoint" in output_of(again)
    output_of(rankscope_run(tiny, "long_run.py", "--out=whole", before=TOGETHER))
    runs = [store.open(tiny / out / place).load() for out in ("killed", "alone", "whole")]
    resumed, alone, whole = runs
    same_but_for_times(resumed, whole)
    # A single process goes on with what two have begun, and differs by rounding.
    np.testing.assert_allclose(alone["singular_values"], whole["singular_values"], atol=1e-3)
    np.testing.assert_allclose(alone["training_loss"], whole["training_loss"], atol=1e-3)
