"""Grokking modular addition (yunis2024, app. D speaks of these runs; settings from its code).

A one-layer Transformer without LayerNorm learns (a + b) mod p from a part of all pairs, in full
batches. With decay it knows the training pairs by heart long before it can add; then its ranks drop
(Y9). Without decay, the control, it does not learn to add within the same steps.

    rankscope run yunis2024/grok --scale small
    rankscope run yunis2024/grok --scale paper

`paper` needs no data. Its settings are from the authors' code: p = 113, 30% of pairs, 40,000 steps
of AdamW at rate 0.001 with betas 0.9 and 0.98, decays 0, 0.1 and 1. A snapshot is taken every 100
steps. Notes on the network and what we read:

- The network is the authors' language model with one layer, width 128, 4 heads, hidden width 512
  and no norms: sinusoidal positions, biases, embedding and output drawn from U(-0.1, 0.1), 114
  tokens and as many logits. nanda2023, whose task it is, has learnt positions, no biases, and
  logits for numbers alone.
- We compute attention and all after it at the last position, the only one that reaches the answer.
- The training pairs follow the seed, as in the code. Accuracies are measured on all pairs.

`small` has p = 59, 40% of pairs, and a network three eighths as wide. It takes 6,600 steps at rate
0.003 with decays twice the paper's: the sum of rate x decay is 0.99 of the paper's. A network soon
sees that a + b = b + a. That alone answers as large a share of the unseen pairs as it learns from,
so this share stays below half. With a smaller p so few pairs did not suffice, or only much later.

`smoke` has p = 11 and takes 200 steps. Nothing is grokked.

Cost: 7 minutes on one H200 at `paper`, 4.5 minutes on two cores at `small`, 5 s at `smoke`.

Expect at `small`: at decay 1 test accuracy passes 50% near step 2,000 and reaches 100%; at decay 0
it stays below 40%. Seeds differ by some hundred steps, and the drop lies 0.06 to 0.56 in log10 step
from the crossing. The loss jumps now and then at this rate, and recovers each time.
"""

from dataclasses import replace
from functools import partial
from operator import mul

from rankscope.lab.archive.compaction import BITS, SPECTRA, Compaction, Thinned
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.models.modular import ModularConfig
from rankscope.lab.tasks.modular import ModularAddition
from rankscope.lab.training.optimizers import AdamW
from rankscope.lab.training.sweep import at_decays, decay_sweep
from rankscope.lab.training.training_run import TrainingRun
from rankscope.tracker import Every

DECAYS = (1.0, 0.1, 0.0)
BETAS = (0.9, 0.98)

TABLE = ModularAddition(ModularConfig(), train_share=0.3)
PAPER = TrainingRun(
    TABLE,
    AdamW(rate=1e-3, betas=BETAS),
    steps=40_000,
    batch=TABLE.samples,
    snapshots=Every(100),
)
SMALL_TABLE = ModularAddition(ModularConfig(p=59, width=48, hidden=192), train_share=0.4)
SMALL = replace(
    PAPER,
    task=SMALL_TABLE,
    optimizer=AdamW(rate=3e-3, betas=BETAS),
    steps=6_600,
    batch=SMALL_TABLE.samples,
)
SMOKE_TABLE = ModularAddition(ModularConfig(p=11, width=16, hidden=32), train_share=0.4)
SMOKE = replace(SMALL, task=SMOKE_TABLE, batch=SMOKE_TABLE.samples, steps=200, snapshots=Every(50))
SECONDS: dict[Scale, int | None] = {"paper": 400, "small": 260, "smoke": 5}
ACTING = partial(mul, 2.0)  # at `small`, of the paper's decays

# Y9 asks when ranks fall, so spectra have every snapshot.
COMPACTION = Thinned(Compaction({**BITS, "singular_values": 7}), SPECTRA[1:])


def experiment(scale: Scale) -> Experiment:
    """Return the experiment at one scale."""
    runs = {
        "paper": at_decays(PAPER, DECAYS),
        "small": at_decays(SMALL, DECAYS, acting=ACTING),
        "smoke": at_decays(SMOKE, (1.0, 0.0), acting=ACTING),
    }[scale]
    return decay_sweep("yunis2024/grok", scale, runs, seconds=SECONDS, compaction=COMPACTION)
