"""A paper of one experiment."""

from lab.toy_study import FALLS, RISES, experiment, loss_over_time
from rankscope.lab.experiment import FigureRule, Scale, Study


def study(scale: Scale) -> Study:
    return Study(
        "paper2000",
        "Losses & their <decay>",
        scale,
        (experiment(scale),),
        claims=(FALLS, RISES),
        figures=(FigureRule("figure-1", loss_over_time),),
        highlights=("figure-1",),
    )
