"""One network at several weight decays, as an experiment."""

from collections.abc import Iterable, Mapping

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
    return Experiment(
        name=name,
        scale=scale,
        runs={f"{network}/decay-{run.paper_decay:g}": run for run in runs},
        seeds=(0,) if scale == "smoke" else (0, 1, 2),
        claims=claims,
        figures=figures,
        expected_seconds=seconds[scale],
        expected_on="one H200" if scale == "paper" else "2 cores",
    )


def acting_like(decay: float, paper: TrainingRun, run: TrainingRun, *, share: float) -> float:
    """The decay that acts in `run` as much in all as `decay` does in the paper's, times `share`."""
    return decay * share * paper.rate_sum / run.rate_sum
