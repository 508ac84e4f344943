"""The Vision Transformer of boix2023 (section 5), at any size up to ViT-B/16 and beyond."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.lab.models.initialisation import draw_defaults, drawn
from rankscope.lab.models.transformer import block_pairs
from rankscope.lab.training.task import Shown
from rankscope.pairs import Pair


@dataclass(frozen=True)
class VitConfig:
    """A Vision Transformer with pre-norm blocks and a class token; the defaults are boix2023's.

    image: rows and columns, or the side of a square.
    hidden: width of the MLPs.
    head_width: width of every attention head, independent of width / heads.
    init_scale: factor of the default initial weights and biases of every linear layer, except the
        map of patches. It does not scale norms, positions and class token.
    token_std: standard deviation of the normal draw of positions and class token.
    qkv_bias: give queries, keys and values biases.

    boix2023 does not print token_std and qkv_bias. Its sizes, head width and optimizer are those
    of lucidrains' ViT as used for CIFAR, which has 1 and no biases. ViT-B/16 (dosovitskiy2021)
    has 0.02 and biases.
    """

    image: int | tuple[int, int] = 32
    channels: int = 3
    patch: int = 4
    depth: int = 6
    heads: int = 8
    width: int = 512
    hidden: int = 512
    head_width: int = 128
    classes: int = 10
    init_scale: float | int = 1.0
    token_std: float | int = 1.0
    qkv_bias: bool = False

    def __post_init__(self) -> None:
        sizes = (*self.pixels, self.channels, self.patch, self.depth, self.heads, self.width)
        if min(*sizes, self.hidden, self.head_width, self.classes) < 1:
            raise ValueError(f"a ViT's sizes must be at least 1, got {self}")
        if any(side % self.patch for side in self.pixels):
            raise ValueError(
                f"images of {self.pixels} pixels cannot be cut into patches of {self.patch} x "
                f"{self.patch}; choose a patch that divides both sides"
            )
        if self.init_scale <= 0:
            raise ValueError(f"a ViT's init_scale must be above 0, got {self.init_scale:g}")
        if self.token_std < 0:
            raise ValueError(f"a ViT's token_std must not be below 0, got {self.token_std:g}")

    @property
    def pixels(self) -> tuple[int, int]:
        """Rows and columns of an image."""
        return (self.image, self.image) if isinstance(self.image, int) else self.image

    @property
    def tokens(self) -> int:
        """Number of tokens: the class token and one for each patch."""
        rows, columns = self.pixels
        return 1 + (rows // self.patch) * (columns // self.patch)

    def build(self, seed: int = 0) -> "Vit":
        return drawn(lambda: Vit(self), seed, draw=initialise)


class Vit(nn.Module):
    """A network from images to logits, read from the class token, without dropout."""

    fusable = True

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.config = config
        self.patches = nn.Linear(config.channels * config.patch**2, config.width)
        self.class_token = nn.Parameter(torch.empty(config.width))
        self.position = nn.Parameter(torch.empty(config.tokens, config.width))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.classes)

    def forward(
        self, images: Float[Tensor, "batch channels rows columns"]
    ) -> Float[Tensor, "batch classes"]:
        expected = (self.config.channels, *self.config.pixels)
        if tuple(images.shape[1:]) != expected:
            raise ValueError(
                f"this ViT takes images of channels, rows and columns {expected}, got "
                f"{tuple(images.shape[1:])}; give VitConfig the shape of the data"
            )
        patches = self.patches(flat_patches(images, self.config.patch))
        first = self.class_token.expand(len(images), 1, -1)
        x = torch.cat([first, patches], dim=1) + self.position
        for i, block in enumerate(self.blocks, start=1):
            # The head reads only the class token of the last block.
            x = block(x, asking=1 if i == len(self.blocks) else x.shape[1])
        logits: Tensor = self.head(self.norm(x[:, 0]))
        return logits

    def alignment_pairs(self) -> tuple[Pair, ...]:
        """Pairs of neighbours along the blocks, and of queries with keys in each head."""
        pairs: list[Pair] = []
        for i in range(self.config.depth):
            earlier, kind = (f"blocks.{i - 1}.fc2", "fc2-qkv") if i else ("patches", "input")
            pairs += [Pair(earlier, f"blocks.{i}.attention.{role}", kind=kind) for role in "qkv"]
            pairs += block_pairs(
                f"blocks.{i}",
                self.config.heads,
                attention="attention",
                output="o",
                mlp=("fc1", "fc2"),
            )
        return (*pairs, Pair(f"blocks.{self.config.depth - 1}.fc2", "head", kind="output"))

    def shown(self) -> Shown:
        """The first matrix of the MLP in a middle block, and its pair with the second."""
        block = f"blocks.{self.config.depth // 2}"
        return Shown(f"{block}.fc1", f"{block}.fc1 > {block}.fc2")


def flat_patches(
    images: Float[Tensor, "batch channels rows columns"], side: int
) -> Float[Tensor, "batch patches pixels"]:
    """Cut images into patches, row by row, with pixels in the order channel, row, column."""
    rows, columns = images.shape[2] // side, images.shape[3] // side
    grid = images.reshape(*images.shape[:2], rows, side, columns, side)
    return grid.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


class Block(nn.Module):
    """x + attention(norm(x)), then x + fc2 gelu(fc1 norm(x))."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.norm_2 = nn.LayerNorm(config.width)
        self.fc1 = nn.Linear(config.width, config.hidden)
        self.fc2 = nn.Linear(config.hidden, config.width)

    def forward(
        self, x: Float[Tensor, "batch tokens width"], *, asking: int
    ) -> Float[Tensor, "batch asking width"]:
        """Return the first `asking` tokens, which attend to all."""
        x = x[:, :asking] + self.attention(self.norm_1(x), asking=asking)
        x = x + self.fc2(F.gelu(self.fc1(self.norm_2(x))))
        return x


class Attention(nn.Module):
    """Multi-head self-attention to all tokens, heads of any width."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.head_dim = config.head_width
        inner = config.heads * config.head_width
        self.q = nn.Linear(config.width, inner, bias=config.qkv_bias)
        self.k = nn.Linear(config.width, inner, bias=config.qkv_bias)
        self.v = nn.Linear(config.width, inner, bias=config.qkv_bias)
        self.o = nn.Linear(inner, config.width)

    def forward(
        self, x: Float[Tensor, "batch tokens width"], *, asking: int
    ) -> Float[Tensor, "batch asking width"]:
        if torch.is_autocast_enabled(x.device.type):  # cast once instead of in all three layers
            x = x.to(torch.get_autocast_dtype(x.device.type))
        q, k, v = self.q(x[:, :asking]), self.k(x), self.v(x)
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v)  # (batch, heads, asking, unit)
        y: Tensor = self.o(mixed.transpose(1, 2).flatten(2))
        return y


@torch.no_grad()
def initialise(model: Vit, generator: torch.Generator) -> None:
    """Draw every parameter; the draw is the same at every init_scale.

    Linear layers are torch's default times the scale. Norms are 1 and 0. Positions and class token
    are normal.
    """
    draw_defaults(model, generator)
    for parameter in (model.class_token, model.position):
        parameter.normal_(0, model.config.token_std, generator=generator)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.reset_parameters()
        elif isinstance(module, nn.Linear) and module is not model.patches:
            for parameter in module.parameters():
                parameter.mul_(model.config.init_scale)
