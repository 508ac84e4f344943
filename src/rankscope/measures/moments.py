"""Moments: what an optimizer has gathered of past gradients."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Num
from torch import Tensor
from torch.optim import Optimizer

from rankscope import metrics
from rankscope.measures.protocol import Gauge, Moment, OptimizerStep, Subject, readable
from rankscope.measures.spectra import all_values, full_table, leading_table
from rankscope.store import Variable

ORDERS = ("first", "second")
# Names of moments in the state of torch's optimizers, and of others that follow them.
KEYS = {
    "first": ("exp_avg", "momentum_buffer"),
    "second": ("exp_avg_sq", "square_avg", "sum"),
}


@dataclass(frozen=True)
class Moments:
    """Follow the moments that an optimizer keeps of each whole matrix, after its step.

    The first moment is the running mean of gradients: `exp_avg` of Adam and Lion, the momentum
    buffer of SGD and Muon. The second is that of their squares: `exp_avg_sq` of Adam, and its like.

    leading: number of leading singular values.
    full: store all singular values too.

    Stored for each order: `first_moment_leading_values`, `first_moment_norm` (Frobenius),
    `first_moment_stable_rank`, and so for `second`. For matrices that Muon trains,
    `muon_distance` is how far its step is from a multiple of an orthogonal matrix: see
    `metrics.distance_from_orthogonal`.
    """

    leading: int = 10
    full: bool = False
    name = "moments"
    reduces = False

    def gauge(self, subject: Subject) -> Gauge:
        if self.leading < 1:
            raise ValueError(f"Moments: leading is at least 1, got {self.leading}")
        return _Moments(subject, self)


class _Moments(Gauge):
    name = "moments"
    follows_optimizer = True

    def __init__(self, subject: Subject, options: Moments) -> None:
        super().__init__()
        self._plan, self._whole, self._options = subject.plan, subject.whole, options
        self._without = ""
        real, dim = subject.real, "moment_k"
        self.coords = {dim: ((dim,), np.arange(1, options.leading + 1))}
        self.variables = {"muon_distance": Variable(("step", "matrix"), real)}
        for order in ORDERS:
            values = Variable(("step", "matrix", dim), real)
            self.variables[f"{order}_moment_leading_values"] = values
            for name in ("norm", "stable_rank"):
                self.variables[f"{order}_moment_{name}"] = Variable(("step", "matrix"), real)
            if options.full:
                values = Variable(("step", "matrix", "k"), real)
                self.variables[f"{order}_moment_singular_values"] = values
        self.operations = 80.0 * options.leading * sum(r.m * r.n for r in self._whole)

    def after_step(self, step: OptimizerStep) -> None:
        names = dict.fromkeys(reading.parameter for reading in self._whole)
        parameters = {name: step.parameters[name] for name in names if name in step.parameters}
        several = 0
        for order in ORDERS:
            moments = {}
            for name, parameter in parameters.items():
                state = step.optimizer.state.get(parameter, {})
                tensor = next((state[key] for key in KEYS[order] if key in state), None)
                if isinstance(tensor, Tensor) and tensor.shape == parameter.shape:
                    moments[name] = tensor
            several += len(moments)
            step.keep(order, moments)
        if parameters and not several:
            self._without = (
                f"the state of {type(step.optimizer).__name__} holds no moments of its matrices, "
                "so they are NaN there"
            )
        if is_muon(step.optimizer):
            weights = step.weights()
            step.keep("muon", {name: weights[name] for name in parameters if name in weights})
            shrunk = {n: _decay(step.optimizer, p) for n, p in parameters.items()}
            step.keep("decay", {name: torch.tensor(decay) for name, decay in shrunk.items()})

    def missing(self) -> str:
        reason, self._without = self._without, ""
        return reason

    def compute(self, moment: Moment) -> dict[str, np.ndarray]:
        rows = {reading.name: row for row, reading in enumerate(self._plan.readings)}
        rank, table = self._options.leading, {}
        for order in ORDERS:
            moments = moment.kept.get(order)
            if not moments:
                continue
            readings = list(readable(self._whole, moments))
            values, norms, ranks = leading_table(readings, moments, rows, rank=rank)
            table[f"{order}_moment_leading_values"] = values
            table[f"{order}_moment_norm"] = norms
            table[f"{order}_moment_stable_rank"] = ranks
            if self._options.full:
                width, threads = self._plan.k, moment.threads
                spectra = full_table(readings, moments, rows, width=width, threads=threads)
                table[f"{order}_moment_singular_values"] = spectra
        if after := moment.kept.get("muon"):
            table["muon_distance"] = self._muon(after, moment, rows)
        return table

    def _muon(self, after: Any, moment: Moment, rows: dict[str, int]) -> np.ndarray:
        distances = np.full(len(rows), math.nan)
        for reading in readable(self._whole, after, moment.weights):
            name = reading.parameter
            now, before = (reading.view(t[name]).W for t in (after, moment.weights))
            step = muon_step(now, before, decay=float(moment.kept["decay"][name]))
            S = all_values({reading.name: step}, threads=moment.threads)[reading.name]
            distances[rows[reading.name]] = float(metrics.distance_from_orthogonal(S))
        return distances


def is_muon(optimizer: Optimizer) -> bool:
    """Tell whether an optimizer is torch's Muon, or one that bears its name."""
    return "muon" in type(optimizer).__name__.lower()


def muon_step(
    now: Num[Tensor, "m n"], before: Num[Tensor, "m n"], *, decay: float
) -> Num[Tensor, "m n"]:
    """Return the step that Muon took, W(t+1) - (1 - decay) W(t), in float64."""
    return now.double() - (1 - decay) * before.double()


def _decay(optimizer: Optimizer, parameter: Tensor) -> float:
    """Return the share by which weight decay shrinks a parameter at each step."""
    for group in optimizer.param_groups:
        if any(p is parameter for p in group["params"]):
            return float(group.get("lr", 0.0)) * float(group.get("weight_decay", 0.0))
    return 0.0
