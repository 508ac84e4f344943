"""A vision transformer at four initial scales: the rank its heads' changes need (our own, N2).

boix2023 finds that small initial weights leave the change of each head's products low in rank, and
asks what that means for the ranks of LoRA. Here the trained network is cut: each head's slices of
W_Q, W_K, W_V and W_O become W0 plus the best part of rank r of W - W0, and the rest stays as
trained. N2 asks for the smallest r that keeps 99% of the held-out accuracy gained.

    rankscope run findings/needed-rank --scale small
    rankscope run findings/needed-rank --scale paper --data FOLDER --device cuda

`paper` has network, data, optimizer and schedule of boix2023/vit-cifar10, at initial scales 1, 0.3,
0.1 and 0.03, without weight decay and with 0.1 (AdamW), seeds 3, 4 and 5. What differs:

- Steps. Training ends after 60 of the 500 epochs at every scale, without an earlier stop. The
  learning rate follows the schedule of 500 epochs, so it is near its peak at the end.
- The products of the heads are not followed.
- At the end the 10,000 test images measure the cuts: K-Q alone, V-O alone and both, each with ranks
  0, 1, 2, 4, ... 128. A head's slices have 128 units, so that rank 128 is the trained network.

`small` has scikit-learn's digits and the network of boix2023/vit-cifar10 at `small`, for 16 epochs.
Heads have 16 units, so ranks end at 16. The 179 test images resolve 0.6% of accuracy.

`smoke` has two scales, too few for N2, and 60 steps.

Cost: about 35 minutes on one H200 at `paper` (estimated), 5 minutes on two cores at `small`, 10 s
at `smoke`.
"""

from collections.abc import Mapping
from dataclasses import replace

from rankscope.lab.archive.compaction import OVERLAPS, Compaction
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.papers.boix2023 import vit_cifar10
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.training.head_cuts import HeadCuts
from rankscope.lab.training.sweep import from_scale, trainings
from rankscope.lab.training.training_run import TrainingRun
from rankscope.tracker import Epochs

SEEDS = (3, 4, 5)
DECAYS = (0.0, 0.1)
INIT_SCALES: Mapping[Scale, tuple[float, ...]] = {
    "paper": vit_cifar10.INIT_SCALES,
    "small": vit_cifar10.INIT_SCALES,
    "smoke": (1.0, 0.1),
}
EPOCHS, SMALL_EPOCHS = 60, 16
CUTS = HeadCuts(ranks=(1, 2, 4, 8, 16, 32, 64, 128))
SMALL_CUTS = HeadCuts(ranks=(1, 2, 4, 8, 16))

PAPER = replace(
    vit_cifar10.PAPER, steps=EPOCHS * vit_cifar10.EPOCH, changes=False, stop=None, cuts=CUTS
)
SMALL = replace(
    vit_cifar10.SMALL,
    steps=SMALL_EPOCHS * vit_cifar10.SMALL_EPOCH,
    snapshots=Epochs(vit_cifar10.SMALL_EPOCH, every=2),
    changes=False,
    stop=None,
    cuts=SMALL_CUTS,
)
SMOKE = replace(vit_cifar10.SMOKE, changes=False, stop=None, cuts=HeadCuts(ranks=(1, 16)))
SECONDS: dict[Scale, int | None] = {"paper": 2000, "small": 300, "smoke": 10}
# N2 reads what was measured at the end; spectra only tell whether a run collapsed.
ENDS = Compaction(ends=("singular_values",), absent=OVERLAPS)


def experiment(scale: Scale) -> Experiment:
    """Return the experiment at one scale."""
    base: TrainingRun = {"paper": PAPER, "small": SMALL, "smoke": SMOKE}[scale]
    runs = {
        RunKey("vit", {"scale": factor, "decay": decay}): from_scale(base, factor).with_decay(
            decay, paper=decay
        )
        for decay in DECAYS
        for factor in INIT_SCALES[scale]
    }
    declared = trainings("findings/needed-rank", scale, runs, seconds=SECONDS, compaction=ENDS)
    return declared if scale == "smoke" else replace(declared, seeds=SEEDS)
