"""Attention modules by the names of their projections, and the check of their products."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional

from rankscope.matrices import Product, products

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
    return (product.left @ product.right.mT).float()


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


@contextmanager
def attention_maps() -> Iterator[list[Tensor]]:
    """Collect the attention probabilities that modules compute inside the block."""
    maps: list[Tensor] = []
    fused, softmax = functional.scaled_dot_product_attention, functional.softmax
    own = {holder: holder.softmax for holder in (torch, Tensor, functional)}

    def scaled_dot_product_attention(q: Tensor, k: Tensor, v: Tensor, *args: Any, **kw: Any) -> Any:
        repeated = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        scale = kw.get("scale") or q.shape[-1] ** -0.5
        maps.append(softmax(q @ repeated.mT * scale, -1))
        return fused(q, k, v, *args, **kw)

    def collecting(original: Any) -> Any:
        def collected(x: Tensor, *args: Any, **kw: Any) -> Any:
            maps.append(original(x, *args, **kw))
            return maps[-1]

        return collected

    with ExitStack() as stack:
        name = "scaled_dot_product_attention"
        stack.enter_context(mock.patch.object(functional, name, scaled_dot_product_attention))
        for holder, original in own.items():
            stack.enter_context(mock.patch.object(holder, "softmax", collecting(original)))
        yield maps


def check_forward(
    module: nn.Module,
    call: Callable[[nn.Module, Tensor], Tensor],
    x: Tensor,
    *,
    scale: float | None = None,
) -> None:
    """Check the products against the maps and the output of one forward pass on tokens x."""
    by_name = products(nn.ModuleDict({"attn": module}))
    assert by_name
    with attention_maps() as maps, torch.no_grad():
        output = call(module, x)
    result = output.reshape(len(x), -1), maps[0]
    if any(name.endswith(".vo") for name in by_name):
        check_heads(by_name, (x, x, x), result, scale=scale)
        return
    probabilities = maps[0].reshape(-1, len(x), len(x))
    assert len(probabilities) == len(by_name)
    for head, weights in enumerate(probabilities):
        kq = by_name[f"attn.h{head}.kq"]
        factor = kq.left.shape[-1] ** -0.5 if scale is None else scale
        torch.testing.assert_close((factor * x @ dense(kq).mT @ x.mT).softmax(-1), weights)


def tokens(module: nn.Module, x: Tensor) -> Tensor:
    """Call a module on a batch of one sequence."""
    output: Tensor = module(x[None])[0]
    return output


def image(module: nn.Module, x: Tensor) -> Tensor:
    """Call a module on a batch of one image of 2 x 2 pixels, given as tokens."""
    output: Tensor = module(x.mT.reshape(1, -1, 2, 2))
    return output.flatten(2)[0].mT
