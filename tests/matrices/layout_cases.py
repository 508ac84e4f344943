"""Attention of third-party packages, rewritten in a few lines each."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from matrices.attention_cases import HEADS, WIDTH

UNITS = WIDTH // HEADS


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return the heads (batch, head, token, unit) side by side."""
    return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class HeadFirst(nn.Module):
    """timm's AttentionCl: the rows of qkv are cut into heads first."""

    def __init__(self, *, head_first: bool = True) -> None:
        super().__init__()
        self.num_heads, self.dim_head, self.head_first = HEADS, UNITS, head_first
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.proj = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.head_first:
            heads = self.qkv(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            q, k, v = heads.chunk(3, dim=-1)
        else:
            q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(attend(q, k, v))


class HeadWidths(nn.Module):
    """timm's EfficientFormer: queries, keys and values of each head, values wider than keys."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.key_dim, self.val_dim = HEADS, 4, 8
        self.qkv = nn.Linear(WIDTH, HEADS * 16, bias=False)
        self.proj = nn.Linear(HEADS * 8, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        return self.proj(attend(*heads.split([4, 4, 8], dim=-1)))


class Halo(nn.Module):
    """timm's HaloAttn on one block: keys and values of each head in one convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.dim_head_qk, self.dim_head_v = HEADS, 4, 6
        self.q = nn.Conv2d(WIDTH, HEADS * 4, 1, bias=False)
        self.kv = nn.Conv2d(WIDTH, HEADS * 10, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(x).reshape(1, HEADS, 4, -1).mT
        k, v = self.kv(x).reshape(1, HEADS, 10, -1).mT.split([4, 6], dim=-1)
        return attend(q, k, v).mT.reshape(1, -1, 2, 2)


class Bottleneck(nn.Module):
    """timm's BottleneckAttn: blocks whose values have another width."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.dim_head_qk, self.dim_head_v = HEADS, 4, 6
        self.qkv = nn.Conv2d(WIDTH, HEADS * 14, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        blocks = self.qkv(x).flatten(2).split([HEADS * 4, HEADS * 4, HEADS * 6], dim=1)
        q, k, v = (block.unflatten(1, (HEADS, -1)).mT for block in blocks)
        return attend(q, k, v).mT.reshape(1, -1, 2, 2)


class InTurn(nn.Module):
    """Grouped heads of x-transformers: query head h meets key head h % kv_heads."""

    def __init__(self, heads: int = 6, kv_heads: int = 2) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.groups = heads, kv_heads, heads // kv_heads
        self.to_q = nn.Linear(WIDTH, heads * UNITS, bias=False)
        self.to_k = nn.Linear(WIDTH, kv_heads * UNITS, bias=False)
        self.to_v = nn.Linear(WIDTH, kv_heads * UNITS, bias=False)
        self.to_out = nn.Linear(heads * UNITS, WIDTH, bias=False)
        self.attend = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (-1, UNITS)).transpose(1, 2)
            for layer in (self.to_q, self.to_k, self.to_v)
        )
        return self.to_out(
            attend(q, k.repeat(1, self.groups, 1, 1), v.repeat(1, self.groups, 1, 1))
        )


class Head(nn.Module):
    """One head of a tutorial's attention."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(WIDTH, UNITS, bias=False) for _ in range(3))


class ModulePerHead(nn.Module):
    """List of heads whose outputs are joined by one projection."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(Head() for _ in range(HEADS))
        self.proj = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            torch.stack([getattr(head, role)(x) for head in self.heads], dim=1)
            for role in ("query", "key", "value")
        )
        return self.proj(attend(q, k, v))


class Stacks(nn.Module):
    """TransformerLens: one tensor with a leading axis of heads for each projection."""

    def __init__(self) -> None:
        super().__init__()
        self.n_heads, self.d_head = HEADS, 5
        for role in "QKV":
            self.register_parameter(f"W_{role}", nn.Parameter(torch.randn(HEADS, WIDTH, 5)))
        self.W_O = nn.Parameter(torch.randn(HEADS, 5, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (torch.einsum("btd,hde->bhte", x, getattr(self, f"W_{role}")) for role in "QKV")
        heads = functional.scaled_dot_product_attention(q, k, v)
        return torch.einsum("bhte,hed->btd", heads, self.W_O)


class ChannelAttention(HeadFirst):
    """DaViT: scores between channels."""


class Temperatures(HeadFirst):
    """XCiT by structure: a temperature for each head."""

    def __init__(self) -> None:
        super().__init__(head_first=False)
        self.temperature = nn.Parameter(torch.ones(HEADS, 1, 1))


class TalkingHeads(HeadFirst):
    """CaiT by structure: a layer mixes the scores of different heads."""

    def __init__(self) -> None:
        super().__init__(head_first=False)
        self.proj_l = nn.Linear(HEADS, HEADS)


class MixingWeights(HeadFirst):
    """DeepViT by structure: a parameter mixes the maps of different heads."""

    def __init__(self) -> None:
        super().__init__(head_first=False)
        self.reattn_weights = nn.Parameter(torch.randn(HEADS, HEADS))


class LinearAttention(HeadFirst):
    """Linear attention, which has a kernel in place of the softmax."""


class LambdaLayer(HeadFirst):
    """Lambda layer: keys are softmaxed, and no query meets a key."""
