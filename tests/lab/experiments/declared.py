"""The trainings that an experiment declares."""

from rankscope.lab.experiment import Experiment
from rankscope.lab.training.run import TrainingRun


def trainings(experiment: Experiment) -> dict[str, TrainingRun]:
    """All its runs; every one has to be a training."""
    found = {}
    for name, run in experiment.runs.items():
        assert isinstance(run, TrainingRun)
        found[name] = run
    return found


def by_decay(experiment: Experiment) -> dict[float, TrainingRun]:
    """The same by the paper's decay."""
    found = {}
    for run in trainings(experiment).values():
        assert run.paper_decay is not None
        found[run.paper_decay] = run
    return found
