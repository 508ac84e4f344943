"""LoRA pairs as products scale * B A, recognised by the names that PEFT and loralib share."""

import math
import re
from collections.abc import Mapping

from torch import nn

from rankscope.matrices.product import ProductReading
from rankscope.matrices.reading import Reading, dotted

# Matches `q_proj.lora_A.default.weight` and `tok.lora_embedding_A.default`; saved files have no
# adapter name.
FACTOR_A = re.compile(
    r"((?P<layer>.*)\.)?lora_(embedding_)?A(\.(?!weight$)(?P<adapter>[^.]+))?(\.weight)?"
)


def lora_products(
    shapes: Mapping[str, tuple[int, ...]], modules: Mapping[str, nn.Module]
) -> tuple[ProductReading, ...]:
    """Return the LoRA pairs among named tensors, with the scale of the layer's module or 1."""
    products = []
    for down, shape in shapes.items():
        match = FACTOR_A.fullmatch(down)
        up = down.replace("lora_A", "lora_B").replace("lora_embedding_A", "lora_embedding_B")
        if match is None or up not in shapes or math.prod(shapes[up][1:]) != shape[0]:
            continue
        layer, adapter = match["layer"] or "", match["adapter"] or "default"
        scale = lora_scale(modules.get(layer), adapter)
        suffix = "" if adapter == "default" else adapter
        # Factors of convolutions have taps. A's taps belong to the inputs, B's taps are 1 x 1.
        a_axes = (("rank", shape[0]), ("in", math.prod(shape[1:])))
        b_axes = (("out", shapes[up][0]), ("rank", shape[0]))
        left = Reading(up.removesuffix(".weight"), up, "lora", b_axes, ("out",), ("rank",))
        right = Reading(down.removesuffix(".weight"), down, "lora", a_axes, ("in",), ("rank",))
        name = dotted(layer, "lora", suffix)
        products.append(ProductReading(name, "lora", left, right, scale))
    return tuple(products)


def lora_scale(module: nn.Module | None, adapter: str) -> float:
    """Return the scale of an adapter; PEFT has a `scaling` for each, loralib has one number."""
    scaling = getattr(module, "scaling", 1.0)
    if isinstance(scaling, Mapping):
        scaling = scaling.get(adapter, 1.0)
    return float(scaling)
