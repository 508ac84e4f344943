"""Experiments of trainings: a sweep of weight decay, a sweep of initial scale, or named runs."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rankscope.lab.experiment import Claim, Experiment, FigureMaker, Scale
from rankscope.lab.training.run import TrainingRun


def decay_sweep(
    name: str,
    scale: Scale,
    runs: Iterable[TrainingRun],
    *,
    claims: Mapping[str, Claim],
    figures: Mapping[str, FigureMaker],
    seconds: Mapping[Scale, int | None],
) -> Experiment:
    """Declare an experiment with runs named by the paper's decay: "<network>/decay-0.001"."""
    network = name.rpartition("/")[2]
    named = {f"{network}/decay-{run.paper_decay:g}": run for run in runs}
    return trainings(name, scale, named, claims=claims, figures=figures, seconds=seconds)


def scale_sweep(
    name: str,
    scale: Scale,
    networks: Mapping[str, TrainingRun],
    *,
    init_scales: Iterable[float],
    claims: Mapping[str, Claim],
    figures: Mapping[str, FigureMaker],
    seconds: Mapping[Scale, int | None],
    paper_on: str = "one H200",
) -> Experiment:
    """Declare an experiment with runs named by network and initial scale: "<network>/scale-0.1".

    Runs of scale 1 have no early stop.
    """
    init_scales = tuple(init_scales)
    runs = {
        f"{network}/scale-{init_scale:g}": from_scale(run, init_scale)
        for network, run in networks.items()
        for init_scale in init_scales
    }
    return trainings(
        name, scale, runs, claims=claims, figures=figures, seconds=seconds, paper_on=paper_on
    )


def trainings(
    name: str,
    scale: Scale,
    runs: Mapping[str, TrainingRun],
    *,
    claims: Mapping[str, Claim],
    figures: Mapping[str, FigureMaker],
    seconds: Mapping[Scale, int | None],
    paper_on: str = "one H200",
) -> Experiment:
    """Declare an experiment of named trainings, with the seeds and hardware of each scale.

    seconds: expected duration at each scale. paper_on: the hardware expected at scale "paper".
    """
    return Experiment(
        name=name,
        scale=scale,
        runs=runs,
        seeds=(0,) if scale == "smoke" else (0, 1, 2),
        claims=claims,
        figures=figures,
        expected_seconds=seconds[scale],
        expected_on=paper_on if scale == "paper" else "2 cores",
    )


def from_scale(run: TrainingRun, init_scale: float) -> TrainingRun:
    """Return the run with initial weights scaled by `init_scale`, a field of its model."""
    task: Any = run.task
    task = replace(task, model=replace(task.model, init_scale=init_scale))
    return replace(run, task=task, stop=None if init_scale == 1 else run.stop)


def acting_like(decay: float, paper: TrainingRun, run: TrainingRun, *, share: float) -> float:
    """Return the decay whose total effect in `run` is `share` times that of `decay` in `paper`."""
    return decay * share * paper.rate_sum / run.rate_sum
