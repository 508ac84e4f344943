"""A vision transformer on CIFAR-10 at several initial scales (boix2023, section 5, figs. 1-5).

The change of each head's K-Q product, K_h^T Q_h - K_h(0)^T Q_h(0), and of its V-O product has low
rank, which grows gradually (B7). The smaller the initial weights, the lower it stays (B8). It is
far lower than that of the initial product (B9).

    rankscope run boix2023/vit-cifar10 --scale paper --data FOLDER

Without `--data` the images come from the hub. The paper's network has depth 6, 8 heads of width
128, patches of 4 x 4 pixels and width 512. It trains by Adam at 1e-4 with batch 512 for 500 epochs,
15 of them warm-up, without weight decay or dropout. So does ours.

What the paper leaves out, and what we set:

- Scales. The paper prints none but 1, the default. We take 1, 0.3, 0.1 and 0.03. The scale
  multiplies torch's initial weights and biases of every linear layer of attention, MLP and head,
  not the map of patches, LayerNorm, positions or class token. The same seed draws the same weights
  at every scale.
- Shorter runs. Scale 1 trains to the end. The others follow the same schedule until the first
  snapshot 50 epochs or more after one whose training loss is below 0.001. B8 reads every run at its
  end.
- "Cyclic" decay of the rate is one half cosine from the peak to 0.
- Network. Sizes and optimizer are those of lucidrains' `vit-pytorch`, so we take its conventions:
  torch's default initial weights, positions and class token drawn from N(0, 1), no biases for
  queries, keys and values. Unlike its current versions, no LayerNorm stands around the map of
  patches. The last block computes the class token alone, which changes no number but the time.
- Images. All 50,000 are learnt from; the test set validates. Pixels have mean 0 and deviation 1 per
  channel. There is no augmentation (boix2023/vit-variants has some). Each epoch leaves out the
  incomplete last batch.
- Products are computed in bfloat16; weights, sums and all decompositions are not.
- Blocks are counted from 1. The paper's "layers 1, 3, 5" have no stated base, so we show all.

`small`: scikit-learn's digits, 8 x 8 pixels, patches of 2; depth 6, 4 heads of width 16, width 48.
Peak rate 0.003. Training ends two thirds along the cosine, or four epochs after the loss settled.

`smoke`: depth 2, patches of 4, two scales.

Cost: 3 minutes at `small`; at `paper` 18 minutes on one H200 for a seed.

Expected at `small`: the change ends with stable rank near 1 (K-Q) and near 2 (V-O) at scale 1, and
lower at 0.03; the products began above 5. Growth is not steady: V-O often has its highest stable
rank in the first epoch. At `paper`, in two seeds, B8 and B9 hold, and B7 does for K-Q. V-O misses
its bound by one block in one of them.
"""

from dataclasses import replace

from rankscope.lab.archive.compaction import BITS, CoarseTails, Compaction
from rankscope.lab.data.digits import Digits
from rankscope.lab.data.images import CIFAR10, CIFAR10_TEST
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.models.vit import VitConfig
from rankscope.lab.tasks.classification import Classification
from rankscope.lab.training.optimizers import AdamW
from rankscope.lab.training.rates import Cosine
from rankscope.lab.training.stopping import Settled
from rankscope.lab.training.sweep import scale_sweep
from rankscope.lab.training.training_run import TrainingRun
from rankscope.tracker import Epochs, LogEpochs

INIT_SCALES = (1.0, 0.3, 0.1, 0.03)
EPOCH = 97  # steps: 50,000 images // 512
SMALL_EPOCH = 50  # 1,618 images // 32

SMALL_VIT = VitConfig(
    image=8, channels=1, patch=2, heads=4, width=48, hidden=48, head_width=16, classes=10
)
PAPER = TrainingRun(
    Classification(CIFAR10, VitConfig(), test=CIFAR10_TEST),
    AdamW(rate=1e-4),  # without decay it is Adam
    steps=500 * EPOCH,
    batch=512,
    snapshots=LogEpochs(EPOCH, per_decade=10),
    rate=Cosine(span=500 * EPOCH, warm_up=15 * EPOCH),
    precision="bfloat16",
    evaluation_samples=5000,
    changes=True,
    stop=Settled(loss=1e-3, steps=50 * EPOCH),
)
SMALL = TrainingRun(
    Classification(Digits(), SMALL_VIT),
    AdamW(rate=3e-3),
    steps=24 * SMALL_EPOCH,
    batch=32,
    snapshots=Epochs(SMALL_EPOCH),
    rate=Cosine(span=36 * SMALL_EPOCH, warm_up=SMALL_EPOCH),
    evaluation_samples=500,
    changes=True,
    stop=Settled(loss=1e-3, steps=4 * SMALL_EPOCH),
)
SMOKE_VIT = replace(SMALL_VIT, patch=4, depth=2, heads=2, width=16, hidden=16)
SMOKE = replace(
    SMALL,
    task=Classification(Digits(), SMOKE_VIT),
    optimizer=AdamW(rate=1e-2),
    steps=60,
    snapshots=Epochs(15, first=1),
    rate=Cosine(span=60, warm_up=5),
    evaluation_samples=100,
)
SECONDS: dict[Scale, int | None] = {"paper": 3300, "small": 180, "smoke": 6}
# Claims read changes of products at all times, the products themselves at the start, and matrices
# only to tell whether a run collapsed.
VIT = CoarseTails(
    Compaction(
        bits={**BITS, "product_change_singular_values": 7},
        ends=tuple(name for name in BITS if name != "product_change_singular_values"),
    ),
    leading={"product_change_singular_values": 32},
)


def experiment(scale: Scale) -> Experiment:
    return scale_sweep(
        "boix2023/vit-cifar10",
        scale,
        {"vit": {"paper": PAPER, "small": SMALL, "smoke": SMOKE}[scale]},
        init_scales=(1.0, 0.1) if scale == "smoke" else INIT_SCALES,
        seconds=SECONDS,
        compaction=VIT,
    )
