"""Pairs inside one module that fused kernels hide: recurrent layers and attention heads.

To give a module type of your own inner pairs, register a function of module and name with
`@pair_rule.register(MyLayer)`. yunis2024, App. C.
"""

from functools import singledispatch

from torch import nn

from rankscope.matrices import Attention, Manifest, manifest
from rankscope.matrices.wrappers import walk
from rankscope.pairs.pair import Cut, Pair
from rankscope.pairs.recurrent import recurrent, recurrent_pairs
from rankscope.pairs.ties import named_as_read


def inside_pairs(model: nn.Module, *, known: Manifest | None = None) -> tuple[Pair, ...]:
    """Return the pairs inside recurrent and attention modules; `discover_pairs` adds the others.

    A tied matrix has the name under which `views` reads it.

    known: the model's manifest, if you have it.
    """
    known = manifest(model) if known is None else known
    modules: dict[int, tuple[nn.Module, str]] = {}
    for name, module in walk(model):
        modules.setdefault(id(module), (module, name))
    ruled = (pair for module, name in modules.values() for pair in pair_rule(module, name))
    heads = (pair for attention in known.attentions for pair in attention_pairs(attention))
    return named_as_read((*ruled, *heads), model, known)


@singledispatch
def pair_rule(module: nn.Module, name: str) -> tuple[Pair, ...]:
    """Return the pairs between matrices that the module `name` owns; none unless registered."""
    return ()


@pair_rule.register(nn.RNNBase)
@pair_rule.register(nn.RNNCellBase)
def _recurrent(module: nn.Module, name: str) -> tuple[Pair, ...]:
    unit = recurrent(module, name)
    return () if unit is None else tuple(recurrent_pairs(unit))


def attention_pairs(attention: Attention) -> tuple[Pair, ...]:
    """Return Q-K of each head on their output sides, and V-O.

    V-O is one pair of whole matrices, or one pair per head where heads share values.
    """
    queries = (
        Pair(
            attention.head("q", head).name,
            attention.head("k", head).name,
            kind="qk",
            later_side="out",
        )
        for head in range(attention.heads)
    )
    output, heads = attention.output, attention.output_heads or attention.heads
    if output is None:
        return tuple(queries)
    if attention.value.m == output.n and not attention.key_heads:
        return (*queries, Pair(attention.value.name, output.name, kind="vo"))
    width = dict(output.in_axes)["unit"]
    values = (
        Pair(
            attention.head("v", head).name,
            output.name,
            kind="vo",
            later_cut=Cut((heads, width), (head, None)),
        )
        for head in range(heads)
    )
    return (*queries, *values)
