"""Updates: what one optimizer step does to each matrix, W(t+1) - W(t)."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Num
from torch import Tensor

from rankscope.matrices import Reading, difference, product_change
from rankscope.measures.protocol import Gauge, Moment, OptimizerStep, Subject, readable
from rankscope.snapshot.measuring import change_size, solver_of
from rankscope.snapshot.portions import portions
from rankscope.snapshot.spectrum import MISSING, Spectrum, spectrum_of, values_of, variables_of
from rankscope.spectra.decomposition import Matrix
from rankscope.store import Variable

AFTER = "weights"  # the watched weights after the optimizer step


@dataclass(frozen=True)
class Updates:
    """Follow the update W(t+1) - W(t) of each whole matrix, and of each head's products.

    leading: number of the weight's leading directions for the share of the update inside them.

    Stored: `update_singular_values` and `product_update_singular_values` (leading values where the
    tracker keeps leading values of the weights), and for each matrix

    update_norm_ratio: Frobenius norm of the update over that of the weight.
    update_share: share of the update's squared norm inside the weight's leading directions, on
        both sides; leading^2 / (m n) for a random update.
    update_cosine_last: cosine with the update of the snapshot before.
    update_cosine_start: cosine with the way W(t) - W(0) since the reference.
    """

    leading: int = 10
    name = "updates"
    reduces = False

    def gauge(self, subject: Subject) -> Gauge:
        if self.leading < 1:
            raise ValueError(f"Updates: leading is at least 1, got {self.leading}")
        return _Updates(subject, self.leading)


class _Updates(Gauge):
    name = "updates"
    follows_optimizer = True

    def __init__(self, subject: Subject, leading: int) -> None:
        super().__init__()
        self._plan, self._whole = subject.plan, subject.whole
        self._last: dict[str, Tensor] = {}
        self.facts = {"leading": leading}
        self.directions = {reading.name: leading for reading in self._whole}
        real = subject.real
        self.variables = {**variables_of(self._plan, "matrix", real, prefix="update_")}
        for name in ("norm_ratio", "share", "cosine_last", "cosine_start"):
            self.variables[f"update_{name}"] = Variable(("step", "matrix"), real)
        if self._plan.products:
            product = variables_of(self._plan, "product", real, prefix="product_update_")
            self.variables |= product
        self.operations = 2.0 * sum(r.m * r.n * min(r.m, r.n) for r in self._whole)

    def after_step(self, step: OptimizerStep) -> None:
        weights = step.weights()
        parts = getattr(weights, "parts", lambda name: (name,))
        changed = {
            name: weights[name]
            for name in self._plan.parameters
            if name in weights and not step.parameters.keys().isdisjoint(parts(name))
        }
        step.keep(AFTER, changed)

    def compute(self, moment: Moment) -> dict[str, np.ndarray]:
        after = moment.kept.get(AFTER)
        if not after:
            return {}
        row = {reading.name: i for i, reading in enumerate(self._plan.readings)}
        spectra = [MISSING] * len(row)
        numbers = np.full((4, len(row)), math.nan)
        last, self._last = self._last, {}
        readings = list(readable(self._whole, moment.weights, after))
        for portion in portions(readings, size=lambda reading: reading.m * reading.n):
            updates = {r.name: _moved(r, after, moment.weights) for r in portion}
            for name, result in self._solved(updates, moment).items():
                spectra[row[name]] = spectrum_of(result, self._plan)
            for reading in portion:
                name, update = reading.name, updates[reading.name]
                W = reading.view(moment.weights[reading.parameter]).W
                directions = moment.directions.get(name)
                reference = moment.reference or {}
                way = reading.parameter in reference
                numbers[:, row[name]] = (
                    _ratio(update, W),
                    math.nan if directions is None else leading_share(update, W, directions),
                    cosine(update, last[name]) if name in last else math.nan,
                    cosine(update, _moved(reading, moment.weights, reference)) if way else math.nan,
                )
            self._last |= updates
        names = ("norm_ratio", "share", "cosine_last", "cosine_start")
        values = {f"update_{name}": line for name, line in zip(names, numbers, strict=True)}
        values |= values_of(spectra, self._plan, prefix="update_")
        if self._plan.products:
            known = {**dict(moment.weights), **dict(after)}
            values |= values_of(self._products(known, moment), self._plan, prefix="product_update_")
        return values

    def _solved(self, matrices: Mapping[str, Matrix], moment: Moment) -> dict[str, Any]:
        solve = solver_of(self._plan)
        threads = moment.threads
        solved: dict[str, Any] = solve(matrices, threads=threads, on_failure=lambda names: None)
        return solved

    def _products(self, after: Mapping[str, Tensor], moment: Moment) -> list[Spectrum]:
        spectra: dict[str, Spectrum] = {}
        for portion in portions(self._plan.products, size=change_size):
            changes = {
                product.name: product_change(
                    product.product(after), product.product(moment.weights)
                )
                for product in portion
                if {reading.parameter for reading in product.readings} <= moment.weights.keys()
            }
            solved = self._solved(changes, moment)
            spectra |= {name: spectrum_of(svd, self._plan) for name, svd in solved.items()}
        return [spectra.get(product.name, MISSING) for product in self._plan.products]


def _moved(reading: Reading, now: Mapping[str, Tensor], before: Mapping[str, Tensor]) -> Tensor:
    W, W0 = (reading.view(tensors[reading.parameter]).W for tensors in (now, before))
    return difference(W, W0.to(W.device))


def _ratio(update: Num[Tensor, "m n"], W: Num[Tensor, "m n"]) -> float:
    norm = torch.linalg.vector_norm
    return float(norm(update, dtype=torch.float64) / norm(W, dtype=torch.float64))


def cosine(a: Num[Tensor, "m n"], b: Num[Tensor, "m n"]) -> float:
    """Cosine of the angle between two matrices as vectors; NaN if one is zero."""
    a, b = a.flatten().double(), b.flatten().to(a.device).double()
    lengths = torch.linalg.vector_norm(a) * torch.linalg.vector_norm(b)
    return float((a @ b / lengths).clamp(-1, 1))


def leading_share(
    update: Num[Tensor, "m n"], W: Num[Tensor, "m n"], directions: Float[Tensor, "short r"]
) -> float:
    """|U^T dW V|^2 / |dW|^2 for the leading directions of W; 1 if the update lies inside them.

    directions: columns of U if m <= n, else of V. The other side follows as W V / S.
    """
    if W.shape[0] > W.shape[1]:
        return leading_share(update.mT, W.mT, directions)
    U = directions.double().to(W.device)
    V = torch.linalg.qr(W.double().mT @ U).Q
    update = update.double()
    norm = torch.linalg.vector_norm
    return float((norm(U.mT @ update @ V) / norm(update)).square())
