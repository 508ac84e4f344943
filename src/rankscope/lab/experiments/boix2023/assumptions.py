"""The assumptions of Theorem 4.5 on the toy task (boix2023, App. C, figs. 9 and 10).

Claim B5: in each stage one coordinate wins (Assumption 4.2), every theta^k is a strict local
minimum on its support (4.3), and noise at the start of a stage does not change where it ends (4.4).
The paper's test: perturb the weights above 1e-5 of the run from alpha = 1e-32, at 5 random epochs
with noise of std 0.05, and whenever a weight has just grown past 1e-5 with std 0.01; train on for
1000 epochs beside the run that was not perturbed.

    rankscope run boix2023/assumptions --scale paper

What the paper leaves out, and what we set:
- An epoch. Neither rate nor batch size is printed. Ours lasts 0.04 / max |g(0)|, so that 1000
  epochs are 40 e-foldings of the fastest weight at zero, whatever the loss's normalisation and the
  teacher's scale; a full-batch step of that size is about half of the largest stable one. A weight
  needs log(1e5), about 12, e-foldings from 1e-5 to 1. The distance over all epochs is stored, and
  the evidence counts which trials are back after 100 and 300 too: epochs 10 and 3 times shorter.
- Noise. On u and v independently, and tied: v stays s u. The former changes u^2 - v^2, which is
  conserved, so (u, v) cannot come back; distances are in z, over the coordinates perturbed.
- Random epochs: uniform from the first weight past 1e-5 until the last stage we follow begins.
- Training. Gradient flow, as in boix2023/toy-diag; two teachers.

Expected: B5 by its rule, no: at 1e-32 other coordinates become active within the 1000 epochs, some
a little earlier in the perturbed run, and a weight at 1e-5 that noise lifts to 1e-2 becomes active
much earlier. At small scale 56 of 60 trials at random epochs are back and 27 of 50 of the others;
at 1e-300, where stages last ten times longer, 60 of 60 and 46 of 48. Trials that no other
coordinate disturbs all come back, 94 of 94. By the second rule (B5-limit, alpha -> 0), yes.
With epochs 3 or 10 times shorter fewer are back at 1e-32 (38 and 17 of 60, 3 and 0 of 50), so the
verdict there is the same. At paper scale there are more coordinates to disturb a trial, so that at
1e-32 no trial is undisturbed: 36 of 60 and 11 of 52 are back, at 1e-300 60 of 60 and 43 of 44, of
the undisturbed 61 of 62.
Cost at `paper`: 32 minutes on 2 cores.

Chosen after looking: the length of an epoch (pilots had 0.05 and 0.1 in plain time, in which slow
weights at 1e-5 did not become active within 1000 epochs at all), the runs at 1e-300, what counts
as undisturbed, and the rule of B5-limit. The rule of B5 was fixed before.
"""

from functools import partial

from rankscope.lab.claims.assumptions import assumptions_hold, assumptions_hold_in_the_limit
from rankscope.lab.experiment import Experiment, Run, Scale
from rankscope.lab.paper_figures import newly_active_figure, plateau_figure
from rankscope.lab.simulations.perturbation import PerturbationRun
from rankscope.lab.simulations.task import DiagonalTask

SIZES = {  # d, tokens, samples, stages, random epochs
    "paper": (50, 10, 1000, 4, 5),
    "small": (12, 6, 200, 4, 5),
    "smoke": (4, 3, 30, 1, 1),
}
SECONDS: dict[Scale, int | None] = {"paper": 1900, "small": 200, "smoke": 5}
FIGURES_FROM = "teacher-1/alpha-1e-32"


def experiment(scale: Scale) -> Experiment:
    d, tokens, samples, stages, plateaus = SIZES[scale]
    teachers = (1.0,) if scale == "smoke" else (1.0, 0.5)
    alphas = (-32.0,) if scale == "smoke" else (-32.0, -300.0)
    runs: dict[str, Run] = {}
    for teacher in teachers:
        task = DiagonalTask(d, tokens, samples, teacher_scale=teacher)
        for alpha in alphas:
            name = f"teacher-{teacher:g}/alpha-1e{alpha:g}"
            runs[name] = PerturbationRun(task, alpha, stages, plateaus=plateaus)
    return Experiment(
        name="boix2023/assumptions",
        scale=scale,
        runs=runs,
        seeds=(0,) if scale == "smoke" else (0, 1, 2),
        claims={"B5": assumptions_hold, "B5-limit": assumptions_hold_in_the_limit},
        figures={
            "figure-9": partial(plateau_figure, run=FIGURES_FROM),
            "figure-10": partial(newly_active_figure, run=FIGURES_FROM),
        },
        expected_seconds=SECONDS[scale],
    )
