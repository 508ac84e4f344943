"""Grokking modular addition (yunis2024, app. D speaks of these runs; settings from its code).

A one-layer Transformer without LayerNorm learns (a + b) mod p from a part of all pairs, in full
batches. With decay it knows the training pairs by heart long before it can add; when it begins to,
its ranks drop (Y9). Without decay it does not within the same steps: the control.

    rankscope run yunis2024/grok --scale small

`paper`: p = 113, 30% of pairs, 40,000 steps of AdamW at 1e-3 with betas 0.9 and 0.98, decays 0, 0.1
and 1, a snapshot every 100 steps. The network is that of the authors' code, their language model
with one layer and no norms; nanda2023's, whose task it is, has learnt positions and no biases.

`small`: p = 59, 40% of pairs, three eighths as wide. Rate 3e-3 for 6,600 steps and decays twice the
paper's: sum(rate x decay) is the paper's but for 1%. Runs are named by the paper's decay they stand
for. Expected at decay 1: training accuracy 100% near step 1,000, test accuracy past 50% between
steps 1,700 and 2,200 and at 100% some 300 steps later, with the steepest fall of the ranks within
0.1 in log10 step. At decay 0 test accuracy stays under 40%. Such rates make the loss jump now and
then; it recovers each time.
`smoke`: p = 11, 200 steps; nothing is grokked.
"""

from dataclasses import replace

from rankscope.lab.claims import networks
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.models.modular import ModularConfig
from rankscope.lab.network_figures import decay_overview, grokking
from rankscope.lab.tasks.modular import ModularAddition
from rankscope.lab.training.optimizers import AdamW
from rankscope.lab.training.run import TrainingRun
from rankscope.lab.training.sweep import decay_sweep
from rankscope.tracker import Every

DECAYS = (1.0, 0.1, 0.0)
BETAS = (0.9, 0.98)
SMALL_FACTOR = 2.0  # of the paper's decays

TABLE = ModularAddition(ModularConfig(), train_share=0.3)
PAPER = TrainingRun(
    TABLE,
    AdamW(rate=1e-3, betas=BETAS),
    steps=40_000,
    batch=TABLE.samples,
    snapshots=Every(100),
)
SMALL_TABLE = ModularAddition(ModularConfig(p=59, width=48, hidden=192), train_share=0.4)
SMALL = TrainingRun(
    SMALL_TABLE,
    AdamW(rate=3e-3, betas=BETAS),
    steps=6_600,
    batch=SMALL_TABLE.samples,
    snapshots=Every(100),
)
SMOKE_TABLE = ModularAddition(ModularConfig(p=11, width=16, hidden=32), train_share=0.4)
SMOKE = replace(SMALL, task=SMOKE_TABLE, batch=SMOKE_TABLE.samples, steps=200, snapshots=Every(50))
SECONDS: dict[Scale, int | None] = {"paper": 400, "small": 260, "smoke": 5}


def experiment(scale: Scale) -> Experiment:
    run, factor, decays = {
        "paper": (PAPER, 1.0, DECAYS),
        "small": (SMALL, SMALL_FACTOR, DECAYS),
        "smoke": (SMOKE, SMALL_FACTOR, (1.0, 0.0)),
    }[scale]
    return decay_sweep(
        "yunis2024/grok",
        scale,
        [run.with_decay(factor * decay, paper=decay) for decay in decays],
        claims=networks.GROK,
        figures={"grokking": grokking, "decay-overview": decay_overview},
        seconds=SECONDS,
    )
