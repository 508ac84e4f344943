"""An MLP learns true or random labels (yunis2024, app. B, fig. 7).

Without any weight decay the middle layers end at a lower rank when labels are true than when they
are random, and their alignment persists with true labels while it fades with random ones (Y8).

    rankscope run yunis2024/mlp --scale small

`paper`: CIFAR-10, 3072-256-256-256-10 with ReLU, SGD at 0.001 throughout, momentum 0.9, batch 128,
300 epochs. Random labels are one permutation of all labels, made before a tenth of the images is
held out. Pixels have mean 0 and deviation 1 per channel over the training images, which the paper
does not say. Of the 45,000 training images each epoch leaves out the incomplete last batch.

`small`: scikit-learn's digits, 8 x 8 pixels, and a rate 20 times as large over a training 20 times
as short, so the sum of rates is the paper's.
`smoke`: a few epochs of a network with 32 hidden units.

Cost: a minute at `small`, 20 s of one core for each run.
Expected at `small`: both runs end with a training loss below 0.001, validation accuracy is 0.96 to
1 with true labels and chance with random ones. Y8 no: alignment of the middle pair is 0.77 and
persists with true labels, 0.3 and 0.6 to 0.8 of its maximum with random ones, but ranks are
the other way round, 0.77 with true and 0.70 with random labels. Digits are so easy that true
labels hardly move the weights from their initial, high rank.
"""

from dataclasses import replace

from rankscope.lab.claims import networks
from rankscope.lab.data.digits import Digits
from rankscope.lab.data.images import CIFAR10
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.models.mlp import MlpConfig
from rankscope.lab.network_figures import figure_7
from rankscope.lab.tasks.classification import Classification
from rankscope.lab.training.optimizers import Sgd
from rankscope.lab.training.run import TrainingRun
from rankscope.lab.training.sweep import trainings
from rankscope.tracker import Epochs

EPOCH = 351  # steps: 45,000 images // 128
SMALL_EPOCH = 12  # 1,618 images // 128

TASKS: dict[Scale, Classification] = {
    "paper": Classification(CIFAR10, MlpConfig(inputs=3072, hidden=256)),
    "small": Classification(Digits(), MlpConfig(inputs=64, hidden=256)),
    "smoke": Classification(Digits(), MlpConfig(inputs=64, hidden=32)),
}
PAPER = TrainingRun(
    TASKS["paper"],
    Sgd(rate=0.001, momentum=0.9),
    steps=300 * EPOCH,
    batch=128,
    snapshots=Epochs(EPOCH),
)
SMALL = TrainingRun(
    TASKS["small"],
    Sgd(rate=0.02, momentum=0.9),
    steps=440 * SMALL_EPOCH,
    batch=128,
    snapshots=Epochs(SMALL_EPOCH, every=12),
)
SMOKE = replace(
    SMALL,
    task=TASKS["smoke"],
    steps=10 * SMALL_EPOCH,
    snapshots=Epochs(SMALL_EPOCH, first=1, every=3),
)
SECONDS: dict[Scale, int | None] = {"paper": 240, "small": 40, "smoke": 3}


def experiment(scale: Scale) -> Experiment:
    run = {"paper": PAPER, "small": SMALL, "smoke": SMOKE}[scale]
    random = replace(TASKS[scale], random_labels=True)
    return trainings(
        "yunis2024/mlp",
        scale,
        {"mlp/random-labels": replace(run, task=random), "mlp/true-labels": run},
        claims=networks.MLP,
        figures={"figure-7": figure_7},
        seconds=SECONDS,
    )
