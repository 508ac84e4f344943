"""A toy training for several processes.

python -m lab.training.toy_together FOLDER     starts two; each prints to FOLDER/said-RANK
"""

import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # by torch's optimizers in any case, but here once for all processes
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lab.training.toy_task import Clouds, silent
from rankscope.lab.data.crops import Crops
from rankscope.lab.data.patterns import Patterns
from rankscope.lab.models.vit import VitConfig
from rankscope.lab.tasks.streamed import StreamedClassification
from rankscope.lab.training import loop
from rankscope.lab.training.distributed import SharedFailure, current_group
from rankscope.lab.training.optimizers import AdamW, Sgd
from rankscope.lab.training.stopping import Settled
from rankscope.lab.training.task import Batch, Machine
from rankscope.lab.training.training_run import TrainingRun
from rankscope.tracker import Every


class PlainClouds(Clouds):
    """A problem without BatchNorm and noise, so that two processes learn what one does."""

    def __init__(self, seed: int, *, breaks: int | None) -> None:
        super().__init__(seed, noisy=False)
        self.model.norm = nn.Identity()
        self._breaks = breaks
        self._drawn = 0

    def draw(self, indices: Tensor, drawn: torch.Generator) -> Batch:
        self._drawn += 1
        if current_group().rank == self._breaks and self._drawn == 25:
            raise ArithmeticError("no more clouds")
        return super().draw(indices, drawn)

    def final_attributes(self, model: nn.Module) -> Mapping[str, Any]:
        return {"weights": torch.cat([weight.flatten() for weight in model.parameters()]).tolist()}


@dataclass(frozen=True)
class PlainCloudTask:
    """unbuilt: the process that fails to build it. breaks: the one that fails in its 25th step."""

    unbuilt: int | None = None
    breaks: int | None = None
    ahead: int = 0

    def build(self, machine: Machine, *, seed: int) -> PlainClouds:
        if current_group().rank == self.unbuilt:
            raise LookupError("no clouds")
        problem = PlainClouds(seed, breaks=self.breaks)
        problem.ahead = self.ahead
        return problem


RUN = TrainingRun(
    task=PlainCloudTask(),
    optimizer=Sgd(rate=0.05, decay=0.01),
    steps=60,
    batch=20,
    snapshots=Every(10),
)
IN_PARTS = replace(
    RUN,
    task=PlainCloudTask(ahead=2),
    optimizer=AdamW(rate=0.01),
    clip=0.5,
    accumulate=4,
    stop=Settled(loss=0.6, steps=20),
)

STREAMED = TrainingRun(
    task=StreamedClassification(
        Patterns(count=60),
        Patterns("validation", 20),
        VitConfig(12, 3, 6, depth=1, heads=1, width=4, hidden=4, head_width=2),
        Crops(12),
        window=1,
    ),
    optimizer=AdamW(rate=0.01),
    steps=7,
    batch=10,
    snapshots=Every(3),
)


def meet(rank: int, folder: Path) -> None:
    """Two processes find each other by a file, so that tests side by side need no ports."""
    meeting = f"file://{folder}/meeting"
    dist.init_process_group = partial(  # type: ignore[assignment]
        dist.init_process_group, init_method=meeting, rank=rank, world_size=2
    )


def forked(rank: int, folder: Path, act: Callable[[int, Path], None]) -> int:
    """Fork a process that acts, prints to a file and exits; return its number.

    Forking saves the imports, which would take longest. Nothing was computed before.
    """
    if child := os.fork():
        return child
    with (folder / f"said-{rank}").open("w") as output:
        for number in (1, 2):
            os.dup2(output.fileno(), number)
    meet(rank, folder)
    act(rank, folder)
    sys.exit(0)


def exit_codes(children: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def take_part(rank: int, folder: Path) -> None:
    dist.init_process_group("gloo")
    RUN.execute(folder / "plain", seed=0, progress=silent)

    exchanges = []
    quiet = DistributedDataParallel.no_sync
    DistributedDataParallel.no_sync = lambda self: exchanges.append("none") or quiet(self)
    IN_PARTS.execute(folder / "in parts", seed=0, progress=silent)
    print("calls without exchange:", len(exchanges))

    for task in (PlainCloudTask(unbuilt=0), PlainCloudTask(unbuilt=1)):
        refused(replace(RUN, task=task), folder / "unbuilt")
    refused(replace(RUN, accumulate=5), folder / "odd")
    stopped_and_resumed(RUN, folder / "resumed", at=35)
    os.environ["RANKSCOPE_CACHE"] = str(folder / "cache")
    STREAMED.execute(folder / "streamed", seed=0, progress=silent)
    stopped_and_resumed(STREAMED, folder / "streamed and resumed", at=5)
    dist.destroy_process_group()


def refused(run: TrainingRun, path: Path) -> None:
    try:
        run.execute(path, seed=0, progress=silent)
    except SharedFailure as failure:
        print("refused:", failure)


def stopped_and_resumed(run: TrainingRun, path: Path, *, at: int) -> None:
    """Stop both processes before step `at` is counted, then resume from the last checkpoint."""
    loop.CHECKPOINT_SECONDS, loop.CHECKPOINT_SHARE = -1.0, math.inf
    tick = loop.Meter.tick

    def deadly(meter: loop.Meter, step: int, loss: Tensor) -> None:
        if step == at:
            raise InterruptedError
        tick(meter, step, loss)

    loop.Meter.tick = deadly  # type: ignore[method-assign]
    try:
        run.execute(path, seed=0, progress=silent)
    except InterruptedError:
        print("stopped")
    dist.barrier()
    refused(run, path if dist.get_rank() == 0 else path.with_name("elsewhere"))
    counted = []
    loop.Meter.tick = lambda meter, step, loss: counted.append(step) or tick(meter, step, loss)
    run.execute(path, seed=0, progress=silent)
    print("went on at", counted[0])
    loop.Meter.tick = tick  # type: ignore[method-assign]


if __name__ == "__main__":
    codes = exit_codes([forked(rank, Path(sys.argv[1]), take_part) for rank in range(2)])
    sys.exit(max(codes))
