"""Activations: rank, similarity and dormant units of what chosen modules give out."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Num
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from rankscope import metrics
from rankscope.matrices import unwrap, walk
from rankscope.measures.activation_sums import ActivationSums
from rankscope.measures.eager import EAGER
from rankscope.measures.patterns import names_matching
from rankscope.measures.protocol import Gauge, Moment, Subject, in_backward
from rankscope.snapshot.portions import padded
from rankscope.store import Variable

CHANNELS_FIRST = (
    nn.modules.conv._ConvNd,
    nn.modules.batchnorm._BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
    nn.GroupNorm,
)
NUMBERS = ("effective_rank", "effective_rank_centered", "token_similarity", "dormant", "tokens")


@dataclass(frozen=True)
class Activations:
    """Follow the outputs of modules whose names match `modules`, such as "blocks.*".

    An output is read as tokens by units: its last axis holds the units, or axis 1 for images and
    convolutions. Sums over all tokens of the step are accumulated in float64, and no output is
    stored. Only forward passes in training mode count.

    modules: names of modules, or patterns in which * stands for anything but a dot.
    leading: number of leading singular values to store.
    dormant: a unit is dormant if its mean size is at most this share of the layer's.
    axis: the axis of the units, if it is not as above.
    reduce: add up the tokens of all ranks of a distributed training; every rank then makes its
        tracker. If False, they are those of the first rank.

    Stored for each module: `activation_singular_values`, and

    activation_effective_rank: RankMe (garrido2023), exp of the entropy of the singular values.
    activation_effective_rank_centered: the same of the tokens less their mean.
    activation_token_similarity: mean cosine between two different tokens.
    activation_dormant: share of dormant units. activation_tokens: number of tokens.
    """

    modules: str | Sequence[str]
    leading: int = 64
    dormant: float = 0.025
    axis: int | None = None
    reduce: bool = True
    name = "activations"

    @property
    def reduces(self) -> bool:
        return self.reduce

    def gauge(self, subject: Subject) -> Gauge:
        if self.leading < 1 or self.dormant < 0:
            raise ValueError("Activations: leading is at least 1, and dormant at least 0")
        return _Activations(subject, self, chosen_modules(subject.model, self.modules))


def chosen_modules(model: nn.Module, patterns: str | Sequence[str]) -> dict[str, nn.Module]:
    """Return the modules whose names match, each once; * stands for anything but a dot."""
    modules = dict(walk(model))
    names = names_matching(patterns, modules, measure="Activations", kind="module")
    first_names: dict[int, str] = {}
    for name in names:
        first_names.setdefault(id(modules[name]), name)
    return {name: modules[name] for name in first_names.values()}


class _Activations(Gauge):
    name = "activations"

    def __init__(
        self, subject: Subject, options: Activations, modules: dict[str, nn.Module]
    ) -> None:
        super().__init__()
        self._root, self._options, self._modules = unwrap(subject.model), options, modules
        self._warn = subject.warn
        self._sums: dict[str, ActivationSums] = {}
        self._handles: list[RemovableHandle] = []
        self._failed: set[str] = set()  # modules that failed in this window
        self._reason = ""
        self.reduces = options.reduce
        self.facts = {"dormant": options.dormant, "reduced": options.reduce}
        names = np.array(list(modules), dtype=object)
        self.coords = {
            "activation": (("activation",), names),
            "activation_k": (("activation_k",), np.arange(1, options.leading + 1)),
        }
        real = np.dtype("float32")
        self.variables = {
            f"activation_{name}": Variable(("step", "activation"), real) for name in NUMBERS
        }
        dims = ("step", "activation", "activation_k")
        self.variables["activation_singular_values"] = Variable(dims, real)
        self.operations = 1e9 * len(modules)

    @property
    def touched(self) -> bool:
        return bool(self._sums)

    def arm(self) -> None:
        self.disarm()
        EAGER.begin()
        for name, module in self._modules.items():
            self._handles.append(module.register_forward_hook(self._hook(name)))

    def disarm(self) -> None:
        if self._handles:
            EAGER.end()
        for handle in self._handles:
            handle.remove()
        self._handles, self._sums, self._failed = [], {}, set()

    def collect(self) -> dict[str, ActivationSums] | None:
        sums, armed = self._sums, bool(self._handles)
        self.disarm()
        if armed and len(sums) < len(self._modules):
            missing = [name for name in self._modules if name not in sums]
            self._reason = (
                f"{len(missing)} of {len(self._modules)} modules, such as {missing[0]!r}, gave no "
                "tensor in training mode in the window of a snapshot, so their activations are NaN"
            )
        short = [name for name, layer in sums.items() if layer.rows == 1]
        if short:
            self._reason = self._reason or (
                f"{len(short)} modules, such as {short[0]!r}, gave one token in the window of a "
                "snapshot, which has no similarity and no centred rank; use a larger batch"
            )
        return sums or None

    def missing(self) -> str:
        reason, self._reason = self._reason, ""
        return reason

    def _hook(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            # Checkpointing calls modules again in backward.
            if in_backward() or not self._root.training or torch.compiler.is_compiling():
                return
            if name in self._failed:
                return
            try:
                with self.charged(), torch.no_grad():
                    self._add(name, module, output)
            except Exception as failure:  # training goes on
                self._failed.add(name)
                self._sums.pop(name, None)  # sums of some batches would pass for those of all
                self._warn(
                    f"activations of {name}",
                    f"activations of {name!r} cannot be measured and are NaN "
                    f"({type(failure).__name__}: {failure})",
                )

        return hook

    def _add(self, name: str, module: nn.Module, output: Any) -> None:
        tensor = first_tensor(output)
        if tensor is None or tensor.ndim < 2 or not tensor.is_floating_point():
            return
        tokens = as_tokens(tensor.detach(), module, self._options.axis)
        sums = self._sums.get(name)
        if sums is None or sums.width != tokens.shape[1]:
            sums = self._sums[name] = ActivationSums.zero(tokens.shape[1], tokens.device)
        sums.add(tokens)

    def shared(self, collected: dict[str, ActivationSums] | None) -> dict[str, ActivationSums]:
        own = collected or {}
        device = next((s.total.device for s in own.values()), _device_of(self._root))
        widths = torch.tensor([own[n].width if n in own else 0 for n in self._modules])
        widths = widths.to(device)
        dist.all_reduce(widths, op=dist.ReduceOp.MAX)
        shared = {}
        for name, width in zip(self._modules, widths.tolist(), strict=True):
            if width:
                sums = own.get(name) or ActivationSums.zero(width, device)
                if sums.width != width:
                    sums = ActivationSums.zero(width, device)
                packed = sums.packed
                dist.all_reduce(packed)
                shared[name] = sums.unpacked(packed)
        return shared

    def compute(self, moment: Moment) -> dict[str, np.ndarray]:
        if not moment.collected:
            return {}
        numbers = np.full((len(NUMBERS), len(self._modules)), math.nan)
        spectra = [np.empty(0)] * len(self._modules)
        for row, name in enumerate(self._modules):
            sums = moment.collected.get(name)
            if sums is None:
                continue
            S, centered = (sums.singular_values(centered=centered) for centered in (False, True))
            spectra[row] = S[: self._options.leading]
            numbers[:, row] = (
                float(metrics.effective_rank(S)),
                float(metrics.effective_rank(centered)),
                sums.similarity(),
                sums.dormant_share(self._options.dormant),
                float(sums.count),
            )
        values = {f"activation_{name}": line for name, line in zip(NUMBERS, numbers, strict=True)}
        return values | {"activation_singular_values": padded(spectra, self._options.leading)}


def first_tensor(output: Any) -> Tensor | None:
    """Return the output if it is a tensor, else the first tensor among what it holds."""
    if isinstance(output, Tensor):
        return output
    items = output.values() if isinstance(output, dict) else output
    if isinstance(items, str) or not hasattr(items, "__iter__"):
        return None
    return next((item for item in items if isinstance(item, Tensor)), None)


def as_tokens(
    output: Num[Tensor, "..."], module: nn.Module, axis: int | None
) -> Num[Tensor, "n d"]:
    """Return the output with units as columns."""
    if axis is None:
        images = output.ndim >= 4 or isinstance(module, CHANNELS_FIRST)
        axis = 1 if images else -1
    return output.movedim(axis, -1).flatten(0, -2)


def _device_of(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))
