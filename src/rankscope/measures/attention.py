"""Attention: how large logits can get, how large they are, and how widely heads look."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from rankscope.matrices import Attention as AttentionReading
from rankscope.matrices import Reading, named_tensors, unwrap, walk
from rankscope.measures.attention_logits import HeadSums, LogitReader, end_left_open
from rankscope.measures.eager import EAGER
from rankscope.measures.patterns import names_matching
from rankscope.measures.protocol import Gauge, Moment, Subject, in_backward
from rankscope.store import Variable

KEY_INPUTS = ("key", "encoder_hidden_states", "key_value_states", "context", "memory")
NUMBERS = (
    "entropy",
    "entropy_even",
    "max_logit",
    "logit_bound",
    "logit_bound_rotary",
)


@dataclass(frozen=True)
class Attention:
    """Follow the logits and the entropy of each attention head on queries of the training batch.

    Entropies and logits are those of kernels as they ran, with masks and position encodings, for
    some evenly spread queries of at most four sequences.

    modules: names of attention modules, or patterns in which * stands for anything but a dot; by
        default all.
    queries: number of queries of each sequence.

    Stored for each head: `attention_entropy` in nats, `attention_entropy_even` (that of an even
    spread over the keys a query sees), `attention_max_logit`, and two bounds on any logit, from the
    product K^T Q, the biases and the largest inputs:

    attention_logit_bound: for attention without position encodings inside.
    attention_logit_bound_rotary: the looser one, from K and Q apart, for rotary encodings.
    """

    modules: str | Sequence[str] = ()
    queries: int = 16
    name = "attention"
    reduces = False

    def gauge(self, subject: Subject) -> Gauge:
        if self.queries < 1:
            raise ValueError(f"Attention: queries is at least 1, got {self.queries}")
        chosen = _chosen(subject.attentions, self.modules)
        if not chosen:
            raise ValueError(
                "Attention: the model has no attention module that is read head by head; print "
                "rankscope.views(model).coverage to see why, or leave Attention out"
            )
        return _Attention(subject, self.queries, chosen)


def _chosen(
    attentions: Iterable[AttentionReading], patterns: str | Sequence[str]
) -> dict[str, AttentionReading]:
    by_name = {attention.name: attention for attention in attentions}
    if not patterns:
        return by_name
    names = names_matching(patterns, by_name, measure="Attention", kind="attention module")
    return {name: by_name[name] for name in names}


@dataclass
class Seen:
    """Data of one attention module in a window: logits, largest input norms, biases."""

    sums: HeadSums | None = None
    query_norm: Tensor | None = None
    key_norm: Tensor | None = None
    biases: dict[str, Tensor] = field(default_factory=dict)


class _Attention(Gauge):
    name = "attention"

    def __init__(self, subject: Subject, queries: int, chosen: dict[str, AttentionReading]) -> None:
        super().__init__()
        self._model, self._root = subject.model, unwrap(subject.model)
        self._queries, self._chosen, self._warn = queries, chosen, subject.warn
        modules = dict(walk(subject.model))
        self._modules = {name: modules[name] for name in chosen if name in modules}
        self._products = {p.name: p for p in subject.plan.products if p.kind == "kq"}
        self._product_row = {p.name: row for row, p in enumerate(subject.plan.products)}
        self._handles: list[RemovableHandle] = []
        self._seen: dict[str, Seen] = {}
        self._readers: dict[str, list[LogitReader]] = {}
        self._reason = ""
        heads = [_head(name, h) for name, a in chosen.items() for h in range(a.heads)]
        self._row = {head: row for row, head in enumerate(heads)}
        self.facts = {"queries": queries}
        self.coords = {"head": (("head",), np.array(heads, dtype=object))}
        real = np.dtype("float32")
        self.variables = {f"attention_{name}": Variable(("step", "head"), real) for name in NUMBERS}
        self.operations = 1e6 * len(heads)

    @property
    def touched(self) -> bool:
        return bool(self._seen)

    def arm(self) -> None:
        self.disarm()
        EAGER.begin()
        for name, module in self._modules.items():
            enter = module.register_forward_pre_hook(self._enter(name), with_kwargs=True)
            leave = module.register_forward_hook(self._leave(name), always_call=True)
            self._handles += [enter, leave]

    def disarm(self) -> None:
        if self._handles:
            EAGER.end()
        for handle in self._handles:
            handle.remove()
        # A forward pass that Ctrl-C ended has left its reader on, the innermost last.
        end_left_open([reader for left in self._readers.values() for reader in left])
        self._handles, self._seen, self._readers = [], {}, {}

    def collect(self) -> dict[str, Seen] | None:
        seen, armed = self._seen, bool(self._handles)
        self.disarm()
        blind = [n for n in self._modules if n not in seen or seen[n].sums is None]
        if armed and blind:
            self._reason = (
                f"{len(blind)} of {len(self._modules)} attention modules, such as {blind[0]!r}, "
                "ran no attention kernel in training mode in the window of a snapshot, so their "
                "entropies are NaN"
            )
        return seen or None

    def missing(self) -> str:
        reason, self._reason = self._reason, ""
        return reason

    def _enter(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            if in_backward() or not self._root.training or torch.compiler.is_compiling():
                return
            reader = LogitReader(self._chosen[name].heads, self._queries, self.charged)
            seen = self._seen.setdefault(name, Seen())
            reader.sums = seen.sums
            try:
                with self.charged(), torch.no_grad():
                    self._look(name, seen, args, kwargs)
            except Exception as failure:  # training goes on
                self._tell(name, failure)
            self._readers.setdefault(name, []).append(reader)
            reader.begin()

        return enter

    def _leave(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def leave(module: nn.Module, args: Any, output: Any) -> None:
            if self._readers.get(name):
                reader = self._readers[name].pop()
                reader.end()
                self._seen[name].sums = reader.sums
                if reader.failure is not None:
                    self._tell(name, reader.failure)

        return leave

    def _tell(self, name: str, failure: Exception) -> None:
        self._warn(
            f"attention of {name}",
            f"attention of {name!r} cannot be measured and is NaN "
            f"({type(failure).__name__}: {failure})",
        )

    def _look(self, name: str, seen: Seen, args: Any, kwargs: Any) -> None:
        """Take the largest norms of the inputs, and the biases that act on them."""
        attention = self._chosen[name]
        width = (attention.query_latent or attention.query).n
        tensors = [t for t in (*args, *kwargs.values()) if _is_input(t, width)]
        named = [kwargs[key] for key in KEY_INPUTS if _is_input(kwargs.get(key), None)]
        if tensors:
            query = kwargs.get("query", tensors[0])
            key = named[0] if named else query
            if isinstance(self._modules[name], nn.MultiheadAttention) and len(args) > 1:
                key = args[1]
            seen.query_norm = _larger(seen.query_norm, query)
            seen.key_norm = _larger(seen.key_norm, key)
        if not seen.biases:
            stored = named_tensors(self._model)
            for reading in (attention.query, attention.key):
                bias = _bias_of(reading, stored)
                if bias is not None:
                    seen.biases[reading.parameter] = bias.detach().clone()

    def compute(self, moment: Moment) -> dict[str, np.ndarray]:
        if not moment.collected:
            return {}
        table = np.full((len(NUMBERS), len(self._row)), math.nan)
        for name, seen in moment.collected.items():
            attention = self._chosen[name]
            rows = [self._row[_head(name, h)] for h in range(attention.heads)]
            if seen.sums is not None and bool(seen.sums.count.any()):
                table[0, rows] = (seen.sums.entropy / seen.sums.count).cpu().numpy()
                table[1, rows] = (seen.sums.even / seen.sums.count).cpu().numpy()
                table[2, rows] = seen.sums.largest.cpu().numpy()
            if seen.query_norm is not None and seen.key_norm is not None:
                scale = seen.sums.scale if seen.sums is not None else None
                scale = scale or 1 / math.sqrt(attention.head_dim)
                for head, row in enumerate(rows):
                    bounds = self._bounds(_head(name, head), seen, moment)
                    table[3:, row] = [scale * bound for bound in bounds]
        return {f"attention_{name}": line for name, line in zip(NUMBERS, table, strict=True)}

    def _bounds(self, head: str, seen: Seen, moment: Moment) -> tuple[float, float]:
        """Return the largest |q . k| that inputs of these norms allow: of K^T Q, and of K and Q."""
        product = self._products.get(f"{head}.kq")
        known = product is not None and all(r.parameter in moment.weights for r in product.readings)
        if product is None or not known:
            return math.nan, math.nan
        assert seen.query_norm is not None and seen.key_norm is not None
        x, y = float(seen.query_norm), float(seen.key_norm)
        factors = product.product(moment.weights)
        K, Q = factors.left.double(), factors.right.double()  # (in, unit)
        names = ("product_singular_values", "product_leading_values")
        spectra = next(moment.values[name] for name in names if name in moment.values)
        largest = float(spectra[self._product_row[product.name]][0])
        k, q = (_head_bias(r, seen.biases).to(K) for r in (product.left, product.right))
        norm = torch.linalg.vector_norm
        together = largest * x * y + float(norm(K @ q)) * y + float(norm(Q @ k)) * x
        largest_k, largest_q = (float(torch.linalg.matrix_norm(W, 2)) for W in (K, Q))
        apart = (largest_q * x + float(norm(q))) * (largest_k * y + float(norm(k)))
        return together + abs(float(q @ k)), apart


def _head(attention: str, head: int) -> str:
    return f"{attention}.h{head}" if attention else f"h{head}"


def _is_input(value: Any, width: int | None) -> bool:
    return (
        isinstance(value, Tensor)
        and value.is_floating_point()
        and value.ndim >= 2
        and width in (None, value.shape[-1])
    )


def _larger(norm: Tensor | None, tokens: Tensor) -> Tensor:
    dtype = torch.promote_types(tokens.dtype, torch.float32)
    largest = torch.linalg.vector_norm(tokens.detach(), dim=-1, dtype=dtype).amax()
    return largest if norm is None else torch.maximum(norm, largest)


def _bias_of(reading: Reading, stored: dict[str, Tensor]) -> Tensor | None:
    """Return the bias of the layer that a projection is read from, if it has one."""
    name = reading.parameter
    bias = stored.get(re.sub("weight$", "bias", name)) if name.endswith("weight") else None
    return bias if bias is not None and bias.ndim == 1 else None


def _head_bias(reading: Reading, biases: dict[str, Tensor]) -> Tensor:
    """Return the bias of one head's units; `reading` is that of its transposed projection.

    Any input of 0 has the bias as output. So the bias is read as a weight with equal columns.
    """
    bias = biases.get(reading.parameter)
    if bias is None:
        return torch.zeros(reading.n)
    if reading.span is None:
        inputs_first = reading.axes[0][0] in reading.outputs  # it is transposed
    else:
        inputs_first = reading.span[0] == 1
    whole = (
        bias[None].expand(reading.m, -1) if inputs_first else bias[:, None].expand(-1, reading.m)
    )
    return reading.view(whole.contiguous()).W[0]
