"""VGG-16 with batch normalisation and one linear head, for small images (yunis2024, app. C.1)."""

from dataclasses import dataclass

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.lab.models.initialisation import drawn
from rankscope.lab.models.taps import other_taps
from rankscope.lab.training.task import Shown
from rankscope.pairs import Pair
from rankscope.pairs.pair import block_cut

# Channels of the 13 convolutions in five groups; a max-pool may follow each group.
GROUPS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


@dataclass(frozen=True)
class VggConfig:
    """13 convolutions of 3x3 in five groups, an average over the remaining pixels, a linear head.

    channels: of the input image.
    width: factor of the channels of every convolution.
    pools: the groups, from 1, after which a 2x2 max-pool halves the image. The default is that of
        the paper's code, which averages over 2x2 pixels for 32x32 images. Smaller images need
        fewer pools.

    Convolutions have torch's default initial weights, and biases although batch normalisation
    cancels them. Both are as in the paper's code, which follows frankle2020.
    """

    channels: int = 3
    classes: int = 10
    width: float | int = 1
    pools: tuple[int, ...] = (1, 2, 3, 4)

    def __post_init__(self) -> None:
        if min(self.channels, self.classes) < 1 or self.width * 64 < 1:
            raise ValueError(
                f"a VGG needs channels, classes and 64 x width of 1 or more, got {self}"
            )
        if not set(self.pools) <= {1, 2, 3, 4, 5}:
            raise ValueError(f"pools are groups from 1 to 5, got {self.pools}")

    def build(self, seed: int) -> "Vgg":
        return drawn(lambda: Vgg(self), seed)

    @property
    def widths(self) -> tuple[int, ...]:
        """Output channels of each convolution."""
        return tuple(round(size * self.width) for group in GROUPS for size in group)


class Vgg(nn.Module):
    """A network from images to logits; layers conv1 ... conv13, norm1 ... norm13, head."""

    fusable = True

    def __init__(self, config: VggConfig) -> None:
        super().__init__()
        self.config = config
        before = (config.channels, *config.widths)
        for i, size in enumerate(config.widths, start=1):
            self.add_module(f"conv{i}", nn.Conv2d(before[i - 1], size, 3, padding=1))
            self.add_module(f"norm{i}", nn.BatchNorm2d(size))
        self.head = nn.Linear(config.widths[-1], config.classes)

    def forward(
        self, images: Float[Tensor, "batch channels rows columns"]
    ) -> Float[Tensor, "batch classes"]:
        x, i = images, 0
        for number, group in enumerate(GROUPS, start=1):
            for _ in group:
                i += 1
                x = F.relu(self.get_submodule(f"norm{i}")(self.get_submodule(f"conv{i}")(x)))
            if number in self.config.pools:
                x = F.max_pool2d(x, 2)
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits

    def alignment_pairs(self) -> tuple[Pair, ...]:
        """Pairs of consecutive convolutions at the centre tap, and of the last with the head."""
        widths = self.config.widths
        convolutions = (
            Pair(
                f"conv{i}",
                f"conv{i + 1}",
                kind="conv",
                later_cut=block_cut(0, widths[i - 1], widths[i - 1], taps=(3, 3)),
            )
            for i in range(1, len(widths))
        )
        return (*convolutions, Pair(f"conv{len(widths)}", "head"))

    def tap_pairs(self) -> tuple[Pair, ...]:
        """Pairs of consecutive convolutions at the other eight taps."""
        return other_taps(self.alignment_pairs())

    def shown(self) -> Shown:
        """The middle convolution, and the pair it feeds."""
        return Shown("conv7", "conv7 > conv8")
