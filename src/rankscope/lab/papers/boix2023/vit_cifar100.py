"""A vision transformer on CIFAR-100 (boix2023, section 5, figs. 13, 14).

Network, training and claims are those of boix2023/vit-cifar10, with the 100 fine classes.
At the end the held-out images also measure the network with the change of its heads cut to rank 1,
2, 4 and on, as in findings/needed-rank.

    rankscope run boix2023/vit-cifar100 --scale paper --data FOLDER

The scales are 1, 0.3 and 0.1, as many as B8 takes. `paper` was not run.

`small`: pairs of scikit-learn's digits side by side, 8 x 16 pixels, 898 images, since no data set
at hand has a hundred classes. The classes are the numbers 00 to 99, some nine images each. Each
digit is in one pair only, so held-out pairs show digits never seen.

`smoke`: depth 2, scale 1.

Cost: 2 minutes at `small`, 20 to 35 s of one core for each run; about 45 minutes on one H200 at
`paper` (estimated).

Expected at `small`: the training loss stays above 0.001 at scale 1. The change ends with
stable rank below 2 (K-Q) and near 3 (V-O) at scale 1, and lower at 0.1; the products began near 5.
"""

from dataclasses import replace

from rankscope.lab.data.digit_pairs import DigitPairs
from rankscope.lab.data.images import CIFAR100, CIFAR100_TEST
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.models.vit import VitConfig
from rankscope.lab.papers.boix2023 import vit_cifar10
from rankscope.lab.tasks.classification import Classification
from rankscope.lab.training.head_cuts import HeadCuts
from rankscope.lab.training.rates import Cosine
from rankscope.lab.training.stopping import Settled
from rankscope.lab.training.sweep import scale_sweep
from rankscope.tracker import Epochs

INIT_SCALES = (1.0, 0.3, 0.1)
SMALL_EPOCH = 25  # steps: 809 images // 32
SMALL_VIT = replace(vit_cifar10.SMALL_VIT, image=(8, 16), patch=4, classes=100)

PAPER = replace(
    vit_cifar10.PAPER,
    task=Classification(CIFAR100, VitConfig(classes=100), test=CIFAR100_TEST),
    cuts=HeadCuts(ranks=(1, 2, 4, 8, 16, 32, 64, 128)),
)
SMALL = replace(
    vit_cifar10.SMALL,
    task=Classification(DigitPairs(), SMALL_VIT),
    steps=48 * SMALL_EPOCH,
    snapshots=Epochs(SMALL_EPOCH, every=2),
    rate=Cosine(span=96 * SMALL_EPOCH, warm_up=2 * SMALL_EPOCH),
    stop=Settled(loss=1e-3, steps=4 * SMALL_EPOCH),
    cuts=HeadCuts(ranks=(1, 2, 4, 8, 16)),
)
SMOKE = replace(
    vit_cifar10.SMOKE,
    task=Classification(DigitPairs(), replace(vit_cifar10.SMOKE_VIT, image=(8, 16), classes=100)),
    cuts=HeadCuts(ranks=(1, 16)),
)
SECONDS: dict[Scale, int | None] = {"paper": 2600, "small": 120, "smoke": 4}


def experiment(scale: Scale) -> Experiment:
    return scale_sweep(
        "boix2023/vit-cifar100",
        scale,
        {"vit": {"paper": PAPER, "small": SMALL, "smoke": SMOKE}[scale]},
        init_scales=(1.0,) if scale == "smoke" else INIT_SCALES,
        seconds=SECONDS,
        compaction=vit_cifar10.VIT,
    )
