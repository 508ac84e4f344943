"""One training step of each large network on a GPU: `python -m benchmarks gpu_steps`.

Compares a CUDA graph of the step's own kernels with one of the kernels that the compiler fused. The
data are random and have the paper's shapes.
"""

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.gpu_training import RandomImages
from benchmarks.timing import ratios, seconds, silent, table
from rankscope.lab.data.tokens import Tokens
from rankscope.lab.papers.boix2023 import vit_cifar10
from rankscope.lab.papers.yunis2024 import lm, unet, vgg
from rankscope.lab.tasks.classification import Classification
from rankscope.lab.tasks.diffusion import Diffusion
from rankscope.lab.tasks.language import LanguageModelling
from rankscope.lab.training.execution_context import execution_context
from rankscope.lab.training.step import compiler_at_hand
from rankscope.lab.training.task import Machine, Task
from rankscope.lab.training.training_run import TrainingRun

STEPS = 20  # in one measurement
RUNS = {
    "VGG-16": vgg.PAPER,
    "UNet": unet.PAPER,
    "Transformer": lm.PAPER,
    "ViT": vit_cifar10.PAPER,
}


@dataclass(frozen=True)
class RandomTokens:
    """Random tokens."""

    vocabulary: int

    def build(self, *, folder: Path | None) -> Tokens:
        generator = torch.Generator().manual_seed(0)
        train, validation = (
            torch.randint(self.vocabulary, (n,), generator=generator, dtype=torch.int32)
            for n in (200_000, 5_000)
        )
        return Tokens(train, validation, self.vocabulary)


def random_data(task: Task) -> Task:
    """Return the task with random data of the same shape."""
    match task:
        case Classification():
            return replace(task, images=RandomImages(2_000), test=RandomImages(1_000))
        case Diffusion():
            return replace(task, images=RandomImages(2_000, shape=task.images.shape))
        case LanguageModelling():
            return replace(task, text=RandomTokens(task.text.vocabulary))
    raise ValueError(f"there is no random data for {task}")


def main() -> None:
    if not torch.cuda.is_available():
        Console().print("gpu_steps: torch sees no GPU, nothing is measured")
        return
    if not compiler_at_hand():
        Console().print("gpu_steps: Triton, a C compiler or Python's headers are missing")
        return
    title = "one step of the paper's size, milliseconds"
    steps = table(title, "network", "batch", "graph", "compiled graph", "ratio")
    for name, run in RUNS.items():
        times = measure(replace(run, task=random_data(run.task), machine=Machine("cuda")))
        milliseconds = (f"{1e3 * time / STEPS:.2f}" for time in times.values())
        steps.add_row(
            name, str(run.batch), *milliseconds, f"{ratios(times, to='compiled')['graph']:.2f}"
        )
    Console(width=100).print(steps)


def measure(run: TrainingRun) -> dict[str, float]:
    """Seconds that `STEPS` steps of each kind take, in turn."""
    with ExitStack() as stack:
        stack.enter_context(execution_context(torch.device(run.machine.device)))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with torch.compiler.set_stance("force_eager"):
            graph = captured_steps(run, folder / "graph.zarr", stack)
        return seconds(
            {"graph": graph, "compiled": captured_steps(run, folder / "compiled.zarr", stack)}
        )


def captured_steps(run: TrainingRun, path: Path, stack: ExitStack) -> Callable[[], None]:
    """Return a function that takes `STEPS` steps on one batch; the graph is captured before."""
    loop, _ = stack.enter_context(run.assembled(path, seed=0, progress=silent))
    batch = loop.problem.draw(loop.order(0), torch.Generator().manual_seed(0))
    loop.learn(batch)

    def steps() -> None:
        for _ in range(STEPS):
            loop.learn(batch)

    return steps


if __name__ == "__main__":
    main()
