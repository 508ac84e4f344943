"""Two processes that train one network: they learn what one process does, and fail together."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lab.training.test_training_run import RUN as NORMED
from lab.training.test_training_run import executed, same_but_for_times
from lab.training.toy_together import IN_PARTS, RUN, STREAMED
from rankscope import store
from rankscope.lab.training import training_run as module
from rankscope.lab.training.distributed import Alone, Together, current_group, joined
from rankscope.lab.training.order import generator
from rankscope.lab.training.task import Machine

TESTS = Path(__file__).parents[2]
Outcome = tuple[Path, list[list[str]]]


def output_of(module: str, folder: Path) -> list[str]:
    """Run a module of the tests in a process of its own, and return the lines it prints."""
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    ran = subprocess.run(
        [sys.executable, "-m", module, str(folder)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
    )
    return ran.stdout.splitlines()


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The folder with the runs of both processes, and the lines that each printed."""
    folder = tmp_path_factory.mktemp("together")
    output_of("lab.training.toy_together", folder)
    return folder, [(folder / f"said-{rank}").read_text().splitlines() for rank in range(2)]


@pytest.mark.parametrize(("name", "run"), [("plain", RUN), ("in parts", IN_PARTS)])
def test_two_learn_what_one_does(together: Outcome, tmp_path: Path, name: str, run) -> None:
    two, one = store.open(together[0] / name).load(), executed(run, tmp_path / "one")
    assert two["step"].to_numpy().tolist() == one["step"].to_numpy().tolist()
    assert two.attrs["stopped_at"] == one.attrs["stopped_at"]
    np.testing.assert_allclose(two.attrs["weights"], one.attrs["weights"], rtol=0, atol=1e-5)
    for name in ("loss", "training_loss", "singular_values"):
        np.testing.assert_allclose(two[name], one[name], rtol=1e-4, atol=1e-5)


def test_two_see_the_crops_that_one_sees(
    together: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKSCOPE_CACHE", str(together[0] / "cache"))
    two = store.open(together[0] / "streamed").load()
    one = executed(STREAMED, tmp_path / "one")
    for name in ("loss", "training_loss", "validation_loss", "singular_values"):
        np.testing.assert_allclose(two[name], one[name], rtol=1e-4, atol=1e-5)


# In a process of its own: the checks of shapes that tests switch on cannot be compiled.
COMPILED = """
import sys

import torch
import torch.distributed as dist

from rankscope.lab.catalogue import load
from rankscope.lab.training.distributed import Alone, Together
from rankscope.lab.training.step import plain_step
from rankscope.lab.training.task import Machine

compile, graphs = torch.compile, []

def count(graph, inputs):
    graphs.append(graph)
    return graph

torch.compile = lambda model, **options: compile(model, backend=count, **options)
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
run = next(iter(load("boix2023/vit-imagenet", "smoke").experiments[0].runs.values()))
weights = []
for group, compiled in ((Together(0, 1), True), (Alone(), False)):
    problem = run.task.build(Machine(), seed=0)
    optimizer = run.optimizer.build(problem.model.parameters(), torch.device("cpu"))
    shared = group.shared(problem, parts=2, compiled=compiled)
    learn = plain_step(shared, optimizer, accumulate=2, clip=None, precision="bfloat16")
    for index in range(2):
        learn(problem.draw(torch.arange(20), torch.Generator().manual_seed(index)))
    weights.append(problem.model.state_dict())
assert len(graphs) == 1, len(graphs)
assert list(weights[0]) == list(weights[1])
for name, weight in weights[0].items():
    torch.testing.assert_close(weight, weights[1][name], rtol=1e-2, atol=2e-3)
dist.destroy_process_group()
"""


def test_a_group_compiles_its_model_as_one_graph(tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RANKSCOPE_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", COMPILED, str(tmp_path / "meeting")]
    subprocess.run(command, check=True, timeout=300, env=environment)


def test_one_of_them_stopped_early(together: Outcome) -> None:
    stopped = store.open(together[0] / "in parts").attrs["stopped_at"]
    assert 20 < stopped < 60
    for lines in together[1]:  # each process takes two of the four parts and exchanges one
        assert lines[0] == f"calls without exchange: {stopped}"


def test_failures_before_training_are_those_of_all(together: Outcome) -> None:
    odd = (
        "a batch of 20 cannot be split among 2 processes that take 3 equal parts each; "
        "start another number of processes"
    )
    for lines in together[1]:
        assert [line.removeprefix("refused: ") for line in lines[1:4]] == [
            "LookupError: no clouds",
            "LookupError: no clouds (process 1 of 2)",
            f"ValueError: {odd}",
        ]


def test_processes_share_the_parts() -> None:
    parts = {size: replace(RUN, accumulate=4)._parts(Together(0, size)) for size in (2, 3, 4, 8)}
    assert parts == {2: 2, 3: 2, 4: 1, 8: 1}
    assert replace(RUN, accumulate=4)._parts(Alone()) == 4


@pytest.mark.parametrize(
    ("resumed", "whole", "line", "first"),
    [("resumed", "plain", 4, 34), ("streamed and resumed", "streamed", 7, 4)],
)
def test_both_go_on_from_the_checkpoint(
    together: Outcome, resumed: str, whole: str, line: int, first: int
) -> None:
    """They refuse to resume while only one of them sees the checkpoint."""
    refusal = (
        f"refused: ValueError: processes would start {resumed} at different steps, {first}, 0; "
        f"{together[0]} has to be one folder, on a file system that all of them see"
    )
    for lines in together[1]:
        assert lines[line : line + 3] == ["stopped", refusal, f"went on at {first + 1}"]
    same_but_for_times(*(store.open(together[0] / name).load() for name in (resumed, whole)))


def test_parts_make_the_batch_and_noise_differs() -> None:
    indices = torch.randperm(12)
    groups = [Together(rank, 3) for rank in range(3)]
    parts = [group.own(indices) for group in groups]
    assert [len(part) for part in parts] == [4, 4, 4]
    assert torch.equal(torch.cat(parts), indices)
    drawn = {float(torch.rand((), generator=generator(0, group.noise, 5))) for group in groups}
    assert len(drawn) == 3
    assert Together(0, 3).noise == Alone().noise


def test_without_torchrun_a_process_is_alone() -> None:
    assert current_group() == Alone()


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Grad strides do not match bucket view strides")  # one channel
def test_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of one, which takes the way of several: no graph, gradients by NCCL."""
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "localhost")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", "0")
    placed = replace(NORMED, machine=Machine(device="cuda:0"), accumulate=2)
    alone = executed(placed, tmp_path / "alone")
    with joined(torch.device("cuda:0")):
        monkeypatch.setattr(module, "current_group", lambda: Together(0, 1))
        grouped = executed(placed, tmp_path / "grouped")
    for name in ("singular_values", "training_loss", "loss"):
        np.testing.assert_allclose(grouped[name], alone[name], rtol=2e-2, atol=2e-3)
