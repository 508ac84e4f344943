"""Vision transformers of other sizes, and with augmentation (boix2023, section 5, unprinted).

The paper says that networks of other sizes show similar trends, and prints none. It does not say
whether its images were augmented. Each network here is that of boix2023/vit-cifar10 with one
change: depth 3, depth 12, width 256 ("narrow"), or images shifted and mirrored at random.

    rankscope run boix2023/vit-variants --scale paper --data FOLDER

What we set: one seed at `paper`; initial scales 1 and 0.1, so B7 and B9 are judged, and not B8.
Augmented images are shifted by up to 4 pixels (1 at `small`) and mirrored half of the time. Whether
the loss has settled is measured on images that are not augmented. `paper` was not run.

`small`: digits as in boix2023/vit-cifar10; width 24 stands for 256. There are fewer steps: training
ends with losses above 0.001.

`smoke`: depth 3 and augmentation at scale 1.

Cost: 2 minutes at `small`; depth 12 takes 15 to 30 s of one core for each run, the others 3 to 12.

Expected at `small`: the change ends with stable rank between 1 and 3, lower at scale 0.1; the
products began near 5 (narrow: near 4).
"""

from dataclasses import replace

from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.models.vit import VitConfig
from rankscope.lab.papers.boix2023 import vit_cifar10
from rankscope.lab.tasks.augmentation import CropFlip
from rankscope.lab.tasks.classification import Classification
from rankscope.lab.training.rates import Cosine
from rankscope.lab.training.sweep import scale_sweep
from rankscope.tracker import Epochs

SMALL = replace(
    vit_cifar10.SMALL,
    steps=6 * vit_cifar10.SMALL_EPOCH,
    snapshots=Epochs(vit_cifar10.SMALL_EPOCH, first=1),
    rate=Cosine(span=9 * vit_cifar10.SMALL_EPOCH, warm_up=vit_cifar10.SMALL_EPOCH),
)
NARROW: dict[Scale, int] = {"paper": 256, "small": 24, "smoke": 8}
SHIFT: dict[Scale, int] = {"paper": 4, "small": 1, "smoke": 1}  # pixels
SECONDS: dict[Scale, int | None] = {"paper": None, "small": 110, "smoke": 5}


def experiment(scale: Scale) -> Experiment:
    run = {"paper": vit_cifar10.PAPER, "small": SMALL, "smoke": vit_cifar10.SMOKE}[scale]
    task, narrow = run.task, NARROW[scale]
    assert isinstance(task, Classification) and isinstance(task.model, VitConfig)
    tasks = {  # the slowest first
        "depth-12": replace(task, model=replace(task.model, depth=12)),
        "augmented": replace(task, augmentation=CropFlip(padding=SHIFT[scale])),
        "depth-3": replace(task, model=replace(task.model, depth=3)),
        "narrow": replace(task, model=replace(task.model, width=narrow, hidden=narrow)),
    }
    names = ("augmented", "depth-3") if scale == "smoke" else tuple(tasks)
    declared = scale_sweep(
        "boix2023/vit-variants",
        scale,
        {name: replace(run, task=tasks[name]) for name in names},
        init_scales=(1.0,) if scale == "smoke" else (1.0, 0.1),
        seconds=SECONDS,
        compaction=vit_cifar10.VIT,
    )
    return replace(declared, seeds=(0,)) if scale == "paper" else declared
