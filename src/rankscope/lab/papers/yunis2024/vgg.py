"""VGG-16 on CIFAR-10 under weight decay (yunis2024, sections 3-4, app. C.1, figs. 1-6).

Claims Y1 to Y7, Y11 and Y12 read these runs. At decay 0.1 the paper's network collapses.

    rankscope run yunis2024/vgg --scale small
    rankscope run yunis2024/vgg --scale paper --data FOLDER

`paper` reads CIFAR-10, from the hub if no folder is given. It has the paper's network and settings:
13 convolutions and one linear layer, no augmentation, SGD at rate 0.1 with momentum 0.9, batch 128,
164 epochs, decays 0, 0.001, 0.01, 0.1, and 0.0001 for figures 1-3. Snapshots are taken at the
start, four times in the first epoch, and after every epoch. Where the paper is silent, or we
differ:

- The rate is divided by ten at epochs 82, 120 and 160, as printed. The authors' code has 123
  instead of 120.
- Pixels have mean 0 and deviation 1 per channel over the training images.
- A tenth of the training images is held out, by a split that follows the seed, as in the code. The
  test set is not used. Each epoch drops its incomplete last batch.
- Products are computed in bfloat16. Weights are float32, decompositions float64.
- Decay acts on all parameters, also on biases and BatchNorm's, as in the code.
- Convolutions are flattened to (outputs, inputs x 9). Alignment reads the centre tap of each right
  vector, as the paper does. Such a part has length near 1/3, so raw overlaps look small. We also
  store them divided by the lengths of the parts. The other taps are pairs of kind `tap`, for Y11.
- Figure 6 reads 5,000 training images. BatchNorm is re-estimated on 2,000 of them, for both halves
  and for the full network. The code does so for the halves only, but running statistics lag behind
  the weights, and the top half would seem better than the whole.

`small` reads scikit-learn's digits, 8 x 8 pixels, and needs no download. The network has all 13
convolutions, an eighth as wide, with three pools. Training is 19 times shorter, so decays are
larger: the sum of rate x decay over training is 0.55 of the paper's. Rates fall late, because the
same sum then needs the smallest decay per step. The report lists the decay of the optimizer.

`smoke` takes a few steps with a network half as wide. Its decays are the paper's, too small to act.

Cost: 26 minutes on one H200 at `paper`, 3.5 minutes on two cores at `small`, 5 s at `smoke`.

Expect at `small`: validation accuracy 0.99 at decay 0.0001 and 0.95 at 0.001, where the median
final rank is 0.76 and 0.3. Decays 0.01 and 0.1 both collapse: rate x decay per step is 7 times the
paper's. Trends with decay therefore rest on 0, 0.0001 and 0.001.
"""

from dataclasses import replace
from functools import partial

from rankscope.lab.archive.compaction import BITS, SPECTRA, Compaction, Thinned
from rankscope.lab.data.digits import Digits
from rankscope.lab.data.images import CIFAR10
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.models.vgg import VggConfig
from rankscope.lab.tasks.classification import Classification
from rankscope.lab.training.evaluation import Truncation
from rankscope.lab.training.optimizers import Sgd
from rankscope.lab.training.rates import Drops
from rankscope.lab.training.sweep import acting_like, at_decays, decay_sweep
from rankscope.lab.training.training_run import TrainingRun
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
COMPACTION = Thinned(Compaction({**BITS, "singular_values": 8}), SPECTRA)
ACTING = partial(acting_like, paper=PAPER, run=SMALL, share=SUM_SHARE)


def experiment(scale: Scale) -> Experiment:
    """Return the experiment at one scale."""
    runs = {
        "paper": at_decays(PAPER, DECAYS),
        "small": at_decays(SMALL, DECAYS, acting=ACTING),
        "smoke": at_decays(SMOKE, (1e-4, 0.0)),
    }[scale]
    return decay_sweep("yunis2024/vgg", scale, runs, seconds=SECONDS, compaction=COMPACTION)
