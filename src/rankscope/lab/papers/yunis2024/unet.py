"""A diffusion UNet on MNIST under weight decay (yunis2024, sections 3-4, app. C.2, figs. 1-6).

Claims Y1 to Y7, Y11 and Y12 read these runs. The trained networks also draw digits.

    rankscope run yunis2024/unet --scale small
    rankscope run yunis2024/unet --scale paper --data FOLDER

`paper` reads MNIST, from the hub if no folder is given. It has the paper's network and settings:
four levels of 64, 128, 256 and 512 channels, swish, GroupNorm, a time embedding of width 512, 1000
noise steps, AdamW at rate 0.0003, batch 128, 100 epochs, decays 0, 0.1, 1 and 10. Snapshots are
taken at the start, four times in the first epoch, and after every epoch. What the paper does not
print is as in its authors' code:

- Figures 1-3 have no decay. In figure 6 the last matrix stays whole; it has one singular value.
- 3 x 3 convolutions have stride 2 from the second level on; transposed ones lead back up. Skip
  connections are added, where other UNets concatenate.
- Each level adds a linear function of the time embedding before its GroupNorm. The embedding is a
  linear layer on sines and cosines of random fixed frequencies, 30 cycles per step.
- The noise is x_t = sqrt(a_t) x_0 + sqrt(1 - a_t) noise, where a_t is the product of 1 - beta up to
  t. beta_t = 1e-5 + (5e-3 - 1e-5) sigmoid(s_t), with s_t from -6 to 6 in equal steps.
- The loss is the mean squared error of the noise. The constant predictor always answers 0 and has
  loss 1.
- Pixels have mean 0 and deviation 1. Sampling starts from unit noise, though 8% of the variance of
  x_999 is still the image's.
- Pairs follow the way down and up (kind `conv`), join each time layer of the way down with the next
  convolution (`time`), and follow skip connections (`skip`). All are read at the centre tap. The
  first time layer and those of the way up are not compared.

We differ from paper and code in these points:

- The held-out tenth of the training images follows the seed; the code has one split for all seeds.
  The test set is not used. Each epoch drops its incomplete last batch.
- Products are computed in bfloat16. Weights are float32, decompositions float64.
- Losses at snapshots use fixed images, noise, and steps spread evenly over all 1000. The code draws
  them anew.
- Samples use the posterior's variance, where the code uses beta. At 1000 steps they hardly differ;
  in strides beta would be too large.

`small` reads scikit-learn's digits, enlarged to 12 x 12, and needs no download. At 8 x 8 the last
level would be one pixel, and five of nine taps of `conv4` would see only padding. The network is a
quarter as wide and its convolutions are padded. The decays are the paper's, and the sum of rate x
decay is 0.57 of the paper's; per step it is 7 times larger. The time embedding has 30 cycles in
1000 steps, as in the tutorial that the code is from. Samples are drawn in 100 strides.

`smoke` takes a few steps with a narrower network.

Cost: 23 minutes on one H200 at `paper`, 6.5 minutes on two cores at `small`, 8 s at `smoke`.

Expect at `small`: a final training loss of 0.17 at decay 0, where samples look like digits, and
0.70 at decay 10.
"""

from dataclasses import replace

from rankscope.lab.archive.compaction import FEW_SPECTRA
from rankscope.lab.data.digits import Digits
from rankscope.lab.data.images import MNIST
from rankscope.lab.experiment import Experiment, Scale
from rankscope.lab.models.unet import UnetConfig
from rankscope.lab.tasks.diffusion import Diffusion
from rankscope.lab.training.evaluation import Truncation
from rankscope.lab.training.optimizers import AdamW
from rankscope.lab.training.sweep import at_decays, decay_sweep
from rankscope.lab.training.training_run import TrainingRun
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
    """Return the experiment at one scale."""
    runs = {
        "paper": at_decays(PAPER, DECAYS),
        "small": at_decays(SMALL, DECAYS),
        "smoke": at_decays(SMOKE, (1.0, 0.0)),
    }[scale]
    return decay_sweep("yunis2024/unet", scale, runs, seconds=SECONDS, compaction=FEW_SPECTRA)
