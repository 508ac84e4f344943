"""What of a training step a compiler can fuse."""

import subprocess
import sys
from pathlib import Path

import pytest

from rankscope.lab.training import step

# In a process of its own: the checks of shapes that tests switch on cannot be compiled.
ONE_GRAPH = """
import torch

from rankscope.lab.catalogue import load
from rankscope.lab.training.run import Fusable
from rankscope.lab.training.step import eager_step
from rankscope.lab.training.task import Place

compile = torch.compile
graphs = []

def count(graph, inputs):
    graphs.append(graph)
    return graph

torch.compile = lambda loss, **options: compile(loss, backend=count, **options)
for name in ("yunis2024/vgg", "yunis2024/unet", "yunis2024/lm", "boix2023/vit-cifar10"):
    runs = load(name, "smoke").runs.values()
    before = len(graphs)
    for run, seed in zip(runs, (0, 1)):
        weights = []
        for compiled in (True, False):
            problem = run.task.build(Place(), seed=seed)
            assert isinstance(problem.model, Fusable), name
            optimizer = run.optimizer.build(problem.model.parameters(), torch.device("cpu"))
            learn = eager_step(
                problem, optimizer, accumulate=1, clip=None, precision="float32", compiled=compiled
            )
            for index in range(2):
                learn(problem.draw(torch.arange(run.batch), torch.Generator().manual_seed(index)))
            weights.append(list(problem.model.parameters()))
        for fused, written in zip(*weights, strict=True):
            torch.testing.assert_close(fused, written)
    assert len(graphs) == before + 1, (name, len(graphs))
"""


def test_losses_of_large_networks_are_one_graph_for_all_their_runs() -> None:
    subprocess.run([sys.executable, "-c", ONE_GRAPH], check=True)


def test_without_a_c_compiler_nothing_is_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(step.importlib.util, "find_spec", lambda name: name)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not step.compiler_at_hand()
    compiler = tmp_path / "mycc"
    compiler.touch(mode=0o755)
    assert not step.compiler_at_hand()
    monkeypatch.setenv("CC", "mycc")
    assert step.compiler_at_hand()
    monkeypatch.setattr(step.importlib.util, "find_spec", lambda name: None)
    assert not step.compiler_at_hand()
