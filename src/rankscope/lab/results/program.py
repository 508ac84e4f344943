"""Which runs of the papers' own size are due, in the order in which they are to be made."""

from collections.abc import Iterator
from dataclasses import dataclass

from rankscope.lab.catalogue import load, load_paper
from rankscope.lab.paper import Paper


@dataclass(frozen=True)
class Batch:
    """Seeds of one experiment. optional: as machine time allows."""

    experiment: str
    seeds: tuple[int, ...]
    optional: bool = False

    @property
    def command(self) -> str:
        """What makes these runs."""
        return run_command(self.experiment, *self.seeds)


@dataclass(frozen=True)
class DueRun:
    """One run with one seed, and the batch it is part of."""

    batch: Batch
    run: str
    seed: int

    @property
    def key(self) -> tuple[str, str, int]:
        return self.batch.experiment, self.run, self.seed


FIRST = (0,)
MORE = (1, 2)

PROGRAM = (
    Batch("yunis2024/mlp", FIRST),
    Batch("yunis2024/vgg", FIRST),
    Batch("boix2023/vit-cifar10", FIRST),
    Batch("yunis2024/unet", FIRST),
    Batch("yunis2024/grok", FIRST),
    Batch("yunis2024/lm", FIRST),
    Batch("yunis2024/lstm", FIRST),
    Batch("yunis2024/mlp", MORE),
    Batch("yunis2024/vgg", MORE),
    # On a CPU.
    Batch("boix2023/toy-diag", (*FIRST, *MORE)),
    Batch("boix2023/toy-full", (*FIRST, *MORE)),
    Batch("boix2023/assumptions", (*FIRST, *MORE)),
    Batch("boix2023/diag-transformer", (*FIRST, *MORE)),
    Batch("boix2023/vit-cifar10", MORE, optional=True),
    Batch("yunis2024/unet", MORE, optional=True),
    Batch("yunis2024/grok", MORE, optional=True),
    Batch("yunis2024/lm", MORE, optional=True),
    Batch("yunis2024/lstm", MORE, optional=True),
)


def run_command(experiment: str, *seeds: int) -> str:
    """What to type for these seeds of an experiment at the paper's size."""
    chosen = "".join(f" --seed {seed}" for seed in seeds)
    return f"rankscope run {experiment} --scale paper{chosen}"


def due_runs() -> Iterator[DueRun]:
    """Every run of every batch."""
    for batch in PROGRAM:
        runs = load(batch.experiment, "paper").runs
        yield from (DueRun(batch, run, seed) for seed in batch.seeds for run in runs)


def due_papers() -> tuple[Paper, ...]:
    """The papers that these experiments are from."""
    names = dict.fromkeys(batch.experiment.partition("/")[0] for batch in PROGRAM)
    return tuple(load_paper(name, "paper") for name in names)
