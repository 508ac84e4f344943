"""The pre-norm Transformer language model of yunis2024 (section 3, app. C.4), at any size."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from rankscope.lab.models.initialisation import drawn
from rankscope.lab.training.task import Shown
from rankscope.pairs import Pair


@dataclass(frozen=True)
class TransformerConfig:
    """A Transformer language model.

    The paper's has 12 layers, width 768, 12 heads and context 2048.
    vocabulary: replaced by that of the text when a task builds the model.
    hidden: width of the MLPs; None for `width`.
    copied_layers: start all layers as copies of one, as the paper's code does. All layers then
        have the same overlaps at step 0.
    """

    layers: int
    width: int
    heads: int
    context: int
    vocabulary: int = 256
    hidden: int | None = None
    copied_layers: bool = False

    def __post_init__(self) -> None:
        sizes = (self.layers, self.width, self.heads, self.vocabulary, self.context)
        if min(sizes) < 1 or (self.hidden is not None and self.hidden < 1):
            raise ValueError(f"a Transformer's sizes must be at least 1, got {self}")
        if self.width % 2 or self.width % self.heads:
            raise ValueError(
                f"width must be even and a multiple of the {self.heads} heads, got {self.width}"
            )

    def build(self, seed: int = 0) -> "Transformer":
        return drawn(lambda: Transformer(self), seed, draw=initialise)


class Transformer(nn.Module):
    """A network from tokens to logits of the next, without a final norm or a tied output."""

    fusable = True

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(
            Block(config.width, config.heads, config.hidden or config.width)
            for _ in range(config.layers)
        )
        self.output = nn.Linear(config.width, config.vocabulary)
        self.positions: Tensor
        positions = torch.empty(config.context, config.width)
        self.register_buffer("positions", positions, persistent=False)

    def forward(self, tokens: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time vocabulary"]:
        # The factor makes tokens about as large as positions (vaswani2017, section 3.4).
        x = self.embedding(tokens) * math.sqrt(self.config.width)
        x = x + self.positions[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.output(x)
        return logits

    def alignment_pairs(self) -> tuple[Pair, ...]:
        """The paper's pairs: neighbours along the layers, and queries with keys in each head."""
        pairs = [Pair("embedding", "blocks.0.attn.qkv", kind="input")]
        for layer in range(self.config.layers):
            if layer > 0:
                earlier = f"blocks.{layer - 1}.w2"
                pairs.append(Pair(earlier, f"blocks.{layer}.attn.qkv", kind="w2-qkv"))
            pairs += block_pairs(f"blocks.{layer}", self.config.heads)
        return (*pairs, Pair(f"blocks.{self.config.layers - 1}.w2", "output", kind="output"))

    def shown(self) -> Shown:
        """The first matrix of the MLP in a middle layer, and its pair with the second."""
        block = f"blocks.{self.config.layers // 2}"
        return Shown(f"{block}.w1", f"{block}.w1 > {block}.w2")


def block_pairs(
    block: str,
    heads: int,
    *,
    attention: str = "attn",
    output: str = "out_proj",
    mlp: tuple[str, str] = ("w1", "w2"),
) -> list[Pair]:
    """The pairs inside one block: Q-K per head on their output sides, V-O, O-W1, W1-W2."""
    inside, (first, second) = f"{block}.{attention}", mlp
    queries_keys = [
        Pair(f"{inside}.h{h}.q", f"{inside}.h{h}.k", kind="qk", later_side="out")
        for h in range(heads)
    ]
    return [
        *queries_keys,
        Pair(f"{inside}.v", f"{inside}.{output}", kind="vo"),
        Pair(f"{inside}.{output}", f"{block}.{first}", kind=f"o-{first}"),
        Pair(f"{block}.{first}", f"{block}.{second}", kind=f"{first}-{second}"),
    ]


class Block(nn.Module):
    """x + attention(norm(x)), then x + W2 relu(W1 norm(x))."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = CausalAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.w1 = nn.Linear(width, hidden)
        self.w2 = nn.Linear(hidden, width)

    def forward(self, x: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch time width"]:
        x = x + self.attn(self.norm1(x))
        x = x + self.w2(F.relu(self.w1(self.norm2(x))))
        return x


class CausalAttention(nn.Module):
    """Multi-head self-attention to earlier positions, queries, keys and values from one matrix."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch time width"]:
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1))  # (batch, time, 3, heads, unit)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (batch, heads, time, unit)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y: Tensor = self.out_proj(mixed.transpose(1, 2).flatten(2))
        return y


@torch.no_grad()
def initialise(model: Transformer, generator: torch.Generator) -> None:
    """Draw every parameter, blocks as nn.TransformerEncoderLayer does.

    Embedding and output are uniform in (-0.1, 0.1), the output bias is 0. In blocks, the packed QKV
    matrix is Xavier uniform; other matrices and the biases of W1 and W2 are uniform in
    +-1/sqrt(n). This is our reading of the paper.
    """
    model.positions.copy_(sinusoids(*model.positions.shape))
    model.embedding.weight.uniform_(-0.1, 0.1, generator=generator)
    model.output.weight.uniform_(-0.1, 0.1, generator=generator)
    model.output.bias.zero_()
    for block in model.blocks:
        assert isinstance(block, Block)
        _initialise_block(block, generator)
    if model.config.copied_layers:
        for block in model.blocks:
            block.load_state_dict(model.blocks[0].state_dict())


def _initialise_block(block: Block, generator: torch.Generator) -> None:
    block.norm1.reset_parameters()
    block.norm2.reset_parameters()
    attention = block.attn
    nn.init.xavier_uniform_(attention.qkv.weight, generator=generator)
    for linear in (attention.out_proj, block.w1, block.w2):
        bound = 1 / math.sqrt(linear.in_features)
        linear.weight.uniform_(-bound, bound, generator=generator)
        linear.bias.uniform_(-bound, bound, generator=generator)
    attention.qkv.bias.zero_()
    attention.out_proj.bias.zero_()


def sinusoids(context: int, width: int) -> Float[Tensor, "context width"]:
    """sin and cos of position / 10000^(2i / width), interleaved (vaswani2017, section 3.5)."""
    position = torch.arange(context, dtype=torch.float64)[:, None]
    frequency = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angle = position * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()
