"""Compiled losses: one graph for each network, and what a compiler needs."""

import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.lab.training import step

# In a process of its own: the checks of shapes that tests switch on cannot be compiled.
ONE_GRAPH = """
import torch

from rankscope.lab.catalogue import load
from rankscope.lab.training.step import compiled_loss, plain_step
from rankscope.lab.training.task import Machine

compile = torch.compile
graphs = []

def count(graph, inputs):
    graphs.append(graph)
    return graph

torch.compile = lambda loss, **options: compile(loss, backend=count, **options)
for name in (
    "yunis2024/vgg",
    "yunis2024/unet",
    "yunis2024/lm",
    "boix2023/vit-cifar10",
    "boix2023/vit-cifar100",
    "boix2023/vit-variants",
    "boix2023/vit-imagenet",
):
    runs = load(name, "smoke").experiments[0].runs
    before = len(graphs)
    for (key, run), seed in zip(runs.items(), (0, 1)):
        weights = []
        for compiled in (True, False):
            problem = run.task.build(Machine(), seed=seed)
            assert problem.model.fusable, key
            optimizer = run.optimizer.build(problem.model.parameters(), torch.device("cpu"))
            learn = plain_step(
                problem,
                optimizer,
                accumulate=1,
                clip=None,
                precision="float32",
                loss=compiled_loss(problem) if compiled else None,
            )
            for index in range(2):
                learn(problem.draw(torch.arange(run.batch), torch.Generator().manual_seed(index)))
            weights.append(list(problem.model.parameters()))
        for fused, written in zip(*weights, strict=True):
            torch.testing.assert_close(fused, written)
    networks = {key.network for key in [*runs][:2]}
    assert len(graphs) == before + len(networks), (name, len(graphs) - before)
"""


def test_losses_of_large_networks_are_one_graph_for_all_their_runs() -> None:
    subprocess.run([sys.executable, "-c", ONE_GRAPH], check=True)


def test_what_it_takes_to_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(step, "find_spec", lambda name: name)
    monkeypatch.setattr(step.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("TORCH_COMPILE_DISABLE", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "Python.h").touch()
    assert not step.compiler_at_hand()  # no C compiler
    (tmp_path / "gcc").touch(mode=0o755)
    assert step.compiler_at_hand()
    for name, value in (("CC", "nonsense"), ("TORCH_COMPILE_DISABLE", "1")):
        with monkeypatch.context() as within:
            within.setenv(name, value)
            assert not step.compiler_at_hand()
    monkeypatch.setenv("CC", "mycc")
    (tmp_path / "mycc").touch(mode=0o755)
    assert step.compiler_at_hand()
    (tmp_path / "Python.h").unlink()
    assert not step.compiler_at_hand()
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(step, "find_spec", lambda name: None)  # no Triton
    assert not step.compiler_at_hand()
