"""VGG-16 on CIFAR-10 under weight decay (yunis2024, sections 3-4, app. C.1, figs. 1-6).

Large singular values grow faster than small ones (Y1), so the effective rank of nearly every layer
falls (Y2); neighbouring layers align weakly, in their top ranks only (Y3, Y3b) and at the centre
of filters most (Y11); decay lowers ranks (Y4), strengthens alignment (Y5), and lets the top half of
each SVD stand for the network (Y6), until at 0.1 the network collapses (Y7). Seeds agree (Y12).

    rankscope run yunis2024/vgg --scale small

`paper`: the paper's hyper-parameters; no augmentation. What it leaves out, and what we set:
- Rates fall at epochs 82, 120 and 160 as printed; the authors' code has 123 for 120.
- Pixels have mean 0 and deviation 1 per channel over the training images.
- Products in bfloat16; weights, sums and all decompositions are not.
- Of the 45,000 training images each epoch leaves out the incomplete last batch.
- Figure 6: 5,000 training images, BatchNorm re-estimated on 2,000 of them (code).

`small`: scikit-learn's digits, 8 x 8 pixels; all 13 convolutions, an eighth as wide, with three
pools. Training is 19 times shorter, so decays are larger: sum(rate x decay) over training is 0.55
of the paper's. Rates fall later, at 80, 92 and 97% of training: the same sum then needs the
smallest decay per step. Runs are named by the paper's decay they stand for.
`smoke`: a few steps of a network half as wide; decays are the paper's, far too small to act.

Cost: 3 to 4 minutes at `small`, 27 s of one core for each run; at `paper` 9 minutes on an H200 for
the five runs of a seed, side by side.
Expected at `small`: validation accuracy 0.99 at 0.0001 and 0.95 at 0.001; the median normalised
effective rank falls from 0.98 to 0.76 and to 0.3. At 0.1 the weights decay to zero (Y7 yes);
0.01 collapses too, since rate x decay per step is what counts there, and it is 7 times the
paper's. So trends with decay rest on 0, 0.0001 and 0.001.
"""

from dataclasses import replace
from functools import partial

from rankscope.lab.claims import networks
from rankscope.lab.data.digits import Digits
from rankscope.lab.data.images import CIFAR10
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.models.vgg import VggConfig
from rankscope.lab.network_figures import SWEEP_FIGURES
from rankscope.lab.tasks.classification import Classification
from rankscope.lab.training.evaluation import Truncation
from rankscope.lab.training.optimizers import Sgd
from rankscope.lab.training.rates import Drops
from rankscope.lab.training.run import TrainingRun
from rankscope.lab.training.sweep import acting_like, decay_sweep
from rankscope.tracker import Epochs

DECAYS = (0.1, 0.01, 0.001, 1e-4, 0.0)
EPOCH = 351  # steps: 45,000 images // 128
SMALL_EPOCH = 50  # 1,618 images // 32
SUM_SHARE = 0.55  # of the paper's sum(rate x decay), at `small`

PAPER = TrainingRun(
    Classification(CIFAR10, VggConfig()),
    Sgd(rate=0.1, momentum=0.9),
    steps=164 * EPOCH,
    batch=128,
    snapshots=Epochs(EPOCH),
    rate=Drops((82 * EPOCH, 120 * EPOCH, 160 * EPOCH)),
    precision="bfloat16",
    evaluation_samples=5000,
    truncation=Truncation(norm_samples=2000),
)
SMALL = TrainingRun(
    Classification(Digits(), VggConfig(channels=1, width=1 / 8, pools=(1, 2, 3))),
    Sgd(rate=0.1, momentum=0.9),
    steps=60 * SMALL_EPOCH,
    batch=32,
    snapshots=Epochs(SMALL_EPOCH, every=2),
    rate=Drops((2400, 2750, 2925)),
    evaluation_samples=500,
    truncation=Truncation(norm_samples=500),
)
SMOKE = replace(
    SMALL,
    task=Classification(Digits(), VggConfig(channels=1, width=1 / 16, pools=(1, 2, 3))),
    steps=60,
    snapshots=Epochs(30, first=1),
    rate=Drops((40,)),
    evaluation_samples=50,
    truncation=Truncation(norm_samples=50),
)
SECONDS: dict[Scale, int | None] = {"paper": 1550, "small": 205, "smoke": 5}


def experiment(scale: Scale) -> Experiment:
    acting = partial(acting_like, paper=PAPER, run=SMALL, share=SUM_SHARE)
    runs = {
        "paper": [PAPER.with_decay(decay, paper=decay) for decay in DECAYS],
        "small": [SMALL.with_decay(acting(decay), paper=decay) for decay in DECAYS],
        "smoke": [SMOKE.with_decay(decay, paper=decay) for decay in (1e-4, 0.0)],
    }[scale]
    return decay_sweep(
        "yunis2024/vgg",
        scale,
        runs,
        claims=networks.VGG,
        figures=SWEEP_FIGURES,
        seconds=SECONDS,
    )
