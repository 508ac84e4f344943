"""The figures of our findings by name. The docstring of each function is its caption."""

from rankscope.lab.experiment import FigureRule
from rankscope.lab.judging.selected_runs import runs_of
from rankscope.lab.papers.boix2023.figures.head_cuts import kept_accuracy
from rankscope.lab.papers.findings.figures.clock import clock, clock_lm
from rankscope.lab.papers.findings.figures.crossings import grokking_rank
from rankscope.lab.papers.findings.figures.needed_rank import needed_rank

FIGURES = (
    FigureRule("clock", clock, runs_of("vit", experiment="findings/clock")),
    FigureRule("clock-lm", clock_lm, runs_of("lm", experiment="findings/clock")),
    FigureRule("needed-rank", needed_rank, runs_of(experiment="findings/needed-rank")),
    FigureRule("kept-accuracy", kept_accuracy, runs_of(experiment="findings/needed-rank")),
    FigureRule("grokking-rank", grokking_rank, runs_of(experiment="findings/grokking-rank")),
)
