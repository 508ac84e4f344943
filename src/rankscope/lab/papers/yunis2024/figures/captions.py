"""The figures of yunis2024 by number. The docstring of each function is its caption."""

from rankscope.lab.experiment import FigureRule
from rankscope.lab.judging.selected_runs import runs_of
from rankscope.lab.papers.yunis2024.figures.alignment import figure_3
from rankscope.lab.papers.yunis2024.figures.decay import decay_overview, rank_by_decay
from rankscope.lab.papers.yunis2024.figures.grokking import grokking
from rankscope.lab.papers.yunis2024.figures.memorization import figure_7
from rankscope.lab.papers.yunis2024.figures.networks import figure_1, figure_2
from rankscope.lab.papers.yunis2024.figures.samples import samples
from rankscope.lab.papers.yunis2024.figures.settings import TITLES
from rankscope.lab.papers.yunis2024.figures.sweeps import figure_4, figure_5
from rankscope.lab.papers.yunis2024.figures.truncated import figure_6
from rankscope.lab.papers.yunis2024.runs import BASE, base_runs, decay_sweeps

__all__ = ["FIGURES", "TITLES"]

FIGURES = (
    FigureRule("figure-1", figure_1, base_runs),
    FigureRule("figure-2", figure_2, base_runs),
    FigureRule("figure-3", figure_3, base_runs),
    FigureRule("figure-4", figure_4, decay_sweeps),
    FigureRule("figure-5", figure_5, decay_sweeps),
    FigureRule("figure-6", figure_6, decay_sweeps),
    FigureRule("figure-7", figure_7, runs_of("mlp")),
    FigureRule("rank-by-decay", rank_by_decay, runs_of(*BASE, "grok", parameter="decay")),
    FigureRule("decay-overview", decay_overview, runs_of(*BASE, "grok", parameter="decay")),
    FigureRule("grokking", grokking, runs_of("grok", parameter="decay")),
    FigureRule("samples", samples, runs_of("unet", parameter="decay")),
)
