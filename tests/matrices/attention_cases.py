"""Attention modules of different code bases, small and without biases."""

import torch
from torch import Tensor, nn

WIDTH, HEADS, HEAD_DIM = 12, 3, 4
Result = tuple[Tensor, Tensor]


def attend(q: Tensor, k: Tensor, v: Tensor) -> Result:
    """Map q, k, v of (heads, tokens, dim) to values (tokens, heads * dim) and probabilities."""
    probabilities = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    return (probabilities @ v).transpose(0, 1).flatten(1), probabilities


def by_head(x: Tensor, heads: int) -> Tensor:
    return x.reshape(len(x), heads, -1).transpose(0, 1)  # (heads, tokens, dim)


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class Timm(nn.Module):
    """Attention of timm's vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = HEADS
        self.qkv = linear(WIDTH, 3 * WIDTH)
        self.proj = linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Result:
        q, k, v = self.qkv(x).reshape(len(x), 3, HEADS, HEAD_DIM).permute(1, 2, 0, 3)
        mixed, probabilities = attend(q, k, v)
        return self.proj(mixed), probabilities


class Lucidrains(nn.Module):
    """Attention of vit-pytorch; its heads are wider than the model."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = HEADS
        self.to_qkv = linear(WIDTH, 3 * HEADS * 5)
        self.to_out = nn.Sequential(linear(HEADS * 5, WIDTH), nn.Dropout(0.0))

    def forward(self, x: Tensor) -> Result:
        q, k, v = (by_head(part, HEADS) for part in self.to_qkv(x).chunk(3, dim=-1))
        mixed, probabilities = attend(q, k, v)
        return self.to_out(mixed), probabilities


class CrossLucidrains(nn.Module):
    """Cross attention of vit-pytorch, with keys and values in one projection."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = HEADS
        self.to_q = linear(WIDTH, WIDTH)
        self.to_kv = linear(WIDTH, 2 * WIDTH)
        self.to_out = linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Result:
        k, v = (by_head(part, HEADS) for part in self.to_kv(x).chunk(2, dim=-1))
        mixed, probabilities = attend(by_head(self.to_q(x), HEADS), k, v)
        return self.to_out(mixed), probabilities


class NanoGPT(nn.Module):
    """Attention of nanoGPT."""

    def __init__(self) -> None:
        super().__init__()
        self.n_head = HEADS
        self.c_attn = linear(WIDTH, 3 * WIDTH)
        self.c_proj = linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Result:
        q, k, v = (by_head(part, HEADS) for part in self.c_attn(x).split(WIDTH, dim=-1))
        mixed, probabilities = attend(q, k, v)
        return self.c_proj(mixed), probabilities


class Meta(nn.Module):
    """Attention of Meta's Llama, with 6 query heads and 2 key heads."""

    def __init__(self) -> None:
        super().__init__()
        self.n_local_heads, self.head_dim = 6, 2
        self.wq, self.wo = linear(WIDTH, 12), linear(12, WIDTH)
        self.wk, self.wv = linear(WIDTH, 4), linear(WIDTH, 4)

    def forward(self, x: Tensor) -> Result:
        k, v = (by_head(part(x), 2).repeat_interleave(3, dim=0) for part in (self.wk, self.wv))
        mixed, probabilities = attend(by_head(self.wq(x), 6), k, v)
        return self.wo(mixed), probabilities


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.num_attention_heads = HEADS
        self.query, self.key, self.value = (linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: Tensor) -> Result:
        q, k, v = (by_head(part(x), HEADS) for part in (self.query, self.key, self.value))
        return attend(q, k, v)


class OldHuggingFaceViT(nn.Module):
    """Attention of an old ViT, whose output projection is in a sibling of the other projections."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Inner()
        self.output = nn.ModuleDict({"dense": linear(WIDTH, WIDTH)})

    def forward(self, x: Tensor) -> Result:
        mixed, probabilities = self.attention(x)
        return self.output["dense"](mixed), probabilities


def zero_biases(module: nn.Module) -> nn.Module:
    """Set biases to zero: products hold weights only, but a forward pass adds biases."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.ndim == 1 and name.endswith("bias"):
                parameter.zero_()
    return module
