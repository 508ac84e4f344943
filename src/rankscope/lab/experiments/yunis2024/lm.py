"""A Transformer models text under weight decay (yunis2024, sections 3-4, app. C.4, figs. 1-6).

Large singular values grow faster than small ones (Y1) and the effective rank of nearly every matrix
falls (Y2); neighbouring matrices align weakly (Y3, Y3b), queries with keys best (Y10); decay lowers
ranks (Y4), strengthens alignment (Y5), here most of all networks, and lets the top half of each SVD
stand for the network (Y6), which still trains at the highest decay (Y7). Seeds agree (Y12).

    rankscope run yunis2024/lm --scale small

`paper`: the paper's network, optimizer, schedule and number of steps (10 epochs of 222 as in its
code), on WikiText-2 in place of WikiText-103, with 16 windows a step in place of 256: 30 passes
over a text 50 times smaller. `WikiText()` reads WikiText-103; with it, `batch=256` and
`accumulate=16` this is the paper's run. What the paper leaves out, and what we set:
- Every layer starts as a copy of one layer, and the cosine spans three times the training (code).
- Tokens: byte-level BPE of lower-cased text, trained on it, 16,384 tokens; the paper's is not
  named, and its number of steps fits about 50,000.
- Products in bfloat16; weights, sums and all decompositions are not.
- Losses of figure 6 on 64 windows, 131,072 tokens, spread over the training text.

`small`: source text of the Python standard library by character, which differs a little between
Python versions; 4 layers, width 64, 4 heads, context 64. Training is 2.8 times shorter at a rate 5
times as large, so decays are half as large: sum(rate x decay) over training is 0.9 of the paper's.
Runs are named by the paper's decay they stand for.
`smoke`: a few steps of 2 layers of width 16.

Cost: 25 s a run at `small` on one core, 3 minutes in all on two. Expected at `small`: validation
loss 1.7 nats a character at the base decay, 0.1, and 2.3 at 10, where character frequencies alone
give 3.0; median normalised effective rank 0.80 at the start, 0.77 at the end, and 0.08 at 10.
"""

from dataclasses import replace
from functools import partial

from rankscope.lab.claims import networks
from rankscope.lab.data.tokens import StandardLibraryTokens, WikiText
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.models.transformer import TransformerConfig
from rankscope.lab.network_figures import SWEEP_FIGURES
from rankscope.lab.tasks.language import LanguageModelling
from rankscope.lab.training.evaluation import Truncation
from rankscope.lab.training.optimizers import AdamW
from rankscope.lab.training.rates import Cosine
from rankscope.lab.training.run import TrainingRun
from rankscope.lab.training.sweep import acting_like, decay_sweep
from rankscope.tracker import Epochs

DECAYS = (10.0, 1.0, 0.1, 0.0)
EPOCH = 222  # steps: 117 million tokens of WikiText-103 in batches of 256 x 2048
STEPS = 10 * EPOCH
SMALL_STEPS = 800
SUM_SHARE = 0.9  # of the paper's sum(rate x decay), at `small`

PAPER = TrainingRun(
    LanguageModelling(
        WikiText("wikitext-2-v1", vocabulary=16_384),
        TransformerConfig(layers=12, width=768, heads=12, context=2048, copied_layers=True),
        validation_windows=64,
    ),
    AdamW(rate=6e-4, betas=(0.9, 0.95)),
    steps=STEPS,
    batch=16,
    snapshots=Epochs(EPOCH),
    rate=Cosine(span=3 * STEPS, warm_up=200, floor=0.1),
    clip=1.0,
    precision="bfloat16",
    evaluation_samples=64,
    truncation=Truncation(),
)
SMALL = replace(
    PAPER,
    task=LanguageModelling(
        StandardLibraryTokens(1_000_000),
        TransformerConfig(layers=4, width=64, heads=4, context=64, copied_layers=True),
        validation_windows=64,
    ),
    optimizer=AdamW(rate=3e-3, betas=(0.9, 0.95)),
    steps=SMALL_STEPS,
    snapshots=Epochs(SMALL_STEPS // 25),
    rate=Cosine(span=3 * SMALL_STEPS, warm_up=72, floor=0.1),
    precision="float32",
    evaluation_samples=128,
)
SMOKE = replace(
    SMALL,
    task=LanguageModelling(
        StandardLibraryTokens(50_000),
        TransformerConfig(layers=2, width=16, heads=2, context=16, copied_layers=True),
        validation_windows=16,
    ),
    optimizer=AdamW(rate=1e-2, betas=(0.9, 0.95)),
    steps=100,
    snapshots=Epochs(20, first=1),
    rate=Cosine(span=300, warm_up=9, floor=0.1),
    evaluation_samples=32,
)
SECONDS: dict[Scale, int | None] = {"paper": 1800, "small": 170, "smoke": 4}


def experiment(scale: Scale) -> Experiment:
    acting = partial(acting_like, paper=PAPER, run=SMALL, share=SUM_SHARE)
    runs = {
        "paper": [PAPER.with_decay(decay, paper=decay) for decay in DECAYS],
        "small": [SMALL.with_decay(acting(decay), paper=decay) for decay in DECAYS],
        "smoke": [SMOKE.with_decay(acting(decay), paper=decay) for decay in (1.0, 0.1)],
    }[scale]
    return decay_sweep(
        "yunis2024/lm",
        scale,
        runs,
        claims=networks.LM,
        figures=SWEEP_FIGURES,
        seconds=SECONDS,
    )
