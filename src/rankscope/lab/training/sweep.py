"""Experiments made of trainings: at several weight decays, at several initial scales, or named."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from rankscope.lab.archive.compaction import Compaction, Way
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.training.training_run import TrainingRun


def decay_sweep(
    name: str,
    scale: Scale,
    runs: Iterable[TrainingRun],
    *,
    seconds: Mapping[Scale, int | None],
    compaction: Way | None = None,
) -> Experiment:
    """Return an experiment with one run for each decay.

    The network is the last word of `name`. The variant is the paper's decay that a run stands for.
    """
    network = name.rpartition("/")[2]
    keyed = {}
    for run in runs:
        assert run.paper_decay is not None, "declare the paper's decay that the run stands for"
        keyed[RunKey(network, {"decay": run.paper_decay})] = run
    return trainings(name, scale, keyed, seconds=seconds, compaction=compaction)


def at_decays(
    run: TrainingRun, decays: Iterable[float], *, acting: Callable[[float], float] = float
) -> list[TrainingRun]:
    """Return the run at each decay of the paper; `acting` gives the decay that stands for it."""
    return [run.with_decay(acting(decay), paper=decay) for decay in decays]


def scale_sweep(
    name: str,
    scale: Scale,
    networks: Mapping[str, TrainingRun],
    *,
    init_scales: Iterable[float],
    seconds: Mapping[Scale, int | None],
    paper_on: str = "one H200",
    compaction: Way | None = None,
) -> Experiment:
    """Return an experiment with one run for each network and initial scale."""
    factors = tuple(init_scales)
    runs = {
        RunKey(network, {"scale": factor}): from_scale(run, factor)
        for network, run in networks.items()
        for factor in factors
    }
    return trainings(name, scale, runs, seconds=seconds, paper_on=paper_on, compaction=compaction)


def trainings(
    name: str,
    scale: Scale,
    runs: Mapping[RunKey, TrainingRun],
    *,
    seconds: Mapping[Scale, int | None],
    paper_on: str = "one H200",
    compaction: Way | None = None,
) -> Experiment:
    """Return an experiment of trainings with the seeds and the machine of its scale."""
    return Experiment(
        name=name,
        scale=scale,
        runs=runs,
        seeds=(0,) if scale == "smoke" else (0, 1, 2),
        expected_seconds=seconds[scale],
        expected_on=paper_on if scale == "paper" else "2 cores",
        compaction=compaction or Compaction(),
    )


def from_scale(run: TrainingRun, init_scale: float) -> TrainingRun:
    """Return the run with initial weights multiplied by `init_scale`.

    The model declares a field `init_scale`. At scale 1 the run trains to the end.
    """
    task: Any = run.task
    task = replace(task, model=replace(task.model, init_scale=init_scale))
    return replace(run, task=task, stop=None if init_scale == 1 else run.stop)


def acting_like(decay: float, paper: TrainingRun, run: TrainingRun, *, share: float) -> float:
    """Return the decay whose sum of rate x decay in `run` is `share` of that in `paper`."""
    return decay * share * paper.rate_sum / run.rate_sum
