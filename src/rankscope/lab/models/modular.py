"""The one-layer Transformer without LayerNorm that groks modular addition (yunis2024, app. D).

As in the paper's code, this is its language model with one layer and without norms. The network of
nanda2023, which introduced the task, has learned positions and no biases.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from rankscope.lab.models.initialisation import draw_defaults, drawn
from rankscope.lab.models.transformer import block_pairs, sinusoids
from rankscope.lab.training.task import Shown
from rankscope.pairs import Pair


@dataclass(frozen=True)
class ModularConfig:
    """Sizes of a network from tokens a, b, "=" to the logits of (a + b) mod p.

    The defaults are those of the paper's code. There are p + 1 tokens, of which "=" is the last,
    and as many logits.
    """

    p: int = 113
    width: int = 128
    heads: int = 4
    hidden: int = 512

    def __post_init__(self) -> None:
        if min(self.p, self.width, self.heads, self.hidden) < 1:
            raise ValueError(f"the sizes of a Transformer must be at least 1, got {self}")
        if self.width % 2 or self.width % self.heads:
            raise ValueError(
                f"width must be even and a multiple of the {self.heads} heads, got {self.width}"
            )

    def build(self, seed: int) -> "ModularTransformer":
        return drawn(lambda: ModularTransformer(self), seed, draw=initialise)


class ModularTransformer(nn.Module):
    """A network of embedding, fixed positions and one block, with logits at the last position."""

    def __init__(self, config: ModularConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.p + 1, config.width)
        self.positions: Tensor
        self.register_buffer("positions", torch.empty(3, config.width), persistent=False)
        self.block = NormlessBlock(config.width, config.heads, config.hidden)
        self.output = nn.Linear(config.width, config.p + 1)

    def forward(self, tokens: Int[Tensor, "batch 3"]) -> Float[Tensor, "batch tokens"]:
        x = self.embedding(tokens) * math.sqrt(self.config.width) + self.positions
        logits: Tensor = self.output(self.block(x))
        return logits

    def alignment_pairs(self) -> tuple[Pair, ...]:
        """Pairs as in the language model: embedding to QKV, inside the block, W2 to the output."""
        first = Pair("embedding", "block.attn.qkv", kind="input")
        inside = block_pairs("block", self.config.heads)
        return (first, *inside, Pair("block.w2", "output", kind="output"))

    def shown(self) -> Shown:
        """W1, and its pair with W2."""
        return Shown("block.w1", "block.w1 > block.w2")


class NormlessBlock(nn.Module):
    """x + attention(x), then x + W2 relu(W1 x), at the last position only, as the logits need."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.attn = LastAttention(width, heads)
        self.w1 = nn.Linear(width, hidden)
        self.w2 = nn.Linear(hidden, width)

    def forward(self, x: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch width"]:
        last: Tensor = x[:, -1] + self.attn(x)
        last = last + self.w2(F.relu(self.w1(last)))
        return last


class LastAttention(nn.Module):
    """Multi-head attention of the last position to all, equal to causal self-attention there.

    It is written out because fused kernels take several times longer on three positions.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch width"]:
        width, (W, bias) = x.shape[-1], (self.qkv.weight, self.qkv.bias)
        q = F.linear(x[:, -1:], W[:width], bias[:width]).unflatten(-1, (self.heads, -1))
        kv = F.linear(x, W[width:], bias[width:]).unflatten(-1, (2, self.heads, -1))
        k, v = kv.unbind(2)  # each (batch, time, heads, unit)
        weights = ((q * k).sum(-1) / math.sqrt(q.shape[-1])).softmax(1)  # (batch, time, heads)
        mixed = (weights[..., None] * v).sum(1).flatten(1)
        y: Tensor = self.out_proj(mixed)
        return y


@torch.no_grad()
def initialise(model: ModularTransformer, generator: torch.Generator) -> None:
    """Draw every parameter, the block as nn.TransformerEncoderLayer does.

    Embedding and output are uniform in (-0.1, 0.1), the packed QKV matrix is Xavier uniform.
    Other matrices and the biases of W1 and W2 are uniform in +-1/sqrt(n). Biases of attention and
    output are 0.
    """
    draw_defaults(model, generator)
    nn.init.xavier_uniform_(model.block.attn.qkv.weight, generator=generator)
    model.embedding.weight.uniform_(-0.1, 0.1, generator=generator)
    model.output.weight.uniform_(-0.1, 0.1, generator=generator)
    for linear in (model.block.attn.qkv, model.block.attn.out_proj, model.output):
        linear.bias.zero_()
    model.positions.copy_(sinusoids(3, model.config.width))
