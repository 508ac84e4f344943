"""Logits of attention as kernels compute them, for some queries of a forward pass."""

import math
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Num
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

SEQUENCES = 4  # of a batch, at most
SOFTMAX = {"_softmax", "_safe_softmax"}
FUSED = "_scaled_dot_product_"
UNSEEN = -5e3  # masks add -1e4, the lowest number of the format, or minus infinity


@dataclass
class HeadSums:
    """Sums over sampled queries for each head: entropies, those of an even spread, their number.

    Queries that see no key, such as padding, do not count.

    largest: largest logit. scale: what products of queries and keys are multiplied by, if known.
    """

    entropy: Float[Tensor, " heads"]
    even: Float[Tensor, " heads"]
    largest: Float[Tensor, " heads"]
    count: Float[Tensor, " heads"]
    scale: float | None = None

    @classmethod
    def zero(cls, heads: int, device: torch.device) -> "HeadSums":
        dtype = torch.float32 if device.type == "mps" else torch.float64
        zeros = torch.zeros(heads, dtype=dtype, device=device)
        return cls(zeros, zeros.clone(), torch.full_like(zeros, -math.inf), zeros.clone())

    def add(self, logits: Num[Tensor, "batch heads queries keys"]) -> None:
        """Add logits, which are below UNSEEN for keys that a query does not see."""
        hidden = logits <= UNSEEN
        logits = logits.to(self.entropy.dtype).masked_fill(hidden, -math.inf)
        visible = (~hidden).sum(-1)
        entropy = torch.special.entr(torch.softmax(logits, -1)).sum(-1)  # (batch, heads, queries)
        seen = visible > 0
        self.entropy += torch.where(seen, entropy, 0.0).sum((0, 2))
        self.even += visible.clamp(min=1).to(entropy.dtype).log().sum((0, 2))
        self.largest = torch.maximum(self.largest, logits.amax((0, 2, 3)))
        self.count += seen.sum((0, 2))


class LogitReader(TorchDispatchMode):
    """Reads the logits of attention kernels and softmaxes that run inside; changes nothing.

    charged: context that charges the time of reading.
    """

    def __init__(
        self,
        heads: int,
        queries: int,
        charged: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._heads = heads
        self._queries = queries
        self._charged = charged
        self.sums: HeadSums | None = None
        self.failure: Exception | None = None

    def begin(self) -> None:
        self.__enter__()  # type: ignore[no-untyped-call]

    def end(self) -> None:
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = func._schema.name.partition("::")[2]
        if self.failure is None and (name in SOFTMAX or _is_attention(name)):
            names = (argument.name for argument in func._schema.arguments)
            bound = dict(zip(names, args, strict=False)) | kwargs
            try:
                with self._charged(), torch.no_grad():
                    self._add(self._softmax(bound) if name in SOFTMAX else self._fused(bound))
            except Exception as failure:  # the forward pass goes on
                self.failure = failure
        return result

    def _add(self, logits: Tensor | None) -> None:
        if logits is not None:
            self.sums = self.sums or HeadSums.zero(self._heads, logits.device)
            self.sums.add(logits)

    def _sampled(self, length: int, device: torch.device) -> Tensor:
        count = min(self._queries, length)
        return torch.linspace(0, length - 1, count, device=device).round().long()

    def _softmax(self, bound: dict[str, Any]) -> Tensor | None:
        """Return the logits that go into a softmax over keys."""
        x: Tensor = bound["self"]
        dim = bound["dim"]
        if x.ndim == 3 and x.shape[0] % self._heads == 0:
            x = x.unflatten(0, (-1, self._heads))
        if (
            x.ndim != 4
            or x.shape[1] != self._heads
            or dim % bound["self"].ndim != (bound["self"].ndim - 1)
        ):
            return None
        return x[:SEQUENCES].index_select(2, self._sampled(x.shape[2], x.device))

    def _fused(self, bound: dict[str, Any]) -> Tensor | None:
        """Return the logits that a fused kernel computes inside."""
        q: Tensor = bound["query"][:SEQUENCES]
        k: Tensor = bound["key"][:SEQUENCES]
        if q.ndim != 4 or q.shape[1] != self._heads or self._heads % k.shape[1]:
            return None
        places = self._sampled(q.shape[2], q.device)
        scale = bound.get("scale") or 1 / math.sqrt(q.shape[-1])
        k = k.repeat_interleave(self._heads // k.shape[1], dim=1)
        logits = (q.index_select(2, places).float() @ k.float().mT) * scale
        mask = bound.get("attn_mask", bound.get("attn_bias"))
        lowest = torch.finfo(logits.dtype).min
        if bound.get("is_causal"):
            later = torch.arange(k.shape[2], device=q.device) > places[:, None]
            logits = logits.masked_fill(later, lowest)
        if mask is not None:
            shape = (*bound["query"].shape[:3], k.shape[2])
            mask = mask.expand(shape)[:SEQUENCES].index_select(2, places)
            if mask.dtype == torch.bool:
                logits = logits.masked_fill(~mask, lowest)
            else:
                logits = (logits + mask).clamp(min=lowest)
        self.sums = self.sums or HeadSums.zero(self._heads, q.device)
        self.sums.scale = scale
        return logits


def _is_attention(name: str) -> bool:
    return name.startswith(FUSED) and "backward" not in name


def end_left_open(readers: Collection[LogitReader]) -> None:
    """End the readers that are still on, as far as they are the innermost modes of torch."""
    mode = _get_current_dispatch_mode()
    while isinstance(mode, LogitReader) and mode in readers:
        mode.end()
        mode = _get_current_dispatch_mode()
