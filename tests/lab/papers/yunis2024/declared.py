"""The trainings that an experiment declares."""

from rankscope.lab.experiment import Experiment
from rankscope.lab.training.run import TrainingRun


def trainings(experiment: Experiment) -> dict[str, TrainingRun]:
    """Return every run by its name; each is a training."""
    runs = {}
    for key, run in experiment.runs.items():
        assert isinstance(run, TrainingRun)
        runs[key.name] = run
    return runs


def by_decay(experiment: Experiment) -> dict[float, TrainingRun]:
    """Return every run by the paper's decay."""
    runs = {}
    for run in trainings(experiment).values():
        assert run.paper_decay is not None
        runs[run.paper_decay] = run
    return runs
