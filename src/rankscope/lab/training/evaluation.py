"""Losses of a network at a snapshot, measured on a copy while training goes on.

They are its losses on training and held-out data, and those of its truncations.
"""

import copy
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from rankscope.interventions import (
    Part,
    directions_kept,
    projected,
    reestimate_batchnorm,
    replace_matrices,
)
from rankscope.lab.training.execution_context import own_stream
from rankscope.lab.training.step import Precision, mixed_precision
from rankscope.lab.training.task import Problem
from rankscope.matrices import View, named_tensors, views


@dataclass(frozen=True)
class Truncation:
    """Truncated networks to evaluate at each snapshot: the top and the bottom of every SVD.

    keep: share of the directions that form the top part.
    norm_samples: training samples on which BatchNorm statistics of a truncation are measured.
    """

    keep: float = 0.5
    norm_samples: int = 2000


class Evaluation:
    """A probe for training_loss, the values of `problem.validate`, and losses of truncations.

    The numbers of the problem's own probe stand beside them.

    full_loss, top_loss and bottom_loss are those of the network and its two truncations. Each uses
    BatchNorm statistics measured anew on the same samples. The running statistics behind
    training_loss lag the weights, which would make a truncated network look better than the whole.
    Without BatchNorm the full loss equals the training loss and is not stored.
    A truncation replaces all matrices but the last, by the snapshot's own decompositions.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        samples: int,
        truncation: Truncation | None,
        precision: Precision,
    ) -> None:
        self._problem = problem
        self._precision = precision
        self._truncation = truncation
        self._model = copy.deepcopy(problem.model).eval().requires_grad_(False)
        for module in self._model.modules():
            if isinstance(module, nn.RNNBase):  # GPU kernels want weights packed, copies scatter
                module.flatten_parameters()
        self._device = next(self._model.parameters()).device
        *_, last = views(self._model)
        self._views = views(self._model, exclude=[last])
        self._fixed = tuple(problem.fixed(samples))
        normed = any(isinstance(module, _BatchNorm) for module in self._model.modules())
        norm = problem.fixed(truncation.norm_samples) if truncation is not None and normed else ()
        self._norm = tuple(problem.inputs(*batch) for batch in norm)
        on_gpu = self._device.type == "cuda"
        self._stream = own_stream("evaluation", self._device) if on_gpu else None

    @property
    def directions(self) -> Mapping[str, int]:
        if self._truncation is None:
            return {}
        share = self._truncation.keep
        return {
            name: directions_kept(min(r.m, r.n), share) for name, r in self._views.readings.items()
        }

    def __call__(
        self, tensors: Mapping[str, Tensor], directions: Mapping[str, Tensor]
    ) -> dict[str, float]:
        numbers: dict[str, float] = {}
        with torch.no_grad(), self._beside():
            with mixed_precision(self._device, self._precision):
                numbers |= self._losses(tensors, directions)
            if self._problem.probe is not None:
                probed = self._problem.probe(tensors, {})
                numbers |= {name: float(value) for name, value in probed.items()}
        return numbers

    def _losses(
        self, tensors: Mapping[str, Tensor], directions: Mapping[str, Tensor]
    ) -> dict[str, float]:
        self._load(tensors)
        losses = {"training_loss": self._loss()}
        losses |= self._problem.validate(self._model)
        if self._truncation is not None:
            if self._norm:
                losses["full_loss"] = self._renormed_loss()
            losses["top_loss"] = self._truncated("top", tensors, directions)
            losses["bottom_loss"] = self._truncated("bottom", tensors, directions)
        return losses

    def _truncated(
        self, part: Part, tensors: Mapping[str, Tensor], directions: Mapping[str, Tensor]
    ) -> float:
        self._load(tensors)

        def replacement(view: View) -> Tensor:
            W = view.W.double()
            top = projected(W, directions[view.name])
            return top if part == "top" else W - top

        replace_matrices(self._model, self._views, replacement)
        return self._renormed_loss()

    def _renormed_loss(self) -> float:
        if self._norm:
            reestimate_batchnorm(self._model, self._norm)
        return self._loss()

    def _loss(self) -> float:
        """Mean loss over the fixed samples."""
        sizes = [len(batch[0]) for batch in self._fixed]
        losses = [self._problem.loss(self._model, *batch).double() for batch in self._fixed]
        weighted = [loss * size for loss, size in zip(losses, sizes, strict=True)]
        return float(torch.stack(weighted).sum()) / sum(sizes)

    def _load(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in named_tensors(self._model).items():
            tensor.copy_(tensors[name], non_blocking=True)

    def _beside(self) -> AbstractContextManager[Any]:
        """Return a context on a CUDA stream for evaluation, if the model is on a GPU."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)
