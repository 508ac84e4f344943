"""A loss decays at two rates.

The claim P1 holds for all seeds, P2 for none.
"""

from collections.abc import Callable, Iterator
from functools import partial

from matplotlib.figure import Figure

from lab.toy_runs import Decay
from rankscope.lab.experiment import Experiment, FigureRule, Scale
from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs, runs_of
from rankscope.lab.running.run_key import RunKey

FAST, SLOW = RunKey("fast", {"rate": 2.0}), RunKey("slow", {"rate": 1.0})


def experiment(scale: Scale) -> Experiment:
    return Experiment(
        name="paper2000/slow-decay",
        scale=scale,
        runs={FAST: Decay(rate=2.0), SLOW: Decay(rate=1.0)},
        seeds=(0,) if scale == "smoke" else (0, 1, 2),
        claims=(FALLS, RISES),
        figures=(FigureRule("figure-1", loss_over_time),),
        expected_seconds={"paper": 7200, "small": 90.0, "smoke": None}[scale],
    )


def measure(runs: Runs, *, meets: Callable[[float], bool]) -> Iterator[Measured]:
    """Divides the last loss by the first."""
    for key in runs:
        for seed, ds in runs[key].items():
            share = float(ds["loss"][-1] / ds["loss"][0])
            yield Measured(share, meets(share), rows=({"share [left]": share},)).at(key, seed)


def loss_over_time(runs: Runs) -> Figure:
    """The loss falls <fast>.

    A line for each run & seed.
    """
    figure = Figure()
    axes = figure.add_subplot()
    for key in runs:
        for ds in runs[key].values():
            axes.plot(ds["time"], ds["loss"])
    return figure


QUANTITY = "last over first loss"
FALLS = Rule("P1", "the loss falls", QUANTITY, "< 0.2", partial(measure, meets=(0.2).__gt__))
RISES = Rule(
    "P2", "the loss rises", QUANTITY, "> 1", partial(measure, meets=(1.0).__lt__), runs_of("fast")
)
