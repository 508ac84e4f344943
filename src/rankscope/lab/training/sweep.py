"""Trainings as an experiment: at several weight decays, at several initial scales, or named."""

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
    """Runs are named by the paper's decay they stand for: "vgg/decay-0.001" of yunis2024/vgg."""
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
    """Runs are named by network and initial scale: "vit/scale-0.1"; scale 1 trains to the end."""
    every = tuple(init_scales)
    runs = {
        f"{network}/scale-{each:g}": from_scale(run, each)
        for network, run in networks.items()
        for each in every
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
    """An experiment of trainings: their seeds, and on what they run, at each scale."""
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
    """The same from initial weights so many times as large; the model has an `init_scale`."""
    task: Any = run.task
    task = replace(task, model=replace(task.model, init_scale=init_scale))
    return replace(run, task=task, stop=None if init_scale == 1 else run.stop)


def acting_like(decay: float, paper: TrainingRun, run: TrainingRun, *, share: float) -> float:
    """The decay that acts in `run` as much in all as `decay` does in the paper's, times `share`."""
    return decay * share * paper.rate_sum / run.rate_sum
