"""Vision transformers of other sizes, and with augmentation (boix2023, section 5, unprinted).

The paper says that networks of other sizes show similar trends, and prints none; nor does it say
whether its images were augmented. The vision transformer of boix2023/vit-cifar10 with depth 3, with
depth 12, with width 256 ("narrow"), and on images shifted and mirrored at random: the change of the
heads' products has low rank that grows gradually (B7) and is far below the initial one (B9).

    rankscope run boix2023/vit-variants --scale paper

At the default scale and at a tenth of it; B8 compares more scales than these two and is judged in
boix2023/vit-cifar10. Augmented images are shifted by up to 4 pixels (1 at `small`) and mirrored
half of the time; the loss below which training has settled is that of images as they are.
`small`: digits as in boix2023/vit-cifar10; width 24 stands for 256. Fewer steps: training ends
with losses above 0.001, and B7 looks at all of it.
`smoke`: depth 3 and augmentation at scale 1.

Cost: 2 minutes at `small`; depth 12 takes 15 to 30 s of one core for each run, the others 3 to 12.
Expected at `small` (seed 0, scale 1): training loss 0.02 to 0.03, validation accuracy 0.96 to 0.99;
of augmented images 0.5 and 0.88. The change ends with stable rank 1.1 to 2.0 (K-Q) and 1.6 to 2.6
(V-O), mean over heads, where the products began with 4.9 to 6.0 (narrow: 3.8 to 4.6); at scale 0.1
with 1.0 to 1.1 and 1.0 to 1.6. Growth is not steady: in no variant do five sixths of the blocks
grow at scale 1.
"""

from dataclasses import replace

from rankscope.lab.claims.vits import CLAIMS
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.experiments.boix2023 import vit_cifar10
from rankscope.lab.models.vit import VitConfig
from rankscope.lab.tasks.augmentation import CropFlip
from rankscope.lab.tasks.classification import Classification
from rankscope.lab.training.rates import Cosine
from rankscope.lab.training.run import TrainingRun
from rankscope.lab.training.sweep import scale_sweep
from rankscope.lab.vit_figures import VARIANT_FIGURES
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
    networks = variants(run, scale)
    if scale == "smoke":
        networks = {name: networks[name] for name in ("augmented", "depth-3")}
    return scale_sweep(
        "boix2023/vit-variants",
        scale,
        networks,
        init_scales=(1.0,) if scale == "smoke" else (1.0, 0.1),
        claims={key: CLAIMS[key] for key in ("B7", "B9")},
        figures=VARIANT_FIGURES,
        seconds=SECONDS,
    )


def variants(run: TrainingRun, scale: Scale) -> dict[str, TrainingRun]:
    """The slowest first."""
    task, narrow = run.task, NARROW[scale]
    assert isinstance(task, Classification) and isinstance(task.model, VitConfig)
    tasks = {
        "depth-12": replace(task, model=replace(task.model, depth=12)),
        "augmented": replace(task, augmentation=CropFlip(padding=SHIFT[scale])),
        "depth-3": replace(task, model=replace(task.model, depth=3)),
        "narrow": replace(task, model=replace(task.model, width=narrow, hidden=narrow)),
    }
    return {name: replace(run, task=changed) for name, changed in tasks.items()}
