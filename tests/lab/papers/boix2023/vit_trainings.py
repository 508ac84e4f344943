"""Trainings that an experiment declares, by name."""

from rankscope.lab.experiment import Experiment
from rankscope.lab.training.run import TrainingRun


def trainings(experiment: Experiment) -> dict[str, TrainingRun]:
    """Return all runs of the experiment; every one has to be a training."""
    runs = {}
    for key, run in experiment.runs.items():
        assert isinstance(run, TrainingRun)
        runs[key.name] = run
    return runs
