"""Gradients: stable rank and leading values of what the optimizer is given."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from rankscope.matrices import named_tensors
from rankscope.measures.protocol import Gauge, Moment, OptimizerStep, Subject, readable
from rankscope.measures.spectra import full_table, leading_table
from rankscope.store import Variable

MOST_NAMES = 5  # without a gradient that one warning lists
At = Literal["step", "backward"]
MEANING = {
    "step": "as the optimizer gets them: accumulated over batches and ranks, unscaled, clipped",
    "backward": "as backward leaves them: accumulated, neither unscaled nor clipped, of one rank",
}


@dataclass(frozen=True)
class Gradients:
    """Follow the gradient of each whole matrix at the weights of the snapshot.

    leading: number of leading singular values.
    full: store all singular values too, as `gradient_singular_values`.
    at: "step" reads gradients as the optimizer gets them, after accumulation, unscaling and
        clipping. "backward" reads them as backward leaves them, on the first rank, still multiplied
        by the scale of a GradScaler. The run says which.

    Stored: `gradient_leading_values`, `gradient_norm` (Frobenius) and `gradient_stable_rank`.
    """

    leading: int = 10
    full: bool = False
    at: At = "step"
    name = "gradients"
    reduces = False

    def gauge(self, subject: Subject) -> Gauge:
        if self.leading < 1:
            raise ValueError(f"Gradients: leading is at least 1, got {self.leading}")
        if self.at not in MEANING:
            raise ValueError(f'Gradients: at is "step" or "backward", got {self.at!r}')
        return _Gradients(subject, self)


class _Gradients(Gauge):
    name = "gradients"

    def __init__(self, subject: Subject, options: Gradients) -> None:
        super().__init__()
        self._plan, self._whole, self._model = subject.plan, subject.whole, subject.model
        self._options = options
        self.follows_optimizer = options.at == "step"
        self.facts = {"at": options.at, "meaning": MEANING[options.at]}
        self._handles: list[RemovableHandle] = []
        self._raw: dict[str, Tensor] = {}
        self._without: dict[str, str] = {}
        real, dim = subject.real, "gradient_k"
        self.coords = {dim: ((dim,), np.arange(1, options.leading + 1))}
        self.variables = {"gradient_leading_values": Variable(("step", "matrix", dim), real)}
        for name in ("norm", "stable_rank"):
            self.variables[f"gradient_{name}"] = Variable(("step", "matrix"), real)
        if options.full:
            self.variables["gradient_singular_values"] = Variable(("step", "matrix", "k"), real)
        self.operations = 40.0 * options.leading * sum(r.m * r.n for r in self._whole)

    @property
    def touched(self) -> bool:
        return bool(self._raw)

    def arm(self) -> None:
        self.disarm()
        if self._options.at == "backward":
            for name, parameter in self._trained().items():
                hook = parameter.register_post_accumulate_grad_hook(self._keeper(name))
                self._handles.append(hook)

    def disarm(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles, self._raw = [], {}

    def _keeper(self, name: str) -> Callable[[Tensor], None]:
        def keep(parameter: Tensor) -> None:
            if parameter.grad is not None and not torch.compiler.is_compiling():
                with self.charged():
                    self._raw[name] = _dense(parameter.grad).clone()

        return keep

    def _trained(self) -> dict[str, Tensor]:
        """Return the parameters behind whole matrices that have gradients."""
        tensors = named_tensors(self._model)
        names = dict.fromkeys(reading.parameter for reading in self._whole)
        return {
            name: tensors[name]
            for name in names
            if isinstance(tensors.get(name), nn.Parameter) and tensors[name].requires_grad
        }

    def before_step(self, step: OptimizerStep) -> None:
        if self._options.at == "backward":
            return
        gradients = {
            name: _dense(parameter.grad)
            for name, parameter in self._trained().items()
            if name in step.parameters and parameter.grad is not None
        }
        step.keep("gradients", gradients)
        # Fused optimizers unscale inside their step.
        scale = getattr(step.optimizer, "grad_scale", None)
        if isinstance(scale, Tensor):
            step.keep("scale", {"scale": scale.reshape(())})

    def after_step(self, step: OptimizerStep) -> None:
        self._note_those_without(step)

    def _note_those_without(self, step: OptimizerStep) -> None:
        tensors = named_tensors(self._model)
        for reading in self._whole:
            tensor = tensors.get(reading.parameter)
            if tensor is None:
                self._without[reading.name] = "computed from other tensors"
            elif not tensor.requires_grad:
                self._without[reading.name] = "frozen"
            elif reading.parameter in step.parameters and tensor.grad is None:
                self._without[reading.name] = "not part of the loss"

    def missing(self) -> str:
        without, self._without = self._without, {}
        if not without:
            return ""
        groups = []
        for reason in dict.fromkeys(without.values()):
            names = [name for name, why in without.items() if why == reason]
            more = " ..." if len(names) > MOST_NAMES else ""
            groups.append(f"{reason}: {', '.join(map(repr, names[:MOST_NAMES]))}{more}")
        return (
            f"{len(without)} of {len(self._whole)} matrices have no gradient and are NaN there "
            f"({'; '.join(groups)})"
        )

    def collect(self) -> dict[str, Tensor] | None:
        raw = self._raw
        self.disarm()
        return raw or None

    def compute(self, moment: Moment) -> dict[str, np.ndarray]:
        gradients = moment.collected or moment.kept.get("gradients")
        if not gradients:
            return {}
        rows = {reading.name: row for row, reading in enumerate(self._plan.readings)}
        readings = list(readable(self._whole, gradients))
        scale = moment.kept.get("scale", {}).get("scale")
        factor = 1.0 if scale is None else 1 / float(scale)
        rank = self._options.leading
        values, norms, ranks = leading_table(readings, gradients, rows, rank=rank, factor=factor)
        table = {
            "gradient_leading_values": values,
            "gradient_norm": norms,
            "gradient_stable_rank": ranks,
        }
        if self._options.full:
            table["gradient_singular_values"] = full_table(
                readings,
                gradients,
                rows,
                width=self._plan.k,
                threads=moment.threads,
                factor=factor,
            )
        return table


def _dense(gradient: Tensor) -> Tensor:
    """Return a gradient as a strided tensor; those of sparse embeddings are not."""
    detached = gradient.detach()
    return detached.to_dense() if detached.is_sparse else detached
