"""A loss decays at two rates.

The claim P1 holds for all seeds; P2 for none; at `smoke` there is one seed only.
"""

from matplotlib.figure import Figure

from lab.toy_runs import Decay
from rankscope.lab.experiment import Experiment, Results, Scale
from rankscope.lab.verdict import Table, Verdict, judge


def experiment(scale: Scale) -> Experiment:
    return Experiment(
        name="paper2000/slow-decay",
        scale=scale,
        runs={"rates/fast": Decay(rate=2.0), "rates/slow": Decay(rate=1.0)},
        seeds=(0,) if scale == "smoke" else (0, 1, 2),
        claims={"P1": losses_fall, "P2": losses_rise},
        figures={"figure-1": loss_over_time},
        expected_seconds={"paper": 7200, "small": 90.0, "smoke": None}[scale],
    )


def losses_fall(results: Results) -> Verdict:
    """The loss falls to less than a fifth at both rates."""
    kept = {
        name: {s: last_by_first(ds) for s, ds in runs.items()} for name, runs in results.items()
    }
    return judge(
        "P1",
        "the loss falls",
        {name: {s: (part, part < 0.2) for s, part in each.items()} for name, each in kept.items()},
        bound="< 0.2",
        evidence=("measured at the last [row]",),
        tables=(Table(("run", "seeds"), tuple((name, len(each)) for name, each in kept.items())),),
    )


def losses_rise(results: Results) -> Verdict:
    """The loss of the fast run rises."""
    parts = {seed: last_by_first(ds) for seed, ds in results["rates/fast"].items()}
    outcomes = {"fast": {seed: (part, part > 1) for seed, part in parts.items()}}
    return judge("P2", "the loss rises", outcomes, bound="> 1")


def last_by_first(ds) -> float:
    return float(ds["loss"][-1] / ds["loss"][0])


def loss_over_time(results: Results) -> Figure:
    figure = Figure()
    axes = figure.add_subplot()
    for runs in results.values():
        for ds in runs.values():
            axes.plot(ds["time"], ds["loss"])
    return figure
