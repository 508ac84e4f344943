"""When heads leave the linearised regime, read from their weights alone (our own, N1).

The change of a head's K-Q product since the start is dK^T Q0 + K0^T dQ (linearised) plus dK^T dQ
(bilinear). The ratio of the norms of these two is the clock. N1 asks whether it reads about 1 when
the stable rank of the change falls.

    rankscope run findings/clock --scale small
    rankscope run findings/clock --scale paper --data FOLDER

`paper` trains the ViT of boix2023/vit-cifar10 exactly as declared there, at scales 1, 0.3, 0.1 and
0.03, for the first 6 of its 500 epochs, with a snapshot every 20 steps. Seeds are 1, 2 and 3: the
band of N1 was chosen after a look at seed 0. Every snapshot has three norms of each head's change,
formed in float64. The Transformer of yunis2024/lm, without decay, runs for its first 600 steps
beside it, as an observation: N1 says nothing about it. Both lie within or just after the warm-up of
their learning rate.

`small` has the small networks of these experiments. The ViT takes its first 200 steps with a
snapshot every 5, since it learns the digits within an epoch or two; the Transformer takes 200 with
a snapshot every 10.

`smoke` takes two scales and 40 steps.

Cost: about 200 s on one H200 at `paper` (estimated), 5 minutes on two cores at `small`, 10 s at
`smoke`.

Expected at `small`: 15 to 18 of 24 heads are in the band at scale 1, 20 or more at the others, so
N1 fails. In the Transformer the changes of most heads gain rank before they lose any.
"""

from dataclasses import replace

from rankscope.lab.archive.compaction import BITS, OVERLAPS, Compaction, Leading
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.papers.boix2023 import vit_cifar10
from rankscope.lab.papers.yunis2024 import lm
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.tasks.head_changes import WithHeadChanges
from rankscope.lab.training.sweep import from_scale, trainings
from rankscope.lab.training.training_run import TrainingRun
from rankscope.tracker import Every

SEEDS = (1, 2, 3)
VIT: dict[Scale, TrainingRun] = {
    "paper": replace(vit_cifar10.PAPER, steps=6 * vit_cifar10.EPOCH, snapshots=Every(20)),
    "small": replace(vit_cifar10.SMALL, steps=200, snapshots=Every(5)),
    "smoke": replace(vit_cifar10.SMOKE, steps=40, snapshots=Every(5)),
}
LM: dict[Scale, TrainingRun] = {
    "paper": replace(lm.PAPER, steps=600, snapshots=Every(20)),
    "small": replace(lm.SMALL, steps=200, snapshots=Every(10)),
    "smoke": replace(lm.SMOKE, steps=40, snapshots=Every(10)),
}
SECONDS: dict[Scale, int | None] = {"paper": 200, "small": 300, "smoke": 10}
# N1 reads the largest value of each change. Spectra of matrices tell whether a run collapsed.
COMPACTION = Leading(
    Compaction(
        bits={**BITS, "product_change_singular_values": 20},
        ends=("singular_values",),
        absent=(*OVERLAPS, "change_singular_values", "product_singular_values"),
    ),
    {"product_change_singular_values": 1},
)


def experiment(scale: Scale) -> Experiment:
    """Return the experiment at one scale."""
    factors = (1.0, 0.1) if scale == "smoke" else vit_cifar10.INIT_SCALES
    runs = {
        RunKey("vit", {"scale": factor}): with_clock(from_scale(VIT[scale], factor))
        for factor in factors
    }
    runs[RunKey("lm")] = with_clock(replace(LM[scale], truncation=None, changes=True))
    declared = trainings("findings/clock", scale, runs, seconds=SECONDS, compaction=COMPACTION)
    return declared if scale == "smoke" else replace(declared, seeds=SEEDS)


def with_clock(run: TrainingRun) -> TrainingRun:
    """Return the run with the norms of each head's change, trained to its last step."""
    return replace(run, task=WithHeadChanges(run.task), stop=None)
