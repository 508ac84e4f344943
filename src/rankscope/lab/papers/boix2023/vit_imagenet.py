"""ViT-B/16 on ImageNet, streamed from Parquet shards (boix2023, section 5, figs. 1, 15, 16).

Claims B7 and B9 are those of boix2023/vit-cifar10. B8 takes three scales, and we run two.

    torchrun --nproc-per-node 8 -m rankscope run boix2023/vit-imagenet --scale paper --data FOLDER
    rankscope run boix2023/vit-imagenet --scale small

Without `--data` the images come from the hub (`ILSVRC/imagenet-1k`, about 150 GB). The hub gives
them to users who accepted the terms and logged in (`hf auth login`). Shards are fetched when they
are first needed. The paper trains ViT-B/16 by Adam at 0.003 with batch 4096 for 360 epochs, 15 of
them warm-up, without weight decay. So do we, in eight parts of a batch. `paper` was not run.

What the paper leaves out, and what we set; rate and precision are those of boix2023/vit-cifar10:

- Scales. The paper shows the default initial scale. We add 0.1.
- Augmentation. Random crops of 8 to 100% of the area, ratio 3/4 to 4/3, mirrored half the time.
  Without them a network of this size learns the images by heart.
- Validation. The centre of the 50,000 validation images: 224/256 of the short side.
- Network. Positions and class token are drawn from N(0, 0.02^2), and queries, keys and values have
  biases, as in ViT-B/16 (dosovitskiy2021).
- Pixels are shifted and scaled by ImageNet's usual mean and deviation, at `small` too.
- Order. Every epoch permutes the row groups, then the images inside windows of 128 row groups, some
  12,800 images. A batch is a function of seed and step, so a resumed run sees the same batches.
- Constant prediction. Its loss is that of equally frequent classes, ln 1000; ImageNet's classes
  have 732 to 1,300 images each.

Each process has at most two windows in memory, still encoded: 3 GB for ImageNet. Images are decoded
by as many threads as there are cores. If images per second grow with more cores, training waits for
images.

`small`: 2,000 images made by code, ten kinds of pattern, through the same shards, crops and order;
depth 3, 4 heads of width 16, 32 x 32 pixels in patches of 8.

`smoke`: depth 2, a few steps.

Cost: 2 to 3 minutes at `small`, 45 to 55 s of one core for each run. What `paper` costs on eight
GPUs follows from a step on one, which `python -m benchmarks imagenet --device cuda` measures.
Several processes see the crops that one would see, and learn the same up to rounding.

`on_images` declares the same experiment on other images, such as Tiny-ImageNet's.

Expected at `small`: the change ends with stable rank between 1 and 2, lower at scale 0.1; the
products began near 5. Growth is not steady.
"""

from dataclasses import replace
from typing import Any

from rankscope.lab.data.crops import Crops
from rankscope.lab.data.patterns import Patterns
from rankscope.lab.data.shards import IMAGENET, IMAGENET_VALIDATION, ShardedImages
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.judging.selected_runs import all_runs
from rankscope.lab.models.vit import VitConfig
from rankscope.lab.papers.boix2023.claims.growth import B7, B7_FIRST
from rankscope.lab.papers.boix2023.claims.low_rank import B9, B9_FIRST, B9_VALUES
from rankscope.lab.papers.boix2023.vit_cifar10 import VIT
from rankscope.lab.running.run_key import Run
from rankscope.lab.tasks.streamed import StreamedClassification
from rankscope.lab.training.optimizers import AdamW
from rankscope.lab.training.rates import Cosine
from rankscope.lab.training.sweep import scale_sweep
from rankscope.lab.training.training_run import TrainingRun
from rankscope.tracker import Epochs, LogEpochs

INIT_SCALES = (1.0, 0.1)
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
SMALL_TASK = StreamedClassification(
    Patterns(count=2000),
    Patterns("validation", 400),
    SMALL_VIT,
    Crops(size=32),
    window=8,
)
SMOKE_TASK = StreamedClassification(
    Patterns(count=500),
    Patterns("validation", 100),
    replace(SMALL_VIT, depth=2, heads=2, width=16, hidden=16),
    Crops(size=32),
    window=2,
)
PAPER = TrainingRun(
    StreamedClassification(IMAGENET, IMAGENET_VALIDATION, VIT_B_16),
    AdamW(rate=3e-3),  # without decay it is Adam
    steps=360 * EPOCH,
    batch=4096,
    snapshots=LogEpochs(EPOCH, per_decade=10),
    rate=Cosine(span=360 * EPOCH, warm_up=15 * EPOCH),
    accumulate=8,
    precision="bfloat16",
    evaluation_samples=2000,
    changes=True,
)
SMALL = TrainingRun(
    SMALL_TASK,
    AdamW(rate=2e-3),
    steps=20 * SMALL_EPOCH,
    batch=50,
    snapshots=Epochs(SMALL_EPOCH),
    rate=Cosine(span=20 * SMALL_EPOCH, warm_up=SMALL_EPOCH),
    evaluation_samples=400,
    changes=True,
)
SMOKE = replace(
    SMALL,
    task=SMOKE_TASK,
    steps=60,
    batch=20,
    snapshots=Epochs(20, first=1),
    rate=Cosine(span=60, warm_up=10),
    evaluation_samples=50,
)
SECONDS: dict[Scale, int | None] = {"paper": None, "small": 150, "smoke": 8}


def experiment(scale: Scale) -> Experiment:
    """Return the experiment at one scale."""
    return scale_sweep(
        "boix2023/vit-imagenet",
        scale,
        {"vit": {"paper": PAPER, "small": SMALL, "smoke": SMOKE}[scale]},
        init_scales=INIT_SCALES,
        seconds=SECONDS,
        paper_on="8 H200",
        compaction=VIT,
    )


def on_images(
    name: str, scale: Scale, images: ShardedImages, validation: ShardedImages
) -> Experiment:
    """Return the experiment on other images in the hub's layout, with its claims and figures."""
    # Imported here, so that experiments can be read without plotting.
    from rankscope.lab.papers.boix2023.figures.vits import VIT_FIGURES

    declared = experiment(scale)
    figures = (figure for figure in VIT_FIGURES if figure.needs(list(declared.runs)))
    return replace(
        declared,
        name=name,
        runs={key: _on(run, images, validation) for key, run in declared.runs.items()},
        claims=(B7, B7_FIRST, B9, B9_FIRST, B9_VALUES),
        figures=tuple(replace(figure, needs=all_runs) for figure in figures),
        expected_seconds=None,
    )


def _on(run: Run, images: ShardedImages, validation: ShardedImages) -> TrainingRun:
    assert isinstance(run, TrainingRun) and isinstance(run.task, StreamedClassification)
    task: Any = run.task
    model = replace(task.model, classes=images.classes)
    return replace(run, task=replace(task, images=images, test=validation, model=model))
