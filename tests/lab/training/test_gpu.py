"""Training on a GPU: graphs, resuming, several runs at once."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lab.toy_runs import Log
from lab.training.test_loop import killed_at_35
from lab.training.test_training_run import RUN, executed
from lab.training.toy_task import CloudTask, silent
from rankscope import store
from rankscope.lab.papers.findings import clock
from rankscope.lab.running.processes import attempt
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.running.stored_run import StoredRun
from rankscope.lab.running.threads import execute
from rankscope.lab.training.optimizers import AdamW, Sgd
from rankscope.lab.training.sweep import from_scale
from rankscope.lab.training.task import Machine
from rankscope.lab.training.training_run import TrainingRun

pytestmark = pytest.mark.gpu

ON_GPU = replace(RUN, machine=Machine(device="cuda"))
OPTIMIZERS = [Sgd(rate=0.1, decay=0.01), AdamW(rate=0.01, decay=0.1)]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_graph_eager_and_cpu_agree(tmp_path: Path, optimizer: Sgd | AdamW) -> None:
    run = replace(ON_GPU, optimizer=optimizer, clip=0.5, accumulate=2)
    graphed = executed(run, tmp_path / "graphed")
    eager = executed(replace(run, task=CloudTask(capturable=False)), tmp_path / "eager")
    cpu = executed(replace(run, machine=Machine()), tmp_path / "cpu")
    for other in (eager, cpu):
        for name in ("singular_values", "training_loss", "top_loss", "loss"):
            # Kernels differ in their last bits, which training makes larger.
            np.testing.assert_allclose(graphed[name], other[name], rtol=2e-2, atol=2e-3)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_resumed_run_ends_where_the_uninterrupted_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: Sgd | AdamW
) -> None:
    run = replace(ON_GPU, optimizer=optimizer)
    whole = executed(run, tmp_path / "whole")
    stored = killed_at_35(run, tmp_path / "killed", monkeypatch)
    assert attempt(stored, silent).failure is None
    resumed = store.open(stored.path)
    assert resumed["step"].to_numpy().tolist() == whole["step"].to_numpy().tolist()
    np.testing.assert_allclose(
        resumed["singular_values"], whole["singular_values"], rtol=2e-3, atol=2e-4
    )


def test_five_at_once_learn_what_one_does(tmp_path: Path) -> None:
    runs = [StoredRun(RunKey("toy"), seed, ON_GPU, tmp_path / f"seed-{seed}") for seed in range(5)]
    ended = execute(runs, jobs=5, watcher=Log())
    assert [run.failure for run in ended] == [None] * 5
    alone = executed(ON_GPU, tmp_path / "alone", seed=3)
    np.testing.assert_allclose(
        store.open(runs[3].path)["singular_values"],
        alone["singular_values"],
        rtol=2e-3,
        atol=2e-4,
    )


def test_bfloat16(tmp_path: Path) -> None:
    run: TrainingRun = replace(ON_GPU, precision="bfloat16")
    ds = executed(run, tmp_path / "run")
    assert float(ds["training_loss"][-1]) < 0.5 * float(ds["training_loss"][0])


# In a process of its own: the checks of shapes that tests switch on cannot be compiled.
COMPILED = """
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from rankscope import store
from rankscope.lab.catalogue import load
from rankscope.lab.training.task import Machine
from rankscope.tracker import Every

name, folder = sys.argv[1:]
declared = next(iter(load(name, "smoke").experiments[0].runs.values()))
# Few steps: at these rates what rounding differs by grows tenfold in each.
run = replace(declared, steps=4, snapshots=Every(2), stop=None, truncation=None)
losses = []
for device in ("cuda", "cpu"):
    path = Path(folder, device)
    replace(run, machine=Machine(device=device)).execute(path, seed=0, progress=lambda *_: None)
    ds = store.open(path)
    assert ds.attrs["compiled"] == (device == "cuda"), "this takes Triton and a C compiler"
    losses.append(ds["training_loss"].to_numpy())
assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
np.testing.assert_allclose(*losses, rtol=1e-2)
"""


@pytest.mark.parametrize(
    "name", ["yunis2024/vgg", "yunis2024/unet", "yunis2024/lm", "boix2023/vit-cifar10"]
)
def test_compiled_steps_learn_what_the_cpu_does(tmp_path: Path, name: str) -> None:
    subprocess.run([sys.executable, "-c", COMPILED, name, str(tmp_path)], check=True)


def test_norms_of_heads_are_those_of_the_cpu(tmp_path: Path) -> None:
    run = clock.with_clock(from_scale(replace(clock.VIT["smoke"], steps=10), 0.3))
    with torch.compiler.set_stance("force_eager"):  # shapes are checked, see test_step.py
        on_gpu = executed(replace(run, machine=Machine(device="cuda")), tmp_path / "gpu")
    on_cpu = executed(run, tmp_path / "cpu")
    names = [str(name) for name in on_cpu if str(name).startswith("kq_")]
    assert len(names) == 12
    for name in names:
        np.testing.assert_allclose(on_gpu[name], on_cpu[name], rtol=0.1, atol=1e-6)
