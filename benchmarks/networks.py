"""The ViT of boix2023 at full size, with packed queries, keys and values."""

import torch
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, width: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = heads, head_dim
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * heads * head_dim, bias=False)
        self.proj = nn.Linear(heads * head_dim, width)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, tokens, 3, self.num_heads, self.head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.proj(mixed)
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """The CIFAR ViT of boix2023: depth 6, 8 heads of width 128, patch 4, d_emb = d_mlp = 512."""

    def __init__(
        self, depth: int = 6, width: int = 512, heads: int = 8, head_dim: int = 128
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.position = nn.Parameter(0.02 * torch.randn(1, 64, width))
        self.blocks = nn.Sequential(*(Block(width, heads, head_dim) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).mT + self.position
        return self.head(self.norm(self.blocks(x)).mean(1))
