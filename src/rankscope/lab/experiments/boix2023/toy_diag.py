"""Stages of a diagonal attention head (boix2023, section 5 and App. C, figs. 3, 6, 7, 8).

One head with diagonal weights learns from another of the same form. As alpha -> 0 its gradient
flow follows Algorithm 1: the loss falls in stages (B1), at most one entry of W_K W_Q^T or
W_V W_O^T becomes active in each (B2), at times within O(1 / log(1/alpha)) of the algorithm's (B3);
u^2 - v^2 is conserved (B4).

    rankscope run boix2023/toy-diag --scale paper

What the paper leaves out, and what we set:
- Training. It used SGD with rates it does not print; we integrate gradient flow, of which the
  theorem speaks, so there is no step size. Time is rescaled by log(1/alpha).
- Loss. Half the squared error, summed over the d outputs of a token, averaged over tokens and
  samples. Another normalisation divides all times by a constant.
- Teacher. Its four weight vectors are standard Gaussians, its products multiplied by 1 or by 1/2:
  two networks here, and a claim holds only if it does for both.
- Threshold. An entry counts as active when |z| > 0.01; another threshold moves all times by
  O(1 / log(1/alpha)).
- Below the paper's six alphas we add 1e-64, 1e-300 and 1e-1000, where stages are resolved.

Every flow runs until the one from 1e-8 has `stages` active entries.

Cost: a minute at `small`; at `paper` 4 minutes for one teacher and seed, with 11 to 14 stages.
Expected at `small`: errors of activation times fall like 1 / log(1/alpha), 0.2 to 3.1% at 1e-32 and
a tenth of that at 1e-300 on resolved stages; B3, B4 yes. B1 yes until the share is 1, at 1e-300
(B1-saturated). B2 yes on clear stages (B2-clear); in one seed a late coordinate falls into a
stage that is resolved by its own numbers.
"""

from rankscope.lab.claims.stages import STAGE_CLAIMS, conservation_holds
from rankscope.lab.experiment import Experiment, Run, Scale
from rankscope.lab.paper_figures import stage_figures
from rankscope.lab.simulations.algorithm import AlgorithmRun
from rankscope.lab.simulations.conservation import ConservationRun
from rankscope.lab.simulations.flow import FlowRun
from rankscope.lab.simulations.task import DiagonalTask

ALPHAS = (-1.0, -2.0, -4.0, -8.0, -16.0, -32.0, -64.0, -300.0, -1000.0)  # log10
SIZES: dict[Scale, tuple[int, int, int, int]] = {  # d, tokens, samples, stages
    "paper": (50, 10, 1000, 12),
    "small": (12, 6, 200, 8),
    "smoke": (5, 4, 30, 3),
}
NUMBERS = {"loss": "figure-6", "entries-kq": "figure-7", "entries-vo": "figure-8"}
SECONDS: dict[Scale, int] = {"paper": 3200, "small": 60, "smoke": 5}


def experiment(scale: Scale) -> Experiment:
    d, tokens, samples, stages = SIZES[scale]
    smoke = scale == "smoke"
    runs: dict[str, Run] = {}
    for teacher in (1.0,) if smoke else (1.0, 0.5):
        task = DiagonalTask(d, tokens, samples, teacher_scale=teacher)
        network = f"teacher-{teacher:g}"
        for alpha in reversed((-2.0, -64.0, -300.0) if smoke else ALPHAS):
            runs[f"{network}/alpha-1e{alpha:g}"] = FlowRun(task, alpha, stages)
        runs[f"{network}/algorithm"] = AlgorithmRun(task, stages)
        runs[f"{network}/conservation"] = ConservationRun(
            task, log10_alpha=-2.0, stages=2, rate=0.1, steps=100
        )
    return Experiment(
        name="boix2023/toy-diag",
        scale=scale,
        runs=runs,
        seeds=(0,) if smoke else (0, 1, 2),
        claims={**STAGE_CLAIMS, "B4": conservation_holds},
        figures={
            NUMBERS.get(name, name): make for name, make in stage_figures("teacher-1").items()
        },
        expected_seconds=SECONDS[scale],
    )
