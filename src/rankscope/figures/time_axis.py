"""Axes of training time, with a place for every snapshot where it was taken.

Schedules are often dense early and sparse late. Such a time is drawn on a logarithmic axis that
begins with a short linear piece, so that it holds 0.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Num
from matplotlib.axes import Axes
from matplotlib.scale import SymmetricalLogTransform
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

LINEAR_PIECE = 0.5  # length of the piece around 0 in decades
DENSE_EARLY = 20.0  # ratio of last to first time above 0 from which an axis is logarithmic
FEW_DECADES = 1.5  # axes this short have ticks at 2 and 5 too


class TrainingTime(NamedTuple):
    """Times of snapshots, and what they count."""

    values: Num[np.ndarray, " step"]
    label: str = "training step"

    @property
    def first(self) -> float:
        """The first time above 0, or 1 if there is none."""
        positive = self.values[self.values > 0]
        return float(positive[0]) if len(positive) else 1.0

    @property
    def is_dense_early(self) -> bool:
        """Whether the times ask for a logarithmic axis."""
        if len(self.values) < 3 or self.values[0] < 0:
            return False
        gaps = np.diff(self.values)
        uneven = float(gaps.max()) > 1.5 * float(gaps.min())
        return uneven and float(self.values[-1]) > DENSE_EARLY * self.first

    def edges(self) -> Num[np.ndarray, " edge"]:
        """Return the edges of one cell per snapshot: half-way between neighbours as drawn."""
        if len(self.values) < 2:
            return np.append(self.values - 0.5, 0.5 + self.values[-1:].sum())
        drawn = self._forward(self.values)
        middles = (drawn[1:] + drawn[:-1]) / 2
        return self._backward(np.concatenate([drawn[:1], middles, drawn[-1:]]))

    def draw(self, axes: Axes, *, label: bool = True) -> None:
        """Give a finished panel this time as its horizontal axis."""
        low, high = float(self.values[:1].sum()), float(self.values[-1:].sum())
        if self.is_dense_early:
            axes.set_xscale("symlog", base=10, linthresh=self.first, linscale=LINEAR_PIECE)
            axes.xaxis.set_major_locator(FixedLocator(self.ticks()))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_minor_formatter(NullFormatter())
        elif len(self.values) < 2:
            axes.set_xticks(self.values.astype(np.float64))
        else:
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(short_number))
        if high > low:
            axes.set_xlim(low, high)
        if label:
            scale = " (log scale)" if self.is_dense_early else ""
            axes.set_xlabel(f"{self.label}{scale}")

    def ticks(self) -> list[float]:
        """Return round ticks of a logarithmic axis: 0 and powers of ten."""
        last = float(self.values[-1])
        decades = np.log10(last / self.first)
        factors = (1.0, 2.0, 5.0) if decades < FEW_DECADES else (1.0,)
        powers = 10.0 ** np.arange(np.floor(np.log10(self.first)), np.log10(last) + 1e-9)
        ticks = [factor * float(power) for power in powers for factor in factors]
        return [0.0, *(tick for tick in ticks if 1.5 * self.first <= tick <= last)]

    def _forward(self, values: Num[np.ndarray, " x"]) -> Num[np.ndarray, " x"]:
        if not self.is_dense_early:
            return values.astype(np.float64)
        return np.asarray(self._transform().transform_non_affine(values.astype(np.float64)))

    def _backward(self, drawn: Num[np.ndarray, " x"]) -> Num[np.ndarray, " x"]:
        if not self.is_dense_early:
            return drawn
        return np.asarray(self._transform().inverted().transform_non_affine(drawn))

    def _transform(self) -> SymmetricalLogTransform:
        return SymmetricalLogTransform(10, self.first, LINEAR_PIECE)


def short_number(value: float | int, _: int = 0) -> str:
    """Return 1,000 as "1k" and 20,000 as "20k"; smaller numbers as they are."""
    return f"{value / 1000:g}k" if abs(value) >= 1000 else f"{value:g}"
