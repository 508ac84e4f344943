"""ViT-B/16 on ImageNet, streamed from Parquet shards (boix2023, section 5, figs. 1, 15, 16).

The change of each head's K-Q and V-O product since initialisation has low rank, which grows
gradually (B7) and stays far below that of the initial product (B9).

    torchrun --nproc-per-node 8 -m rankscope run boix2023/vit-imagenet --scale paper
    rankscope run boix2023/vit-imagenet --scale small

`paper`: ViT-B/16, Adam at 0.003, batch 4096, 360 epochs with 15 of warm-up, no weight decay. The
paper shows the default initial scale; we add 0.1. What it leaves out, and what we set:
- Random crops of 8 to 100% of an image, mirrored half the time; without them a network of this size
  learns the images by heart. Validation on the centre crop of the 50,000 validation images.
- One half cosine to 0 after the warm-up. Initial positions and biases as in ViT-B/16: `VitConfig`.
- Images are shuffled over 128 row groups at a time, some 12,800 images, in an order of row groups
  that is new in every epoch.
- Products in bfloat16; weights, sums and all decompositions are not.

`small`: 2,000 images made by code, ten kinds of pattern, through the same shards, crops and order;
depth 3, 4 heads of width 16, 32 x 32 pixels in patches of 8.
`smoke`: depth 2, a few steps.

Cost: 2 to 3 minutes at `small`, 45 to 55 s of one core for each run. `paper` was not run.
Expected at `small` (seed 0): at scale 1 training loss 0.15 and validation accuracy 0.89, at scale
0.1 0.34 and 0.82. The change ends with stable rank 1.2 to 1.7 (K-Q) and 1.7 to 2.0 (V-O), mean over
heads, and at scale 0.1 with 1.1 to 1.2 and 1.0 to 1.1; the products began with 4.8 to 5.9. Growth
is not steady: at scale 1 K-Q grows in one block of three.
"""

from dataclasses import replace

from rankscope.lab.claims.vits import CLAIMS
from rankscope.lab.data.crops import Crops
from rankscope.lab.data.patterns import Patterns
from rankscope.lab.data.shards import IMAGENET, IMAGENET_VALIDATION
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.models.vit import VitConfig
from rankscope.lab.tasks.streamed import StreamedClassification
from rankscope.lab.training.optimizers import AdamW
from rankscope.lab.training.rates import Cosine
from rankscope.lab.training.run import TrainingRun
from rankscope.lab.training.sweep import scale_sweep
from rankscope.lab.vit_figures import IMAGENET_FIGURES
from rankscope.tracker import Epochs, LogEpochs

SCALES = (1.0, 0.1)
EPOCH = 312  # steps: 1,281,167 images // 4096
SMALL_EPOCH = 40  # 2,000 images // 50

VIT_B_16 = VitConfig(
    image=224,
    patch=16,
    depth=12,
    heads=12,
    width=768,
    hidden=3072,
    head_width=64,
    classes=1000,
    token_std=0.02,
    qkv_bias=True,
)
SMALL_VIT = VitConfig(
    image=32, patch=8, depth=3, heads=4, width=48, hidden=96, head_width=16, classes=10
)
PAPER = StreamedClassification(IMAGENET, IMAGENET_VALIDATION, VIT_B_16)
SMALL = StreamedClassification(
    Patterns(count=2000),
    Patterns("validation", 400),
    SMALL_VIT,
    Crops(size=32),
    window=8,
)
SMOKE = StreamedClassification(
    Patterns(count=500),
    Patterns("validation", 100),
    replace(SMALL_VIT, depth=2, heads=2, width=16, hidden=16),
    Crops(size=32),
    window=2,
)
TRAININGS: dict[Scale, TrainingRun] = {
    "paper": TrainingRun(
        PAPER,
        AdamW(rate=3e-3),  # without decay it is Adam
        steps=360 * EPOCH,
        batch=4096,
        snapshots=LogEpochs(EPOCH, per_decade=10),
        rate=Cosine(span=360 * EPOCH, warm_up=15 * EPOCH),
        accumulate=8,
        precision="bfloat16",
        evaluation_samples=2000,
        changes=True,
    ),
    "small": TrainingRun(
        SMALL,
        AdamW(rate=2e-3),
        steps=20 * SMALL_EPOCH,
        batch=50,
        snapshots=Epochs(SMALL_EPOCH),
        rate=Cosine(span=20 * SMALL_EPOCH, warm_up=SMALL_EPOCH),
        evaluation_samples=400,
        changes=True,
    ),
    "smoke": TrainingRun(
        SMOKE,
        AdamW(rate=2e-3),
        steps=60,
        batch=20,
        snapshots=Epochs(20, first=1),
        rate=Cosine(span=60, warm_up=10),
        evaluation_samples=50,
        changes=True,
    ),
}
SECONDS: dict[Scale, int | None] = {"paper": None, "small": 150, "smoke": 8}


def experiment(scale: Scale) -> Experiment:
    return scale_sweep(
        "boix2023/vit-imagenet",
        scale,
        {"vit": TRAININGS[scale]},
        init_scales=SCALES,
        claims={key: CLAIMS[key] for key in ("B7", "B9")},  # B8 takes more scales than these
        figures=IMAGENET_FIGURES,
        seconds=SECONDS,
        paper_on="8 H200",
    )
