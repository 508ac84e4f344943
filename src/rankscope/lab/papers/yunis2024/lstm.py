"""A bidirectional LSTM for speech under weight decay (yunis2024, sections 3-4, C.3, figs. 1-6).

Claims Y1 to Y7 and Y12 read these runs.

    rankscope run yunis2024/lstm --scale small
    rankscope run yunis2024/lstm --scale paper --data FOLDER

`paper` has the paper's network and decays: 4 layers of 256 in both directions read 40 mel features
of each frame and learn transcripts letter by letter with the CTC loss; AdamW, batch 32, a cosine to
0, decays 0, 0.1, 1 and 10, of which 0.1 is that of figures 1-3. Window (25 ms), hop (10 ms), sizes
and the 29 characters are from the authors' code. We differ from the paper:

- **Data.** The paper reads LibriSpeech's train-clean-100, 28,539 sentences. We read a sample of 134
  sentences. A network of 5 million weights learns these by heart, so we add as many minutes of
  formant speech: 512 utterances of 1 to 6 words. A tenth of each is held out. Half of all
  characters are real. Read ranks and alignment here, not recognition.
- **Length.** Utterances are padded to the longest. We leave out 20 sentences above 8 s.
- **Steps.** 5,000 instead of 44,600, at a rate 5 times as large. The sum of rate x decay is 0.56 of
  the paper's. We scale the rate and not the decays, because AdamW keeps every weight below
  about 1 / decay. Weights fluctuate more: by sqrt(rate / decay), 2.2 times the paper's.
- **Snapshots** are at the paper's fractions of training: an epoch is 1 / 50 of it.
- `PUBLISHED` is the paper's own run. To use it with train-clean-100, write `PUBLISHED` for `PAPER`
  in `experiment`.

Where the paper is silent, we set:

- Features: Hann window, power spectrum, 40 triangular filters equally spaced in mel(f) = 2595
  log10(1 + f / 700), logarithm, then mean 0 and deviation 1 over each utterance.
- The loss is -log P(text) per character, averaged over utterances, as torch's `reduction="mean"`.
  It sees only true frames, but the backward direction reads the padding first.
- Products are computed in bfloat16. Weights and the CTC loss are float32, decompositions float64.
- No gradient is clipped. Error rates come from greedy decoding without a language model.
- The constant predictor has the best single distribution over characters for every frame.
- Pairs join each direction and gate by itself, as in the code. We add W_ih with W_hh of the last
  layer, which the code lacks.
- Training losses at snapshots are of 256 utterances, every real sentence among them. A fifth of the
  held-out utterances is real, so at decay 10 their loss is the smaller one.

`small` reads formant speech alone and needs no download: 500 utterances of 1 or 2 words, a frame
every 20 ms, and 3 layers of 48. *Formant speech* is made by code from 116 short English words, by
voices that differ in pitch, vocal tract and tempo. Words sound as they are spelled. Training is 17
times shorter at a rate 33 times as large, so decays are about a third of the paper's, and the sum
of rate x decay is 0.6 of the paper's. At its own decay of 10 this network would learn nothing.

`smoke` takes a few steps with 2 layers of 12, on 20 words.

Cost: 38 minutes on one H200 at `paper`, 5 minutes on two cores at `small`, 5 s at `smoke`.

Expect at `small`: 8% of held-out characters wrong at decay 0.1 and 16% at 10. The median final rank
is 0.78 at decay 0, then 0.77, 0.63 and 0.35. At `paper` 24% of characters are wrong up to decay 1,
and 29% at 10.
"""

from dataclasses import replace
from functools import partial

from rankscope.lab.archive.compaction import BITS, SPECTRA, Compaction, Thinned
from rankscope.lab.data.features import LogMel
from rankscope.lab.data.formant import FormantSpeech
from rankscope.lab.data.mixed_speech import MixedSpeech
from rankscope.lab.data.speech import LibriSpeech
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.models.lstm import BiLstmConfig
from rankscope.lab.tasks.speech import SpeechRecognition
from rankscope.lab.training.evaluation import Truncation
from rankscope.lab.training.optimizers import AdamW
from rankscope.lab.training.rates import Cosine
from rankscope.lab.training.sweep import acting_like, at_decays, decay_sweep
from rankscope.lab.training.training_run import TrainingRun
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
ACTING = partial(acting_like, paper=PUBLISHED, run=SMALL, share=SUM_SHARE)
COMPACTION = Thinned(Compaction({**BITS, "singular_values": 8}), SPECTRA)


def experiment(scale: Scale) -> Experiment:
    """Return the experiment at one scale."""
    runs = {
        "paper": at_decays(PAPER, DECAYS),
        "small": at_decays(SMALL, DECAYS, acting=ACTING),
        "smoke": at_decays(SMOKE, (1.0, 0.1), acting=ACTING),
    }[scale]
    return decay_sweep("yunis2024/lstm", scale, runs, seconds=SECONDS, compaction=COMPACTION)
