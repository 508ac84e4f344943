"""The residual UNet of yunis2024 (app. C.2), which predicts the noise in images.

It follows Wang and Vastola's tutorial. It is "residual" because its skip connections add the
output of the down path at the same size.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from rankscope.lab.models.initialisation import draw_defaults, drawn
from rankscope.lab.models.taps import other_taps
from rankscope.lab.training.task import Shown
from rankscope.pairs import Pair
from rankscope.pairs.pair import block_cut


@dataclass(frozen=True)
class UnetConfig:
    """Strided 3x3 convolutions down and transposed ones up, with a time embedding at each level.

    The defaults are those of the paper's code, for 28x28 images.
    channels: of each level.
    time: width of the time embedding.
    groups: of GroupNorm; `first_groups` after the first convolution.
    frequency: standard deviation of the embedding's frequencies, in cycles per diffusion step. The
        code's 30 makes embeddings of neighbouring steps unrelated. The tutorial, whose time runs
        from 0 to 1, has 30 per 1000 steps.
    padding: of every convolution; images under 22 pixels need 1 to have pixels at the last level.
    """

    channels: tuple[int, ...] = (64, 128, 256, 512)
    time: int = 512
    image_channels: int = 1
    groups: int = 32
    first_groups: int = 4
    frequency: float = 30.0
    padding: int = 0

    def __post_init__(self) -> None:
        sizes = (*self.channels, self.time, self.image_channels, self.groups, self.first_groups)
        if min(sizes) < 1 or len(self.channels) < 2 or self.time % 2:
            raise ValueError(f"a UNet needs sizes of 1 or more, 2 levels, an even time, got {self}")
        if self.channels[0] % self.first_groups or any(c % self.groups for c in self.channels):
            raise ValueError(f"channels must be multiples of the norms' groups, got {self}")

    def build(self, seed: int) -> "Unet":
        return drawn(lambda: Unet(self), seed, draw=initialise)


class Unet(nn.Module):
    """A network from noisy images and their diffusion steps to the noise in them.

    Layers are embed; conv1, dense1, norm1 ... down; tconv4, up_dense4, up_norm4 ... tconv1 up.
    """

    fusable = True

    def __init__(self, config: UnetConfig) -> None:
        super().__init__()
        self.config = config
        self.frequencies: Tensor
        self.register_buffer("frequencies", torch.empty(config.time // 2))
        self.embed = nn.Linear(config.time, config.time)
        before = (config.image_channels, *config.channels)
        self.levels = len(config.channels)
        for i, size in enumerate(config.channels, start=1):
            stride = 1 if i == 1 else 2
            down = nn.Conv2d(before[i - 1], size, 3, stride, config.padding, bias=False)
            self.add_module(f"conv{i}", down)
            self._add_condition("", i, size, config.first_groups if i == 1 else config.groups)
        for i in range(self.levels, 1, -1):
            size = before[i - 1]
            up = nn.ConvTranspose2d(before[i], size, 3, 2, config.padding, bias=False)
            self.add_module(f"tconv{i}", up)
            self._add_condition("up_", i, size, config.groups)
        self.tconv1 = nn.ConvTranspose2d(before[1], before[0], 3, 1, config.padding)

    def _add_condition(self, prefix: str, level: int, size: int, groups: int) -> None:
        self.add_module(f"{prefix}dense{level}", nn.Linear(self.config.time, size))
        self.add_module(f"{prefix}norm{level}", nn.GroupNorm(groups, size))

    def forward(
        self,
        images: Float[Tensor, "batch channels rows columns"],
        times: Int[Tensor, " batch"],
    ) -> Float[Tensor, "batch channels rows columns"]:
        angle = 2 * math.pi * times[:, None] * self.frequencies
        time = F.silu(self.embed(torch.cat([angle.sin(), angle.cos()], dim=-1)))
        x, down = images, []
        for i in range(1, self.levels + 1):
            x = self._conditioned(self.get_submodule(f"conv{i}")(x), time, "", i)
            down.append(x)
        x = down.pop()
        for i in range(self.levels, 1, -1):
            skip = down.pop()
            up = self.get_submodule(f"tconv{i}")(x, output_size=skip.shape[2:])
            x = self._conditioned(up, time, "up_", i) + skip
        noise: Tensor = self.tconv1(x)
        return noise

    def _conditioned(self, x: Tensor, time: Tensor, prefix: str, level: int) -> Tensor:
        shift = self.get_submodule(f"{prefix}dense{level}")(time)[:, :, None, None]
        return F.silu(self.get_submodule(f"{prefix}norm{level}")(x + shift))

    def alignment_pairs(self) -> tuple[Pair, ...]:
        """The pairs of the paper's code: the path down and up, time to convolution, skips.

        The code leaves out `embed` and the dense layers of the up path.
        """
        levels = range(1, self.levels + 1)
        path = [*(f"conv{i}" for i in levels), *(f"tconv{i}" for i in reversed(levels))]
        pairs = [self._pair(a, b, "conv") for a, b in pairwise(path)]
        pairs += [self._pair(f"dense{i}", path[i], "time") for i in levels]
        for i in levels[:-1]:
            pairs += [self._pair(f"{a}{i}", f"tconv{i}", "skip") for a in ("conv", "dense")]
        return tuple(pairs)

    def _pair(self, earlier: str, later: str, kind: str) -> Pair:
        filters = self.get_submodule(later)
        assert isinstance(filters, nn.Conv2d | nn.ConvTranspose2d)
        channels = filters.in_channels
        cut = block_cut(0, channels, channels, taps=filters.kernel_size)
        return Pair(earlier, later, kind=kind, later_cut=cut)

    def tap_pairs(self) -> tuple[Pair, ...]:
        """Pairs along the path down and up at the other eight taps."""
        return other_taps(self.alignment_pairs())

    def shown(self) -> Shown:
        """The convolution before the smallest images, and the pair it feeds."""
        middle = self.levels - 1
        return Shown(f"conv{middle}", f"conv{middle} > conv{middle + 1}")


def initialise(model: Unet, generator: torch.Generator) -> None:
    """Draw torch's default weights, and normal frequencies, which are not trained."""
    draw_defaults(model, generator)
    model.frequencies.normal_(0, model.config.frequency, generator=generator)
