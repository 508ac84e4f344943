"""Quantized weights: tensors that dequantize themselves, float8 with scales, packed modules."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from rankscope.matrices.effective import Effective, Step
from rankscope.matrices.reading import dotted
from rankscope.matrices.wrappers import walk

# Names of the scales beside a weight, in transformers and compressed-tensors.
SCALES = ("_scale_inv", "_scale")
USUAL_BLOCK = 128  # rows and columns of a block, in all published formats that have blocks
PACKED = "_packed_params.weight"


def is_quantized(tensor: Tensor) -> bool:
    """Tell whether a tensor can dequantize itself, as torch's and torchao's can."""
    return tensor.is_quantized or type(tensor).dequantize is not Tensor.dequantize


def is_float8(tensor: Tensor) -> bool:
    """Tell whether a tensor holds floating-point numbers of eight bits or fewer."""
    return tensor.is_floating_point() and tensor.dtype.itemsize == 1


def quantized(module: nn.Module) -> Iterator[Effective]:
    """Yield the weights of a module to dequantize; names are relative, shapes not yet known."""
    for key, tensor in module._parameters.items():
        if tensor is None or tensor.ndim < 2 or not (is_quantized(tensor) or is_float8(tensor)):
            continue
        others = {
            k: t
            for k, t in (*module._parameters.items(), *module._buffers.items())
            if t is not None
        }
        scale = next((key + end for end in SCALES if key + end in others), None)
        if scale is None:
            step = Step("dequantized")
        else:
            step = Step("scale", (scale,), _block_sizes(module, tensor, others[scale]))
        yield Effective(key, (), key, (step,))
    if packed_class(module) is not None:
        yield Effective("weight", (), PACKED, (Step("dequantized"),))


def _block_sizes(module: nn.Module, weight: Tensor, scale: Tensor) -> tuple[float, ...]:
    """Return the size of a scale's block along each axis; a module's own `block_size` decides.

    Shapes alone do not tell: blocks of 128 cut 576 rows into five, the last of which is smaller.
    """
    counts = (*scale.shape, *[1] * weight.ndim)[: weight.ndim]
    stated = vars(module).get("block_size")
    blocks = [USUAL_BLOCK] * weight.ndim
    if isinstance(stated, list | tuple) and len(stated) == weight.ndim:
        blocks = [int(size) for size in stated]
    return tuple(
        float(block if -(-size // block) == count else -(-size // max(1, count)))
        for size, count, block in zip(weight.shape, counts, blocks, strict=True)
    )


def packed_class(module: nn.Module) -> type[nn.Module] | None:
    """Return the plain class of a linear or convolution layer that torch.ao has packed."""
    if not _packs(module):
        return None
    plain = getattr(nn, type(module).__name__, None)
    return plain if isinstance(plain, type) and issubclass(plain, nn.Linear | _ConvNd) else None


def packed_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the quantized weights inside torch.ao's packed modules, unpacked, by name."""
    tensors: dict[str, Tensor] = {}
    for name, module in walk(model):
        if _packs(module):
            unpacking: Any = module
            tensors[dotted(name, PACKED)] = unpacking._weight_bias()[0]
        elif _is_quantized_module(module) and hasattr(module, "get_weight"):  # recurrent
            weights = module.get_weight()  # type: ignore[operator]
            tensors |= {dotted(name, key): weight for key, weight in weights.items()}
    return tensors


def _packs(module: nn.Module) -> bool:
    """Tell whether a module of torch.ao holds one packed weight."""
    if not _is_quantized_module(module):  # a user's attribute of that name may compute
        return False
    several = hasattr(module, "get_weight") or type(module).__name__.endswith("PackedParams")
    return hasattr(module, "_weight_bias") and not several


def _is_quantized_module(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.ao.nn.quantized")


def why_unreadable(tensor: Tensor) -> str | None:
    """Say why the numbers in a tensor cannot be read as they are; None if they can."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if not tensor.is_floating_point():
        return f"{dtype} values, not real floating point"
    if is_quantized(tensor):
        return f"quantized as {type(tensor).__name__}"
    if is_float8(tensor):
        return f"{dtype} values"
    if tensor.layout != torch.strided:
        return f"stored as {str(tensor.layout).removeprefix('torch.')}, not dense"
    return None
