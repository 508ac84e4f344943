"""Stages of a diagonal Transformer (boix2023, Examples 3.2 and 4.6), stated there and not run.

2 layers of 4 heads with diagonal weights and frozen feed-forward layers learn from a teacher of the
same form. Example 4.6 concludes from Theorem 4.5 that in each stage at most one head of one layer
gains rank, by one, in W_K W_Q^T or in W_V W_O^T. B1-B3 are judged as in boix2023/toy-diag.

    rankscope run boix2023/diag-transformer --scale paper

As printed, the conclusion fails for more than one head. At z = 0 heads of a layer are exchangeable:
the drive g of one V-O entry is the same in all of them, and they tie exactly. Assumption 4.2 fails
in the first stage, as Algorithm 1 reports. Assumption 4.3 fails too, since only the sum over heads
matters. The flow activates the entry in all heads at once, in shares (u0 + s v0)^2 that no alpha
changes. The sum over heads follows Algorithm 1 until the first K-Q entry. That one waits longer
than Algorithm 1 says, since its drive is only a head's share. Hence we run two networks, on the
same tokens, teacher and (u0, v0):

- alike: as printed.
- bases: each head is diagonal in a random basis of its own, frozen like the feed-forward layers.
  Theorem 4.5 holds with the paper's own start, and heads of both layers take turns.

The paper gives only the network. Scales of teacher and frozen weights are those of
`TransformerTask`; loss, threshold and time are those of boix2023/toy-diag.

`small`: d = 5 for 16, 4 tokens for 10, 40 samples for 200.

`smoke`: 2 heads, d = 2, two alphas.

Cost: 3 to 4 minutes at `small`, half an hour on two cores at `paper`.

Expected at `small`: B1 and B3 hold for bases, with the same constant of
t_k - T_k = c / log(1/alpha) at 1e-1000 and 1e-3000 within 1%. B1 and B2 cannot tell for alike, in
which Algorithm 1 ties.
"""

from dataclasses import replace

from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.papers.boix2023.simulations.algorithm import AlgorithmRun
from rankscope.lab.papers.boix2023.simulations.flow import FlowRun
from rankscope.lab.papers.boix2023.simulations.transformer_task import TransformerTask
from rankscope.lab.papers.boix2023.toy_diag import FLOWS
from rankscope.lab.running.run_key import Run, RunKey

# log10. Both layers add to one residual stream, so that the same entry of both comes at nearly
# the same time: such stages are resolved from 1e-1000 on.
ALPHAS = (-2.0, -8.0, -32.0, -300.0, -1000.0, -3000.0)
SIZES: dict[Scale, tuple[int, int, int, int]] = {  # d, tokens, samples, entries active at 1e-8
    "paper": (16, 10, 200, 12),
    "small": (5, 4, 40, 10),
    "smoke": (2, 3, 10, 4),
}
SECONDS: dict[Scale, int | None] = {"paper": 1800, "small": 200, "smoke": 8}


def experiment(scale: Scale) -> Experiment:
    d, tokens, samples, stages = SIZES[scale]
    smoke = scale == "smoke"
    alike = TransformerTask(d, tokens, samples, layers=2, heads=2 if smoke else 4)
    networks = {"alike": alike, "bases": replace(alike, bases="own")}
    runs: dict[RunKey, Run] = {}
    for network, task in networks.items():
        # Where heads are alike, every stage activates an entry in all of them.
        active = task.heads * (stages // 2) if task is alike else stages
        for alpha in reversed((-32.0, -64.0) if smoke else ALPHAS):
            runs[RunKey(network, {"log10_alpha": alpha})] = FlowRun(task, alpha, active)
        runs[RunKey(network, kind="algorithm")] = AlgorithmRun(task, active)
    return Experiment(
        name="boix2023/diag-transformer",
        scale=scale,
        runs=runs,
        seeds=(0,) if smoke else (0, 1, 2),
        expected_seconds=SECONDS[scale],
        compaction=FLOWS,
    )
