"""An MLP learns true or random labels (yunis2024, app. B, fig. 7).

Claim Y8 compares the two runs. There is no weight decay.

    rankscope run yunis2024/mlp --scale small
    rankscope run yunis2024/mlp --scale paper --data FOLDER

`paper` reads CIFAR-10, from the hub if no folder is given, and has the settings of the paper and
its authors' code: 3072-256-256-256-10 with ReLU, SGD at a constant rate of 0.001 with momentum 0.9,
batch 128, 300 epochs, no decay. Snapshots are taken at the start, four times in the first epoch,
and after every epoch. Where the paper is silent, we set:

- Random labels are one permutation of all labels, drawn from the seed before the split. Held-out
  images have random labels too. Both runs of a seed share initial weights, split and order.
- Pixels have mean 0 and deviation 1 per channel over the training images.
- A tenth of the training images is held out, by a split that follows the seed. The test set is not
  used. Each epoch drops its incomplete last batch.
- Initial weights are torch's defaults.

`small` reads scikit-learn's digits, 8 x 8 pixels, and needs no download. The rate is 20 times as
large and training 20 times as short, so the sum of rates is the paper's. The network learns its
random labels by heart.

`smoke` takes a few epochs with 32 hidden units.

Cost: 4 minutes on one H200 at `paper`, 40 s on two cores at `small`, 3 s at `smoke`.

Expect at `small`: both runs end with a training loss below 0.001. Validation accuracy is 0.96 to 1
with true labels, and chance with random ones. Ranks are higher with true labels by 0.07: digits are
so easy that true labels hardly move the weights from their initial, high rank. This says little
about CIFAR-10.
"""

from dataclasses import replace
from typing import Any

from rankscope.lab.archive.compaction import FEW_SPECTRA
from rankscope.lab.data.digits import Digits
from rankscope.lab.data.images import CIFAR10
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.models.mlp import MlpConfig
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.tasks.classification import Classification
from rankscope.lab.training.optimizers import Sgd
from rankscope.lab.training.sweep import trainings
from rankscope.lab.training.training_run import TrainingRun
from rankscope.tracker import Epochs

EPOCH = 351  # steps: 45,000 images // 128
SMALL_EPOCH = 12  # 1,618 images // 128

PAPER = TrainingRun(
    Classification(CIFAR10, MlpConfig(inputs=3072, hidden=256)),
    Sgd(rate=0.001, momentum=0.9),
    steps=300 * EPOCH,
    batch=128,
    snapshots=Epochs(EPOCH),
)
SMALL = replace(
    PAPER,
    task=Classification(Digits(), MlpConfig(inputs=64, hidden=256)),
    optimizer=Sgd(rate=0.02, momentum=0.9),
    steps=440 * SMALL_EPOCH,
    snapshots=Epochs(SMALL_EPOCH, every=12),
)
SMOKE = replace(
    SMALL,
    task=Classification(Digits(), MlpConfig(inputs=64, hidden=32)),
    steps=10 * SMALL_EPOCH,
    snapshots=Epochs(SMALL_EPOCH, first=1, every=3),
)
SECONDS: dict[Scale, int | None] = {"paper": 240, "small": 40, "smoke": 3}


def experiment(scale: Scale) -> Experiment:
    """Return the experiment at one scale."""
    run = {"paper": PAPER, "small": SMALL, "smoke": SMOKE}[scale]
    task: Any = run.task
    random = replace(run, task=replace(task, random_labels=True))
    runs = {RunKey("mlp", {"labels": "random"}): random, RunKey("mlp", {"labels": "true"}): run}
    return trainings("yunis2024/mlp", scale, runs, seconds=SECONDS, compaction=FEW_SPECTRA)
