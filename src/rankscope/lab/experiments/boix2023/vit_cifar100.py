"""The vision transformer of boix2023/vit-cifar10 on CIFAR-100 (boix2023, section 5, figs. 13, 14).

Ten times as many classes: the change of the heads' products still has low rank, which grows
gradually (B7), is lower for smaller initial weights (B8) and far below the initial one (B9).

    rankscope run boix2023/vit-cifar100 --scale paper

`paper`: as boix2023/vit-cifar10, with 100 classes.
`small`: no data set at hand has a hundred classes, so these are pairs of scikit-learn's digits side
by side, 8 x 16 pixels, 898 images, each digit in one pair only; the classes are the numbers 00 to
99, some nine images each. Three scales, enough for B8.
`smoke`: depth 2, scale 1.

Cost: 2 minutes at `small`, 20 to 35 s of one core for each run.
Expected at `small` (seed 0, scale 1): training loss 0.002, not below 0.001, so that B7 looks at all
of training; validation accuracy 0.79. The change ends with stable rank 1.5 to 1.7 (K-Q) and 2.5 to
3.0 (V-O), mean over heads, where the products began with 5.0 to 5.8; at scale 0.1 with 1.0 to 1.1
and 1.5 to 1.8.
"""

from dataclasses import replace

from rankscope.lab.claims.vits import CLAIMS
from rankscope.lab.data.digit_pairs import DigitPairs
from rankscope.lab.data.images import CIFAR100, CIFAR100_TEST
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.experiments.boix2023 import vit_cifar10
from rankscope.lab.models.vit import VitConfig
from rankscope.lab.tasks.classification import Classification
from rankscope.lab.training.rates import Cosine
from rankscope.lab.training.stopping import Settled
from rankscope.lab.training.sweep import scale_sweep
from rankscope.lab.vit_figures import CIFAR100_FIGURES
from rankscope.tracker import Epochs

SMALL_EPOCH = 25  # steps: 809 images // 32
SMALL_VIT = replace(vit_cifar10.SMALL_VIT, image=(8, 16), patch=4, classes=100)

PAPER = replace(
    vit_cifar10.PAPER, task=Classification(CIFAR100, VitConfig(classes=100), test=CIFAR100_TEST)
)
SMALL = replace(
    vit_cifar10.SMALL,
    task=Classification(DigitPairs(), SMALL_VIT),
    steps=48 * SMALL_EPOCH,
    snapshots=Epochs(SMALL_EPOCH, every=2),
    rate=Cosine(span=96 * SMALL_EPOCH, warm_up=2 * SMALL_EPOCH),
    stop=Settled(loss=1e-3, steps=4 * SMALL_EPOCH),
)
SMOKE = replace(
    vit_cifar10.SMOKE,
    task=Classification(DigitPairs(), replace(vit_cifar10.SMOKE_VIT, image=(8, 16), classes=100)),
)
SECONDS: dict[Scale, int | None] = {"paper": None, "small": 120, "smoke": 4}


def experiment(scale: Scale) -> Experiment:
    return scale_sweep(
        "boix2023/vit-cifar100",
        scale,
        {"vit": {"paper": PAPER, "small": SMALL, "smoke": SMOKE}[scale]},
        init_scales={"paper": vit_cifar10.SCALES, "small": (1.0, 0.3, 0.1), "smoke": (1.0,)}[scale],
        claims=CLAIMS,
        figures=CIFAR100_FIGURES,
        seconds=SECONDS,
    )
