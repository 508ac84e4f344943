"""Attention modules by the names of their projections, and the check of their products."""

import torch
from torch import Tensor, nn

from rankscope.matrices import Product

WIDTH, HEADS = 12, 3


def attention(layers: dict[str, tuple[int, int]], **attributes: int) -> nn.Module:
    """Return a module with linear layers (inputs, outputs) and attributes at dotted paths."""
    module = nn.Module()
    for path, sizes in layers.items():
        *parents, name = path.split(".")
        parent = module
        for key in parents:
            if key not in parent._modules:
                parent.add_module(key, nn.Module())
            parent = parent.get_submodule(key)
        parent.add_module(name, nn.Linear(*sizes, bias=False))
    for path, value in attributes.items():
        holder, _, name = path.rpartition(".")
        setattr(module.get_submodule(holder), name, value)
    return module


def timm() -> nn.Module:
    """Return the projections of timm's vision transformer."""
    return attention({"qkv": (WIDTH, 3 * WIDTH), "proj": (WIDTH, WIDTH)}, num_heads=HEADS)


def dense(product: Product) -> Tensor:
    return product.left @ product.right.mT


def check_heads(
    by_name: dict[str, Product],
    inputs: tuple[Tensor, Tensor, Tensor],
    result: tuple[Tensor, Tensor],
    *,
    scale: float | None = None,
) -> None:
    """Check that K^T Q of each head gives its logits, and O V of all heads the output.

    inputs: what queries, keys and values are computed from.
    result: the output and the probabilities of each head.
    """
    queries, keys, values = inputs
    output, probabilities = (tensor.detach() for tensor in result)
    probabilities = probabilities.reshape(-1, len(queries), len(keys))
    total = torch.zeros(len(queries), output.shape[-1])
    for head, weights in enumerate(probabilities):
        kq, vo = by_name[f"attn.h{head}.kq"], by_name[f"attn.h{head}.vo"]
        factor = kq.left.shape[-1] ** -0.5 if scale is None else scale
        logits = factor * queries @ dense(kq).mT @ keys.mT
        torch.testing.assert_close(logits.softmax(-1), weights)
        total += weights @ values @ dense(vo).mT
    torch.testing.assert_close(total, output.reshape(total.shape))
    assert len(by_name) == 2 * len(probabilities)
