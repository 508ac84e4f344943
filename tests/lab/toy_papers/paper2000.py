"""A paper whose claims are judged on the runs of its one experiment."""

from lab.toy_experiments.paper2000.slow_decay import loss_over_time, losses_fall, losses_rise
from rankscope.lab.catalogue import experiments_of
from rankscope.lab.experiment import Scale
from rankscope.lab.paper import Paper


def paper(scale: Scale) -> Paper:
    return Paper(
        name="paper2000",
        title="Losses & their <decay>",
        scale=scale,
        experiments=experiments_of("paper2000", scale),
        claims={"P1": losses_fall, "P2": losses_rise},
        figures={"figure-1": loss_over_time},
    )
