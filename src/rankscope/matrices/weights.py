"""Tensors by the names that readings use: stored ones, and effective ones computed on access."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Num
from torch import Tensor, nn

from rankscope.matrices.adapter_maps import adapted
from rankscope.matrices.adapters import BASE
from rankscope.matrices.effective import FORMULAS, Effective, Step
from rankscope.matrices.parametrization import evaluated
from rankscope.matrices.quantization import is_quantized
from rankscope.matrices.wrappers import full_tensor


@dataclass(frozen=True, eq=False)
class Weights(Mapping[str, Tensor]):
    """Tensors by the names that readings use; an effective one is computed at each access.

    modules: those of the model by name, for operations without a formula.
    names: what iteration yields; the default is every stored and effective tensor.
    """

    stored: Mapping[str, Tensor]
    effective: Mapping[str, Effective] = field(default_factory=dict)
    modules: Mapping[str, nn.Module] = field(default_factory=dict)
    names: tuple[str, ...] | None = None

    def __getitem__(self, name: str) -> Tensor:
        weight = self.effective.get(name)
        return self.stored[name] if weight is None else self.compute(weight)

    def __contains__(self, name: object) -> bool:
        if self.names is not None:
            return name in self.names
        return name in self.effective or name in self.stored

    def __iter__(self) -> Iterator[str]:
        names = (*self.stored, *self.effective) if self.names is None else self.names
        return iter(dict.fromkeys(names))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @torch.no_grad()
    def compute(self, weight: Effective) -> Num[Tensor, "..."]:
        """Return an effective weight in float32 or float64; sharded parts are gathered."""
        W = plain_tensor(self.stored[weight.base])
        # A tensor on the meta device has a shape to compute, and no kind of autocast.
        with torch.autocast("cpu" if W.is_meta else W.device.type, enabled=False):
            for step in weight.steps:
                parts = {name: plain_tensor(self.stored[name]) for name in step.parts}
                W = self._applied(step, W, parts)
        return W.to(self.dtype(weight))

    def _applied(self, step: Step, W: Tensor, parts: Mapping[str, Tensor]) -> Tensor:
        if not step.module:
            tensors = [part.to(W.device) for part in parts.values()]
            return FORMULAS[step.formula](W, tensors, step.numbers)
        name, _, last = f".{step.module}".rpartition(".")
        if last == BASE:
            name = name.removeprefix(".")
            return adapted(self.modules[name], name, W, parts)
        return evaluated(self.modules[step.module], step.module, W, parts)

    def checked(self) -> "Weights":
        """Return the weights themselves if every module that computes one is at hand."""
        for weight in self.effective.values():
            for step in weight.steps:
                if step.module and step.module not in self.modules:
                    raise ValueError(
                        f"tensor {weight.parameter!r} is computed by the module {step.module!r}, "
                        "which a manifest or a state dict does not hold; pass the model itself"
                    )
        return self

    def parts(self, name: str) -> tuple[str, ...]:
        """Return the names of the stored tensors behind a tensor."""
        return self.effective[name].parts if name in self.effective else (name,)

    def behind(self, name: str) -> list[Tensor]:
        """Return the stored tensors behind a tensor."""
        return [self.stored[part] for part in self.parts(name)]

    def train(self, name: str) -> bool:
        """Tell whether any stored tensor behind a tensor has gradients."""
        return any(tensor.requires_grad for tensor in self.behind(name))

    def dtype(self, weight: Effective) -> torch.dtype:
        """Dtype of an effective weight: float64 if a part is, else float32."""
        dtypes = {self.stored[part].dtype for part in weight.parts}
        return torch.float64 if torch.float64 in dtypes else torch.float32


def plain_tensor(tensor: Tensor) -> Tensor:
    """Return the detached tensor, whole, dequantized, in float32 or float64 if it is real."""
    whole = full_tensor(tensor)
    if is_quantized(whole):
        whole = whole.dequantize()
    half = whole.is_floating_point() and whole.dtype != torch.float64
    return whole.float() if half else whole
