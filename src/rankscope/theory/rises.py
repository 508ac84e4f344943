"""Times at which values rise in turn, and whether one rise ends before the next begins."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Rises:
    """Times at which each value first reaches 10%, 50% and 90% of its final value.

    All three are NaN for a value that did not rise or has not settled.
    """

    start: Float[Tensor, " k"]
    half: Float[Tensor, " k"]
    end: Float[Tensor, " k"]

    @property
    def width(self) -> Float[Tensor, " k"]:
        """Time from 10% to 90%."""
        return self.end - self.start

    @property
    def separated(self) -> int:
        """Number of leading values that rise one after another.

        Two neighbours do so if their half-rise times are in the given order and lie further apart
        than the wider of their two rises. A single value that rises counts as 1.
        """
        gap, width = self.half.diff(), self.width
        apart = gap > torch.maximum(width[1:], width[:-1])
        first = ~self.half[:1].isnan()
        return int(torch.cat([first, apart]).long().cumprod(0).sum())


def rise_times(
    time: Float[Tensor, " time"], values: Float[Tensor, "time k"], *, floor: float = 1e-8
) -> Rises:
    """Return the rises of each column of `values`, interpolated linearly between the times.

    Only first passages count, so a value may overshoot or dip later. Singular values are sorted:
    where a later direction overtakes an earlier one, the larger value climbs twice, its width
    spans both climbs, and it counts as not separated. Two kinds of value give NaN: one that ends
    at no more than 10 times its beginning, and one that is not recorded for as long again as its
    rise took, since an exponential that is cut off anywhere would look like a rise.

    floor: a final value below this share of the largest is not learned, or just rounding.
    """
    final = values[-1]
    start, half, end = (_first_passage(time, values, share * final) for share in (0.1, 0.5, 0.9))
    least = floor * max(final.tolist(), default=0.0)
    risen = (final > 10 * values[0]) & (final > least)
    settled = time[-1] - end >= end - start
    counted = risen & settled
    return Rises(*(times.where(counted, torch.nan) for times in (start, half, end)))


def _first_passage(
    time: Float[Tensor, " time"], values: Float[Tensor, "time k"], level: Float[Tensor, " k"]
) -> Float[Tensor, " k"]:
    """Return when each column first reaches its level; meaningless if it starts above it."""
    after = (values >= level).long().argmax(0).clamp(min=1)  # (k,)
    low = values.gather(0, (after - 1)[None])[0]
    high = values.gather(0, after[None])[0]
    share = ((level - low) / (high - low)).clamp(0, 1)
    return torch.lerp(time[after - 1], time[after], share)
