"""Record what one call of an attention module computes: logits, products, mixed values.

Statistics of normalisations are recorded once and replayed in later calls. A normalisation is then
a fixed scale for each unit, and what depends on a weight does so by way of products alone.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
SOFTMAX = {aten._softmax, aten._safe_softmax, aten._log_softmax, aten._masked_softmax}
# Fused attention, where a module insists on it in spite of `in_plain_steps`.
FUSED = {
    getattr(aten, f"_scaled_dot_product_{kernel}")
    for kernel in (
        "flash_attention",
        "flash_attention_for_cpu",
        "efficient_attention",
        "cudnn_attention",
        "fused_attention_overrideable",
    )
}
PRODUCTS = {aten.mm, aten.bmm, aten.baddbmm}
STATISTICS = {aten.rsqrt, aten.linalg_vector_norm, aten.norm, aten.var, aten.std, aten.var_mean}
# Positions of the two factors among the arguments.
FACTORS = {aten.mm: (0, 1), aten.bmm: (0, 1), aten.addmm: (1, 2), aten.baddbmm: (1, 2)}
CONVOLUTIONS = {aten.convolution, aten.conv1d, aten.conv2d}

ENTRIES = 2**15  # how many entries of a large tensor are compared
ROWS = 2**9


@dataclass
class Recording:
    """Tensors of one call.

    logits: entries of the inputs of every softmax.
    products: entries of the results of every matrix product without a bias.
    operands: what each watched weight is multiplied by: some rows, with the contracted axis last.
    scores: if asked for, the whole inputs of every softmax, with the axis it sums over last.
    """

    logits: list[Tensor] = field(default_factory=list)
    products: list[Tensor] = field(default_factory=list)
    operands: dict[str, list[Tensor]] = field(default_factory=dict)
    scores: list[Tensor] = field(default_factory=list)


class Recorder(TorchDispatchMode):
    """Records one call; with `statistics` of an earlier call it replays these."""

    def __init__(
        self,
        watched: dict[str, Tensor],
        statistics: Sequence[Any] | None = None,
        *,
        keeps_scores: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recording = Recording(operands={name: [] for name in watched})
        self.statistics: list[Any] = []
        self._watched = {t.untyped_storage().data_ptr(): name for name, t in watched.items()}
        self._replayed: Iterator[Any] | None = None if statistics is None else iter(statistics)
        self._keeps_scores = keeps_scores

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        packet = func.overloadpacket
        self._note_operand(packet, args)
        if packet in SOFTMAX:
            self._note_logits(args[0], _axis(packet, args))
        elif packet in FUSED:
            query, key = args[:2]
            key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
            self._note_logits(query @ key.mT, -1)
        result = self._statistic(packet, func, args, kwargs or {})
        if packet in PRODUCTS:
            self.recording.products.append(some_entries(result))
        return result

    def _note_logits(self, logits: Tensor, axis: int) -> None:
        self.recording.logits.append(some_entries(logits))
        if self._keeps_scores:
            self.recording.scores.append(logits.detach().movedim(axis, -1).clone())

    def _note_operand(self, packet: Any, args: tuple[Any, ...]) -> None:
        """Note what a watched weight is multiplied by."""
        if packet in CONVOLUTIONS:
            (first, second), axes = args[:2], (1, 1)
        elif packet in FACTORS:
            first, second = (args[position] for position in FACTORS[packet])
            axes = (-1, -2)
        else:
            return
        for weight, other, axis in ((second, first, axes[0]), (first, second, axes[1])):
            name = self._watched.get(weight.untyped_storage().data_ptr())
            if name is not None:
                rows = other.detach().movedim(axis, -1).flatten(0, -2)
                self.recording.operands[name].append(rows[_spread(len(rows), ROWS)].clone())
                return

    def _statistic(self, packet: Any, func: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
        """Return the result of an operation, with statistics as in the first call."""
        normalise = NORMALISATIONS.get(packet)
        is_mean = packet is aten.mean and (kwargs.get("keepdim") or args[2:3] == (True,))
        if normalise is None and packet not in STATISTICS and not is_mean:
            return func(*args, **kwargs)
        if self._replayed is not None:
            recorded = next(self._replayed)
        else:
            recorded = func(*args, **kwargs)
            recorded = recorded[1:] if normalise is not None else recorded
            self.statistics.append(recorded)
        return recorded if normalise is None else normalise(recorded, *args, **kwargs)


def _axis(packet: Any, args: tuple[Any, ...]) -> int:
    """Return the axis over which a softmax sums to one."""
    if packet is aten._masked_softmax:
        return -1 if len(args) < 3 or args[2] is None else args[2]
    axis: int = args[1]
    return axis


def some_entries(tensor: Tensor) -> Tensor:
    """Return all entries of a small tensor in one row; of a large one some, always the same.

    Those where the last two axes have the same position come first: there, a rotary embedding
    turns queries and keys alike.
    """
    flat = tensor.detach().flatten()
    if len(flat) <= ENTRIES:
        return flat.clone()
    diagonal = tensor.detach().diagonal(dim1=-2, dim2=-1).flatten()
    return torch.cat([x[_spread(len(x), ENTRIES)] for x in (diagonal, flat)])


def _spread(length: int, count: int) -> Tensor:
    """Return at most `count` positions below `length`, in a random order that never changes."""
    if length <= count:
        return torch.arange(length)
    return torch.randperm(length, generator=torch.Generator().manual_seed(0))[:count]


def _layer_norm(
    statistics: tuple[Tensor, Tensor],
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, ...]:
    mean, rstd = statistics
    return _affine((x - mean) * rstd, weight, bias), mean, rstd


def _group_norm(
    statistics: tuple[Tensor, Tensor],
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch: int,
    channels: int,
    places: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, ...]:
    mean, rstd = statistics
    grouped = x.reshape(batch, groups, -1)
    normalised = ((grouped - mean[..., None]) * rstd[..., None]).reshape(x.shape)
    shape = (channels, *(1,) * (x.ndim - 2))
    gain = None if weight is None else weight.reshape(shape)
    shift = None if bias is None else bias.reshape(shape)
    return _affine(normalised, gain, shift), mean, rstd


def _rms_norm(
    statistics: tuple[Tensor],
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None,
    eps: float | None,
) -> tuple[Tensor, ...]:
    (rstd,) = statistics
    return _affine(x * rstd, weight, None), rstd


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


NORMALISATIONS: dict[Any, Callable[..., Any]] = {
    aten.native_layer_norm: _layer_norm,
    aten.native_group_norm: _group_norm,
    aten._fused_rms_norm: _rms_norm,
}


@contextmanager
def in_plain_steps() -> Iterator[None]:
    """Compute attention as products and a softmax, not in one fused kernel."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
