"""The laboratory: experiments, studies, and the commands that run and judge them."""

from rankscope.lab.experiment import Experiment, FigureRule, Scale, Study, study_of
from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs, runs_of
from rankscope.lab.running.run_key import Run, RunKey

__all__ = [
    "Experiment",
    "FigureRule",
    "Measured",
    "Rule",
    "Run",
    "RunKey",
    "Runs",
    "Scale",
    "Study",
    "runs_of",
    "study_of",
]
