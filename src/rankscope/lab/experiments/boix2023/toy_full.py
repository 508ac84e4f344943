"""Stages of an attention head with full matrices (boix2023, section 5, fig. 3 d-f).

Beyond the theorem: the paper observes that singular values of W_V W_O^T and W_K W_Q^T appear one
after another when the four matrices are full and start small (B6).

    rankscope run boix2023/toy-full --scale paper

What the paper leaves out, and what we set: alpha, the teacher, the step size (we integrate gradient
flow; `rankscope.theory.descend_full` trains as the paper did), the loss as in toy-diag. The teacher
decides what is seen, so there are two:
- gaussian, of which the paper speaks. The first rates of a 50 x 50 Gaussian product lie a few
  percent apart, so that rises overlap at alphas that one would train from.
- aligned, ours, found by trying teachers until both products separated: singular values 1, 0.6,
  0.36 in both products, which share their features.

Cost: half a minute at `small`, 14 minutes on two cores at `paper`. Expected at `paper`: no. Of the
gaussian teacher, V-O separates 1 value at 1e-8 and 3 to 6 at 1e-32 (a flow that ends before K-Q
rises); K-Q has not risen by the end at 1e-8 either. Of the aligned one at 1e-4, V-O 3, 3 and 2
values, K-Q 3. So singular values appear in turn if their rates are spread, or as alpha -> 0.

Figure 3 shows the diagonal head of toy-diag, from 1e-8, above the aligned full one.
"""

from functools import partial

from rankscope.lab.claims.full_matrices import values_rise_in_turn
from rankscope.lab.experiment import Experiment, Run, Scale
from rankscope.lab.paper_figures import figure_3, rises_figure
from rankscope.lab.simulations.flow import FlowRun
from rankscope.lab.simulations.full import FullRun, FullTask
from rankscope.lab.simulations.task import DiagonalTask

SIZES: dict[Scale, tuple[int, int, int, int]] = {  # d, tokens, samples, stages of fig. 3 a-c
    "paper": (50, 10, 1000, 12),
    "small": (15, 10, 300, 8),
    "smoke": (8, 10, 60, 3),
}
SECONDS: dict[Scale, int] = {"paper": 820, "small": 30, "smoke": 4}


def experiment(scale: Scale) -> Experiment:
    d, tokens, samples, stages = SIZES[scale]
    aligned = FullTask(d, tokens, samples, "aligned")
    plain = FullTask(d, tokens, samples, "gaussian")
    runs: dict[str, Run] = {
        "aligned-1e-4/full": FullRun(aligned, -4.0, until=8.0 if scale != "small" else 14.0),
        "diagonal/alpha-1e-8": FlowRun(DiagonalTask(d, tokens, samples), -8.0, stages),
    }
    if scale != "smoke":
        runs = {"gaussian-1e-8/full": FullRun(plain, -8.0, until=8.0), **runs}
    if scale == "paper":
        runs = {"gaussian-1e-32/full": FullRun(plain, -32.0, until=1.8), **runs}
    return Experiment(
        name="boix2023/toy-full",
        scale=scale,
        runs=runs,
        seeds=(0,) if scale == "smoke" else (0, 1, 2),
        claims={"B6": values_rise_in_turn},
        figures={
            "figure-3": partial(figure_3, diagonal="diagonal/alpha-1e-8", full="aligned-1e-4/full"),
            **{
                f"rises-{name.removesuffix('/full')}": partial(rises_figure, run=name)
                for name in runs
                if name.endswith("/full")
            },
        },
        expected_seconds=SECONDS[scale],
    )
