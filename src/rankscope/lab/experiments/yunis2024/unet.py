"""A diffusion UNet on MNIST under weight decay (yunis2024, sections 3-4, app. C.2, figs. 1-6).

Large singular values grow faster than small ones (Y1) and the effective rank of nearly every layer
falls (Y2); neighbours align weakly (Y3, Y3b), at the centre of filters most (Y11); decay lowers
ranks (Y4), strengthens alignment (Y5), lets the top half of each SVD stand for the network (Y6),
and even decay 10 trains (Y7). Seeds agree (Y12). The trained networks also draw digits.

    rankscope run yunis2024/unet --scale small

`paper`: the paper's hyper-parameters; what it does not print is as in its authors' code: skip
connections are added, beta rises as a sigmoid from 1e-5 to 5e-3 over 1000 steps, pixels have mean 0
and deviation 1, no decay in figures 1-3. Ours: products in bfloat16, the incomplete last batch of
an epoch is left out, samples with the posterior's variance (the code has beta; at 1000 steps the
two hardly differ). Sampling starts from unit noise, as there, though 8% of the variance of x_999 is
still the image's.

`small`: scikit-learn's digits enlarged to 12 x 12, the smallest size at which no tap of a
four-level network sees padding alone; a quarter as wide. Rate 2e-3 for 3,600 steps, so that the
decays are the paper's and sum(rate x decay) is 0.57 of the paper's; rate x decay per step is 7
times larger. Time embedding of 30 cycles in 1000 steps, as in the tutorial that the code is from;
the code has 30 per step. Samples in 100 strides. Expected: training loss from 3.8 to 0.17 at decay
0, where samples look like digits, and to 0.70 at decay 10.
`smoke`: a few steps of a narrower network.
"""

from dataclasses import replace

from rankscope.lab.claims import networks
from rankscope.lab.data.digits import Digits
from rankscope.lab.data.images import MNIST
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.models.unet import UnetConfig
from rankscope.lab.network_figures import SWEEP_FIGURES, samples
from rankscope.lab.tasks.diffusion import Diffusion
from rankscope.lab.training.evaluation import Truncation
from rankscope.lab.training.optimizers import AdamW
from rankscope.lab.training.run import TrainingRun
from rankscope.lab.training.sweep import decay_sweep
from rankscope.tracker import Epochs, Every

DECAYS = (10.0, 1.0, 0.1, 0.0)
EPOCH = 421  # steps: 54,000 images // 128
SMALL_EPOCH = 50  # 1,618 images // 32

PAPER = TrainingRun(
    Diffusion(MNIST, UnetConfig()),
    AdamW(rate=3e-4),
    steps=100 * EPOCH,
    batch=128,
    snapshots=Epochs(EPOCH),
    precision="bfloat16",
    truncation=Truncation(),
)
NARROW = UnetConfig((16, 32, 64, 128), time=64, groups=4, frequency=0.03, padding=1)
SMALL = TrainingRun(
    Diffusion(Digits(size=12), NARROW, sampling_steps=100),
    AdamW(rate=2e-3),
    steps=72 * SMALL_EPOCH,
    batch=32,
    snapshots=Epochs(SMALL_EPOCH, every=3),
    evaluation_samples=500,
    truncation=Truncation(),
)
NARROWER = replace(NARROW, channels=(8, 8, 16, 16), time=8)
SMOKE = replace(
    SMALL,
    task=Diffusion(Digits(size=12), NARROWER, samples=36, sampling_steps=20),
    steps=60,
    snapshots=Every(20),
    evaluation_samples=100,
)
SECONDS: dict[Scale, int | None] = {"paper": 1400, "small": 390, "smoke": 8}


def experiment(scale: Scale) -> Experiment:
    run = {"paper": PAPER, "small": SMALL, "smoke": SMOKE}[scale]
    decays = (1.0, 0.0) if scale == "smoke" else DECAYS
    return decay_sweep(
        "yunis2024/unet",
        scale,
        [run.with_decay(decay, paper=decay) for decay in decays],
        claims=networks.UNET,
        figures={**SWEEP_FIGURES, "samples": samples},
        seconds=SECONDS,
    )
