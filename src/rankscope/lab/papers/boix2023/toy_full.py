"""Stages of an attention head with full matrices (boix2023, section 5, fig. 3 d-f).

The paper observes, beyond its theorem, that singular values of W_V W_O^T and W_K W_Q^T appear one
after another when the four matrices are full and start small (B6).

    rankscope run boix2023/toy-full --scale paper

What the paper leaves out, and what we set:

- Training and loss are those of boix2023/toy-diag. `rankscope.theory.descend_full` trains as the
  paper did.
- Alpha and teacher, which decide what is seen. There are two teachers:
  - gaussian, which the paper names. The first rates of a 50 x 50 Gaussian product lie a few percent
    apart, so rises overlap at alphas that one would train from.
  - aligned, ours, found by trying teachers until both products separated. Its singular values are
    1, 0.6, 0.36 in both products, which share their features.
- Figure 3 shows a diagonal head as in boix2023/toy-diag, from 1e-8, above the aligned full one.
- Length. K-Q rises long after V-O, which drives it. `long` runs repeat both flows of the gaussian
  teacher and go on until K-Q values rise.

`small`: d = 15 for 50, 300 samples for 1000; the gaussian teacher at 1e-8 only; no `long` run.

`smoke`: the aligned teacher only.

Cost: half a minute at `small`, 24 minutes on two cores at `paper`.

Expected at `paper`: rises of the gaussian teacher's V-O overlap at 1e-8 and not at 1e-32, as B6
asks. In the `long` runs only two values of its K-Q rise in turn, so B6 fails there. With the
aligned teacher at 1e-4, B6 holds for K-Q, and in two of three seeds for V-O. Singular values appear
in turn if their rates are spread, or as alpha -> 0.
"""

from dataclasses import replace

from rankscope.lab.archive.compaction import BITS, Compaction
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.papers.boix2023.simulations.flow import FlowRun
from rankscope.lab.papers.boix2023.simulations.full import FullRun, FullTask
from rankscope.lab.papers.boix2023.simulations.task import DiagonalTask
from rankscope.lab.papers.boix2023.toy_diag import FLOWS
from rankscope.lab.running.run_key import Run, RunKey

SIZES: dict[Scale, tuple[int, int, int, int]] = {  # d, tokens, samples, stages of fig. 3 a-c
    "paper": (50, 10, 1000, 12),
    "small": (15, 10, 300, 8),
    "smoke": (8, 10, 60, 3),
}
SECONDS: dict[Scale, int] = {"paper": 1400, "small": 30, "smoke": 4}

COMPACTION = replace(FLOWS, compaction=Compaction({**BITS, **FLOWS.compaction.bits}))


def experiment(scale: Scale) -> Experiment:
    d, tokens, samples, stages = SIZES[scale]
    aligned = FullTask(d, tokens, samples, "aligned")
    gaussian = FullTask(d, tokens, samples, "gaussian")
    runs: dict[RunKey, Run] = {}
    if scale == "paper":
        runs[RunKey("gaussian-1e-32", kind="long")] = FullRun(gaussian, -32.0, until=30.0)
        runs[RunKey("gaussian-1e-8", kind="long")] = FullRun(gaussian, -8.0, until=20.0)
        runs[RunKey("gaussian-1e-32", kind="full")] = FullRun(gaussian, -32.0, until=1.8)
    if scale != "smoke":
        runs[RunKey("gaussian-1e-8", kind="full")] = FullRun(gaussian, -8.0, until=8.0)
    until = 14.0 if scale == "small" else 8.0
    runs[RunKey("aligned-1e-4", kind="full")] = FullRun(aligned, -4.0, until=until)
    diagonal = FlowRun(DiagonalTask(d, tokens, samples), -8.0, stages)
    runs[RunKey("diagonal", {"log10_alpha": -8.0})] = diagonal
    return Experiment(
        name="boix2023/toy-full",
        scale=scale,
        runs=runs,
        seeds=(0,) if scale == "smoke" else (0, 1, 2),
        expected_seconds=SECONDS[scale],
        compaction=COMPACTION,
    )
