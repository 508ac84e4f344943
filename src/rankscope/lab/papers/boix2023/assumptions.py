"""Assumptions of Theorem 4.5 on the toy task (boix2023, App. C, figs. 9 and 10).

In each stage one coordinate wins (Assumption 4.2), every theta^k is a strict local minimum on its
support (4.3), and noise at the start of a stage does not change where it ends (4.4): claim B5. The
paper perturbs the weights above 1e-5 of the run from alpha = 1e-32. It does so at 5 random epochs
with noise of std 0.05, and whenever a weight has just grown past 1e-5 with std 0.01. It trains on
for 1000 epochs beside the run that was not perturbed.

    rankscope run boix2023/assumptions --scale paper

What the paper leaves out, and what we set:

- Epoch. Neither rate nor batch size is printed. Our epoch lasts 0.04 / max |g(0)|, so 1000 epochs
  are 40 e-foldings of the fastest weight at zero, whatever the loss's normalisation and the
  teacher's scale. A full-batch step of that size is about half of the largest stable one. A weight
  needs log(1e5), about 12, e-foldings from 1e-5 to 1. The evidence also counts the trials that are
  back after 100 and 300 epochs, which stands for epochs 10 and 3 times shorter.
- Noise. On u and v independently, and tied: v stays s u. Independent noise changes u^2 - v^2, which
  is conserved, so (u, v) cannot come back. Distances are in z, over the coordinates perturbed.
- Random epochs. Uniform from the first weight past 1e-5 until the last stage we follow begins.
- Training. Gradient flow, as in boix2023/toy-diag; two teachers.
- Alphas. We add 1e-300, where stages last ten times longer.

We chose four things after looking: the length of an epoch, the runs at 1e-300, what counts as
undisturbed, and the rule of B5, whose first version we had fixed before any run. Pilots had epochs
of 0.05 and 0.1 in plain time, within 1000 of which slow weights at 1e-5 did not become active.

`small`: d = 12 for 50, 6 tokens for 10, 200 samples for 1000.

`smoke`: one teacher, one alpha, one stage.

Cost: 3 minutes at `small`, 32 minutes on two cores at `paper`.

Expected: at 1e-32 nearly all trials end within 5% of the unperturbed run (B5).
Relative to the perturbation, which is small, many do not come back (B5-first): other coordinates
become active within the 1000 epochs, some a little earlier in the perturbed run. A weight at 1e-5
that noise lifts to 1e-2 becomes active much earlier. At 1e-300 nearly all trials come back.
"""

from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.papers.boix2023.simulations.perturbation import PerturbationRun
from rankscope.lab.papers.boix2023.simulations.task import DiagonalTask
from rankscope.lab.running.run_key import Run, RunKey

SIZES = {  # d, tokens, samples, stages, random epochs
    "paper": (50, 10, 1000, 4, 5),
    "small": (12, 6, 200, 4, 5),
    "smoke": (4, 3, 30, 1, 1),
}
SECONDS: dict[Scale, int | None] = {"paper": 1900, "small": 200, "smoke": 5}


def experiment(scale: Scale) -> Experiment:
    d, tokens, samples, stages, plateaus = SIZES[scale]
    teachers = (1.0,) if scale == "smoke" else (1.0, 0.5)
    alphas = (-32.0,) if scale == "smoke" else (-32.0, -300.0)
    runs: dict[RunKey, Run] = {}
    for teacher in teachers:
        task = DiagonalTask(d, tokens, samples, teacher_scale=teacher)
        for alpha in alphas:
            key = RunKey(f"teacher-{teacher:g}", {"log10_alpha": alpha})
            runs[key] = PerturbationRun(task, alpha, stages, plateaus=plateaus)
    return Experiment(
        name="boix2023/assumptions",
        scale=scale,
        runs=runs,
        seeds=(0,) if scale == "smoke" else (0, 1, 2),
        expected_seconds=SECONDS[scale],
    )
