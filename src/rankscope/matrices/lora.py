"""LoRA pairs as products scale * B A, recognised by the names that PEFT and loralib share."""

import math
import re
from collections.abc import Mapping

from torch import nn

from rankscope.matrices.effective import Effective, Step
from rankscope.matrices.product import ProductReading
from rankscope.matrices.reading import Axes, Reading, dotted

# Matches `q_proj.lora_A.default.weight` and `tok.lora_embedding_A.default`; saved files have no
# adapter name.
FACTOR_A = re.compile(
    r"((?P<layer>.*)\.)?lora_(embedding_)?A(\.(?!weight$)(?P<adapter>[^.]+))?(\.weight)?"
)


def lora_products(
    shapes: Mapping[str, tuple[int, ...]], modules: Mapping[str, nn.Module]
) -> tuple[tuple[ProductReading, ...], tuple[Effective, ...]]:
    """Return the LoRA pairs among named tensors, with the scale of the layer's module or 1.

    The second result are factors that are computed: those of AdaLoRA contain its singular values.
    """
    products: list[ProductReading] = []
    computed: list[Effective] = []
    for down, shape in shapes.items():
        match = FACTOR_A.fullmatch(down)
        up = down.replace("lora_A", "lora_B").replace("lora_embedding_A", "lora_embedding_B")
        if match is None or min(len(shape), len(shapes.get(up, ()))) < 2:
            continue
        if math.prod(shapes[up][1:]) != shape[0]:
            continue
        layer, adapter = match["layer"] or "", match["adapter"] or "default"
        module = modules.get(layer)
        scale = lora_scale(module, adapter)
        suffix = "" if adapter == "default" else adapter
        left = up
        middle, ranks = (dotted(layer, key, adapter) for key in ("lora_E", "ranknum"))
        if middle in shapes and ranks in shapes:
            step = Step("AdaLoRA factor", (middle, ranks))
            left = f"{up}.scaled"
            computed.append(Effective(left, shapes[up], up, (step,)))
        experts = int(getattr(module, "num_experts", 1))
        for expert in range(experts) if experts > 1 else (None,):
            name = dotted(layer, "lora", suffix, "" if expert is None else f"e{expert}")
            factors = _factors(left, down, shapes[up][0], shape, experts, expert)
            products.append(ProductReading(name, "lora", *factors, scale))
    return tuple(products), tuple(computed)


def _factors(
    up: str, down: str, out: int, shape: tuple[int, ...], experts: int, expert: int | None
) -> tuple[Reading, Reading]:
    """Return B and A transposed, of one expert if the layer has several."""
    # Factors of convolutions have taps. A's taps belong to the inputs, B's taps are 1 x 1.
    inputs = math.prod(shape[1:])
    index: tuple[tuple[str, int], ...] = ()
    a_axes: Axes = (("rank", shape[0]), ("in", inputs))
    b_axes: Axes = (("out", out), ("rank", shape[0]))
    if expert is not None:
        # PEFT has A's rows by expert and B's columns by rank, then by expert.
        rank = shape[0] // experts
        a_axes = (("expert", experts), ("rank", rank), ("in", inputs))
        b_axes = (("out", out), ("rank", rank), ("expert", experts))
        index = (("expert", expert),)
    left = Reading(up.removesuffix(".weight"), up, "lora", b_axes, ("out",), ("rank",), index)
    right = Reading(down.removesuffix(".weight"), down, "lora", a_axes, ("in",), ("rank",), index)
    return left, right


def lora_scale(module: nn.Module | None, adapter: str) -> float:
    """Return the scale of an adapter; PEFT has a `scaling` for each, loralib has one number."""
    scaling = getattr(module, "scaling", 1.0)
    if isinstance(scaling, Mapping):
        scaling = scaling.get(adapter, 1.0)
    return float(scaling)
