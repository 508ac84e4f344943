"""Stages of a diagonal attention head (boix2023, section 5 and App. C, figs. 3, 6, 7, 8).

One head with diagonal weights learns from another of the same form. As alpha -> 0 its gradient flow
follows Algorithm 1. The loss falls in stages (B1). One entry of W_K W_Q^T or W_V W_O^T becomes
active in each (B2), at times within O(1 / log(1/alpha)) of the algorithm's (B3).

    rankscope run boix2023/toy-diag --scale paper

What the paper leaves out, and what we set:

- Training. The paper used SGD with rates it does not print. We integrate gradient flow, which the
  theorem is about, so there is no step size. Time is divided by log(1/alpha).
- Loss. Half the squared error, summed over the d outputs of a token, averaged over tokens and
  samples. Another normalisation divides all times by a constant.
- Teacher. Its four weight vectors are standard Gaussians, its products multiplied by 1 or by 1/2.
  These are two networks here.
- Threshold. An entry is active when |z| > 0.01. Another threshold moves all times by
  O(1 / log(1/alpha)).
- Alphas. Below the paper's six we add 1e-64, 1e-300 and 1e-1000, where stages are resolved.
- End. Every flow runs until the one from 1e-8 has as many active entries as `SIZES` says.
- Conservation. `conservation` runs integrate u and v apart and store how far u^2 - v^2 drifts. It
  is an identity, so no claim reads them; our tests check it.

`small`: d = 12 for 50, 6 tokens for 10, 200 samples for 1000, 8 active entries for 12.

`smoke`: one teacher, three alphas.

Cost: a minute at `small`; at `paper` 9 minutes for one teacher and seed.

Expected at `small`: the loss approaches Algorithm 1's staircase (B1), and errors of activation
times fall like 1 / log(1/alpha) (B3). In one seed a late coordinate falls into a later, resolved
stage (B2).
"""

from rankscope.lab.archive.compaction import Compaction, Thinned
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.papers.boix2023.simulations.algorithm import AlgorithmRun
from rankscope.lab.papers.boix2023.simulations.conservation import ConservationRun
from rankscope.lab.papers.boix2023.simulations.flow import FlowRun
from rankscope.lab.papers.boix2023.simulations.task import DiagonalTask
from rankscope.lab.running.run_key import Run, RunKey

ALPHAS = (-1.0, -2.0, -4.0, -8.0, -16.0, -32.0, -64.0, -300.0, -1000.0)  # log10
SIZES: dict[Scale, tuple[int, int, int, int]] = {  # d, tokens, samples, stages
    "paper": (50, 10, 1000, 12),
    "small": (12, 6, 200, 8),
    "smoke": (5, 4, 30, 3),
}
SECONDS: dict[Scale, int] = {"paper": 3200, "small": 60, "smoke": 5}
# Figures show entries over time, which are at most about 1; claims read only when they cross the
# threshold. Small entries are in the log coordinate y.
FLOWS = Thinned(Compaction({"y": 7}), ("z", "y"), most=120, grains={"z": 2**-11})


def experiment(scale: Scale) -> Experiment:
    d, tokens, samples, stages = SIZES[scale]
    smoke = scale == "smoke"
    runs: dict[RunKey, Run] = {}
    for teacher in (1.0,) if smoke else (1.0, 0.5):
        task = DiagonalTask(d, tokens, samples, teacher_scale=teacher)
        network = f"teacher-{teacher:g}"
        for alpha in reversed((-2.0, -64.0, -300.0) if smoke else ALPHAS):
            runs[RunKey(network, {"log10_alpha": alpha})] = FlowRun(task, alpha, stages)
        runs[RunKey(network, kind="algorithm")] = AlgorithmRun(task, stages)
        runs[RunKey(network, kind="conservation")] = ConservationRun(
            task, log10_alpha=-2.0, stages=2, rate=0.1, steps=100
        )
    return Experiment(
        name="boix2023/toy-diag",
        scale=scale,
        runs=runs,
        seeds=(0,) if smoke else (0, 1, 2),
        expected_seconds=SECONDS[scale],
        compaction=FLOWS,
    )
