"""Recognise attention by the names and shapes of its projections, or say why it is not read.

Names alone do not tell a layout: where attributes and shapes leave a doubt, nothing is given.
"""

import re
from collections import Counter
from collections.abc import Callable
from functools import singledispatch

from torch import nn

from rankscope.matrices.attention import Attention, multihead_attention
from rankscope.matrices.fused import recognised_fused
from rankscope.matrices.latent import recognised_latent
from rankscope.matrices.projection_names import FUSED, HEADS, OUTPUT, SEPARATE, attribute, plain
from rankscope.matrices.separate import recognised_separate
from rankscope.matrices.stacks import module_per_head, recognised_stacks
from rankscope.matrices.wrappers import children

RULES: tuple[Callable[[nn.Module, str], Attention | None], ...] = (
    recognised_latent,
    recognised_fused,
    recognised_separate,
    recognised_stacks,
)
# Nothing but the class says that these have the projections of attention and no K^T Q.
NO_SCORES = (
    (r"xca|crosscovariance|channelatt", "its scores compare channels, not tokens"),
    (r"lambda", "a lambda layer has no scores"),
    (
        r"linear(self|cross)?att|litemla|lightning|efficientadditive|factoratt|performer",
        "linear attention has no scores",
    ),
    (r"delta(net|att)|mlstm|xlstm|rwkv|retention|retnet", "a recurrence has no scores"),
)
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d)
CONVOLUTION = re.compile(r"(pool_|conv_)[qkv]|[qkv]_(short_?|s)?conv(1d)?|[qkv]_pool")
PROJECTIONS = {plain(name) for names in (*SEPARATE, FUSED, OUTPUT) for name in names}
DECLARE = "declare it with attention_rule.register and check it with rs.verify"


@singledispatch
def attention_rule(module: nn.Module, name: str) -> Attention | tuple[Attention, ...] | None:
    """Return the module as attention; None if it is none or its heads are unknown.

    Register a rule for a class whose projections have other names than those listed here. A rule
    returns several where each head is a module of its own.
    """
    result = recognised(module, name)
    return None if isinstance(result, str) else result


attention_rule.register(nn.MultiheadAttention)(multihead_attention)


def attentions_in(module: nn.Module, name: str) -> tuple[Attention, ...]:
    """Return what `attention_rule` finds in the module, none, one or several."""
    result = attention_rule(module, name)
    if result is None:
        return ()
    return (result,) if isinstance(result, Attention) else result


def why_unknown(module: nn.Module, name: str) -> str | None:
    """Say what is missing in a module that looks like attention but has no registered rule."""
    if attention_rule.dispatch(type(module)) is not attention_rule.dispatch(nn.Module):
        return None
    result = recognised(module, name)
    return f"no per-head products: {result}; {DECLARE}" if isinstance(result, str) else None


def recognised(module: nn.Module, name: str) -> Attention | tuple[Attention, ...] | str | None:
    """Return the attention, a sentence on why something like it cannot be read, or None."""
    try:
        attention = next(filter(None, (rule(module, name) for rule in RULES)), None)
        result: Attention | tuple[Attention, ...] | str = attention or module_per_head(module, name)
    except ValueError as error:
        result = str(error)
    if not result:
        return _looks_like_attention(module, name)
    if reason := _no_scores(module):
        return f"attention {name!r} ({type(module).__name__}): {reason}"
    return result


def _no_scores(module: nn.Module) -> str | None:
    """Say why K^T Q of single heads does not give the scores of this module; None if it does."""
    names = [base.__name__ for base in type(module).__mro__[:-2]]
    names += [type(getattr(module, "processor", None)).__name__]  # diffusers computes there
    for pattern, reason in NO_SCORES:
        if any(re.search(pattern, name.lower().replace("_", "")) for name in names):
            return reason
    heads = attribute(module, HEADS) or 1
    temperature = module._parameters.get("temperature")
    if temperature is not None and tuple(temperature.shape) == (heads, 1, 1):
        return "a temperature per head is the mark of scores between channels"
    if mixing := _mixing(module, heads):
        return f"{mixing!r} mixes the scores of different heads"
    convolved = [key for key, layer in children(module).items() if _convolves(key, layer)]
    return f"{convolved[0]!r} stands between projections and scores" if convolved else None


def _convolves(key: str, layer: nn.Module) -> bool:
    """Tell whether a layer convolves queries, keys or values (MViT, short convolutions)."""
    return CONVOLUTION.fullmatch(key) is not None and next(layer.parameters(), None) is not None


def _mixing(module: nn.Module, heads: int) -> str | None:
    """Return the name of a weight of shape heads x heads (talking heads); None if there is none.

    Tables of position biases can have that shape by chance.
    """
    shapes = {key: tuple(p.shape) for key, p in module._parameters.items() if p is not None}
    for key, layer in module.named_modules():
        if isinstance(layer, LAYERS) and plain(key) not in PROJECTIONS:
            shapes[key] = _weight_shape(layer)
    for key, shape in shapes.items():
        if "bias" in key or "pos" in key or heads == 1:
            continue
        if shape[:2] == (heads, heads) and set(shape[2:]) <= {1}:
            return key
    return None


def _weight_shape(layer: nn.Linear | nn.Conv1d | nn.Conv2d) -> tuple[int, ...]:
    """Return the shape of a weight without computing it: a parametrized one would change."""
    if isinstance(layer, nn.Linear):
        return layer.out_features, layer.in_features
    return layer.out_channels, layer.in_channels // layer.groups, *layer.kernel_size


def _looks_like_attention(module: nn.Module, name: str) -> str | None:
    """Say that a module looks like attention by its class or its layers; None if it does not."""
    kind = type(module).__name__
    layers = {key: child for key, child in children(module).items() if isinstance(child, LAYERS)}
    shapes = Counter(map(_weight_shape, layers.values()))
    has_the_name = "attention" in kind.lower() or "attn" in kind.lower()
    equal_layers = max(shapes.values(), default=0)
    has_the_layers = equal_layers >= 3 and attribute(module, HEADS) is not None
    if not layers or not (has_the_name or has_the_layers):
        return None
    return f"attention {name!r} ({kind}) has projections {list(layers)}, names no rule knows"
