"""A Transformer language model under weight decay (yunis2024, sections 3-4, C.4, figs. 1-6).

Claims Y1 to Y7, Y10 and Y12 read these runs.

    rankscope run yunis2024/lm --scale small
    rankscope run yunis2024/lm --scale paper --data FOLDER

`paper` has the paper's network, optimizer, schedule and number of steps: 12 pre-norm layers of
width 768 with 12 heads, hidden width 768 and sinusoidal positions, windows of 2048 tokens, AdamW at
rate 6e-4, gradients clipped to norm 1, decays 0, 0.1, 1 and 10, of which 0.1 is that of figures
1-3. Betas 0.9 and 0.95, 10 epochs of 222 steps, 200 steps of warm-up, and a cosine that spans three
times the training are from the authors' code. Where the paper is silent, or we differ:

- **Data.** WikiText-2, from the hub if no folder is given, instead of WikiText-103, which is 50
  times larger. A step has 16 windows instead of 256: 30 passes over the small text. For the paper's
  own run write `WikiText()`, `batch=256` and `accumulate=16`.
- **Tokens.** Byte-level BPE with 16,384 tokens, trained on the lower-cased text. The paper names no
  tokenizer; its number of steps fits about 50,000 tokens.
  `WikiText(tokenizer="EleutherAI/pythia-160m")` takes one from the hub.
- **Copied layers.** Every layer starts as a copy of one layer, as in the code, so every layer
  repeats the same overlaps and Y3 counts each once at the start. The matrices of a layer are drawn
  independently, so pairs start at chance. `copied_layers=False` is the other choice.
- **Initial weights.** Embedding and output are uniform in (-0.1, 0.1), as in the code. The rest is
  drawn as `nn.TransformerEncoderLayer` does.
- **Order.** An epoch sees each window once; windows do not overlap. Text and split are the same for
  every seed, which draws initial weights and the order of windows.
- **Precision.** Products are computed in bfloat16. Weights are float32, decompositions float64.
- **Losses.** The held-out loss is of 64 windows. Figure 6 reads 64 windows spread over the training
  text. The constant predictor has the frequencies of the tokens.

`small` reads the source of the Python standard library by character and needs no download. The
library differs between Python versions, and losses do too, in the second digit. The network has 4
layers of width 64. Training is 2.8 times shorter at a rate 5 times as large, so decays are half as
large: the sum of rate x decay is 0.9 of the paper's.

`smoke` takes a few steps with 2 layers of width 16.

Cost: 30 minutes on one H200 at `paper`, 3 minutes on two cores at `small`, 4 s at `smoke`.

Expect at `small`: a validation loss of 1.7 nats a character at decay 0.1 and 2.3 at 10, where
character frequencies alone give 3.0. The median final rank is 0.77 at decay 0.1 and 0.08 at 10.
"""

from dataclasses import replace
from functools import partial

from rankscope.lab.archive.compaction import BITS, Compaction
from rankscope.lab.data.tokens import StandardLibraryTokens, WikiText
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.models.transformer import TransformerConfig
from rankscope.lab.tasks.language import LanguageModelling
from rankscope.lab.training.evaluation import Truncation
from rankscope.lab.training.optimizers import AdamW
from rankscope.lab.training.rates import Cosine
from rankscope.lab.training.sweep import acting_like, at_decays, decay_sweep
from rankscope.lab.training.training_run import TrainingRun
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
ACTING = partial(acting_like, paper=PAPER, run=SMALL, share=SUM_SHARE)
COMPACTION = Compaction(bits={**BITS, "singular_values": 7})


def experiment(scale: Scale) -> Experiment:
    """Return the experiment at one scale."""
    runs = {
        "paper": at_decays(PAPER, DECAYS),
        "small": at_decays(SMALL, DECAYS, acting=ACTING),
        "smoke": at_decays(SMOKE, (1.0, 0.1), acting=ACTING),
    }[scale]
    return decay_sweep("yunis2024/lm", scale, runs, seconds=SECONDS, compaction=COMPACTION)
