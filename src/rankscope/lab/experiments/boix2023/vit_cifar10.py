"""A vision transformer on CIFAR-10 at several initial scales (boix2023, section 5, figs. 1-5).

The change of each head's K-Q and V-O product since initialisation has low rank, which grows
gradually (B7); the smaller the initial weights, the lower it stays (B8); it is far lower than that
of the initial product (B9).

    rankscope run boix2023/vit-cifar10 --scale paper

`paper`: depth 6, 8 heads of width 128, patch 4, width 512, Adam at 1e-4, batch 512, 500 epochs with
15 of warm-up, no weight decay, no dropout. What the paper leaves out, and what we set:
- Scales. It prints none but 1, the default; we take 1, 0.3, 0.1 and 0.03. The scale multiplies
  every linear layer but the map of patches. Scale 1 trains to the end; the others on the same
  schedule, until the first snapshot 50 epochs or more after one whose training loss is < 0.001.
- "Cyclic" decay of the rate: one half cosine to 0.
- Positions, class token, biases: see `VitConfig`. No augmentation (boix2023/vit-variants has some).
- All 50,000 images are learnt from; the test set validates. Pixels have mean 0, deviation 1.
- Products in bfloat16; weights, sums and all decompositions are not.

`small`: scikit-learn's digits, 8 x 8 pixels, patches of 2; depth 6, 4 heads of width 16, width 48.
Peak rate 0.003; training ends two thirds along the cosine, or four epochs after it has settled.
`smoke`: depth 2, patches of 4, two scales.

Cost: 3 minutes at `small`, 30 s of one core for each run.
Expected at `small` (seed 0): at scale 1 the training loss is below 0.001 from epoch 17 on,
validation accuracy 0.99. There the change ends with stable rank 1.2 to 1.4 (K-Q) and 1.8 to 2.2
(V-O), mean over heads, at scale 0.03 with 1.0 and 1.2 to 1.6; the products began with 5.2 to 5.9.
Growth is not steady: in four of six blocks V-O has its highest stable rank in the first epoch.
At scale 0.03 the loss ends at 0.0016, so that the run is not stopped.
"""

from dataclasses import replace

from rankscope.lab.claims.vits import CLAIMS
from rankscope.lab.data.digits import Digits
from rankscope.lab.data.images import CIFAR10, CIFAR10_TEST
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.models.vit import VitConfig
from rankscope.lab.tasks.classification import Classification
from rankscope.lab.training.optimizers import AdamW
from rankscope.lab.training.rates import Cosine
from rankscope.lab.training.run import TrainingRun
from rankscope.lab.training.stopping import Settled
from rankscope.lab.training.sweep import scale_sweep
from rankscope.lab.vit_figures import CIFAR10_FIGURES
from rankscope.tracker import Epochs, LogEpochs

SCALES = (1.0, 0.3, 0.1, 0.03)
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


def experiment(scale: Scale) -> Experiment:
    return scale_sweep(
        "boix2023/vit-cifar10",
        scale,
        {"vit": {"paper": PAPER, "small": SMALL, "smoke": SMOKE}[scale]},
        init_scales=(1.0, 0.1) if scale == "smoke" else SCALES,
        claims=CLAIMS,
        figures=CIFAR10_FIGURES,
        seconds=SECONDS,
    )
