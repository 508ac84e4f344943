"""A bidirectional LSTM recognises speech under decay (yunis2024, sections 3-4, C.3, figs. 1-6).

Large singular values grow faster than small ones (Y1) and the effective rank of nearly every matrix
falls (Y2); neighbouring matrices align weakly (Y3, Y3b); decay lowers ranks (Y4), strengthens
alignment (Y5) and lets the top half of each SVD stand for the network (Y6), which still trains at
the highest decay (Y7). Seeds agree (Y12).

    rankscope run yunis2024/lstm --scale small

`paper`: the paper's network and decays, on 134 real sentences, a sample of LibriSpeech, and as many
minutes of formant speech, a tenth of each held out. Training is 9 times shorter, 5,000 steps, at a
rate 5 times as large, which keeps sum(rate x decay) at 0.56 of the paper's and, as AdamW bounds
weights by 1 / decay, their bounds too; snapshots are at the paper's fractions of training, of which
an epoch is 1 / 50. `PUBLISHED` is the paper's run, for who has train-clean-100. What the paper
leaves out, and what we set: features have mean 0 and deviation 1 over each utterance; no gradient
is clipped; utterances are padded to the longest, 8 s here (20 sentences of the sample are longer
and left out), and the backward direction reads the padding first. Products in bfloat16; weights,
sums, the CTC loss and all decompositions are not.

`small`: formant speech, made by code from 116 words: 500 utterances of one or two words, a frame
every 20 ms; 3 layers of 48. Training is 17 times shorter at a rate 33 times as large, so decays are
smaller: sum(rate x decay) over training is 0.6 of the paper's. Smaller decays are the smaller
change: AdamW keeps each weight below 1 / decay, which a narrow network feels sooner than a wide
one (at the paper's own 10 it learns nothing). Runs are named by the paper's decay they stand for.
`smoke`: a few steps of 2 layers of 12, on 20 words.

Cost: 40 s a run at `small` on one core, 4 minutes in all on two; at `paper` the four runs of a seed
took 23 minutes on an H200 that trained VGGs beside them, and half as long by the part in which they
had it to themselves. Expected at `small`: 8% of the held-out characters wrong at the base decay,
0.1, and 16% at 10; median normalised effective rank 0.97 at the start, at the end 0.78 without
decay, then 0.77, 0.63, 0.35. At `paper`: 24% wrong up to a decay of 1, 29% at 10.
"""

from dataclasses import replace
from functools import partial

from rankscope.lab.claims import networks
from rankscope.lab.data.features import LogMel
from rankscope.lab.data.formant import FormantSpeech
from rankscope.lab.data.mixed_speech import MixedSpeech
from rankscope.lab.data.speech import LibriSpeech
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.models.lstm import BiLstmConfig
from rankscope.lab.network_figures import SWEEP_FIGURES
from rankscope.lab.tasks.speech import SpeechRecognition
from rankscope.lab.training.evaluation import Truncation
from rankscope.lab.training.optimizers import AdamW
from rankscope.lab.training.rates import Cosine
from rankscope.lab.training.run import TrainingRun
from rankscope.lab.training.sweep import acting_like, decay_sweep
from rankscope.tracker import Epochs

DECAYS = (10.0, 1.0, 0.1, 0.0)
PUBLISHED_EPOCH = 892  # steps: 28,539 utterances of train-clean-100 in batches of 32
STEPS = 5000
SMALL_STEPS = 2600
SUM_SHARE = 0.6  # of the paper's sum(rate x decay), at `small`

PUBLISHED = TrainingRun(
    SpeechRecognition(LibriSpeech(), BiLstmConfig()),
    AdamW(rate=3e-4),
    steps=50 * PUBLISHED_EPOCH,
    batch=32,
    snapshots=Epochs(PUBLISHED_EPOCH),
    rate=Cosine(span=50 * PUBLISHED_EPOCH),
    truncation=Truncation(),
)
SAMPLE = LibriSpeech("train.clean.5", validation=None)  # its 134 sentences of up to 8 s: 10 minutes
FORMANT = FormantSpeech(utterances=512, words=6, mel=LogMel())  # 10 minutes too
PAPER = replace(
    PUBLISHED,
    task=SpeechRecognition(MixedSpeech((SAMPLE, FORMANT), longest=800), BiLstmConfig()),
    optimizer=AdamW(rate=1.5e-3),
    steps=STEPS,
    snapshots=Epochs(STEPS // 50),
    rate=Cosine(span=STEPS),
    precision="bfloat16",
    evaluation_samples=256,  # every real sentence among them
)
SMALL = TrainingRun(
    SpeechRecognition(
        FormantSpeech(utterances=500, mel=LogMel(hop=0.02)), BiLstmConfig(hidden=48, layers=3)
    ),
    AdamW(rate=1e-2),
    steps=SMALL_STEPS,
    batch=16,
    snapshots=Epochs(SMALL_STEPS // 25),
    rate=Cosine(span=SMALL_STEPS),
    evaluation_samples=128,
    truncation=Truncation(),
)
SMOKE = replace(
    SMALL,
    task=SpeechRecognition(
        FormantSpeech(utterances=20, words=1), BiLstmConfig(hidden=12, layers=2)
    ),
    optimizer=AdamW(rate=2e-2),
    steps=150,
    batch=9,
    snapshots=Epochs(30, first=1),
    rate=Cosine(span=150),
    evaluation_samples=16,
)
SECONDS: dict[Scale, int | None] = {"paper": 2300, "small": 290, "smoke": 5}


def experiment(scale: Scale) -> Experiment:
    acting = partial(acting_like, paper=PUBLISHED, run=SMALL, share=SUM_SHARE)
    runs = {
        "paper": [PAPER.with_decay(decay, paper=decay) for decay in DECAYS],
        "small": [SMALL.with_decay(acting(decay), paper=decay) for decay in DECAYS],
        "smoke": [SMOKE.with_decay(acting(decay), paper=decay) for decay in (1.0, 0.1)],
    }[scale]
    return decay_sweep(
        "yunis2024/lstm",
        scale,
        runs,
        claims=networks.LSTM,
        figures=SWEEP_FIGURES,
        seconds=SECONDS,
    )
