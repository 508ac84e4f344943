"""Metrics of a spectrum: singular values S (*batch, k) -> (*batch).

S holds the min(m, n) singular values of an m x n matrix, in any order. Tensors give tensors, numpy
arrays give numpy arrays. NaN in, NaN out. The zero matrix, and one without entries, has norms and
numerical rank 0; metrics that divide by a norm are NaN for it, which plots and averages skip.
"""

import functools
import math
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Real
from torch import Tensor

Array = TypeVar("Array", Tensor, np.ndarray)
Options = ParamSpec("Options")
PerMatrix = Real[Tensor, "*#batch"] | Real[np.ndarray, "*#batch"] | float | int


def _on_arrays(
    metric: Callable[Concatenate[Tensor, Options], Tensor],
) -> Callable[Concatenate[Array, Options], Array]:
    """Let a metric take numpy arrays and spectra of length 0 too."""

    @functools.wraps(metric)
    def on_arrays(S: Array, /, *args: Options.args, **kwargs: Options.kwargs) -> Array:
        spectra = S if isinstance(S, Tensor) else torch.from_numpy(np.array(S, order="C"))
        if bool(spectra.lt(0).any()):
            raise ValueError(
                f"{metric.__name__} takes singular values, which are never negative; "
                "pass rankscope.singular_values(W) instead of a weight W"
            )
        if spectra.shape[-1] == 0:
            spectra = spectra.new_zeros(*spectra.shape[:-1], 1)
        values = metric(spectra, *args, **kwargs)
        return values if isinstance(S, Tensor) else np.asarray(values)

    return on_arrays


@_on_arrays
def effective_rank(S: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """exp of the entropy of S / sum(S); between 1 and k.

    Equals r when r values are equal and the rest zero. No epsilon: 0 log 0 = 0.
    roy2007; the yunis2024 code divides by min(m, n): see `normalized_effective_rank`.
    """
    return spectral_entropy(S).exp()


@_on_arrays
def normalized_effective_rank(
    S: Float[Tensor, "*batch k"], *, R: PerMatrix | None = None
) -> Float[Tensor, "*batch"]:
    """effective_rank(S) / R, in (0, 1]; the figures of yunis2024 show it.

    R: min(m, n), by default k. Pass it for a product of factors, which has fewer values.
    """
    return effective_rank(S) / _width(S, R)


@_on_arrays
def spectral_entropy(S: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """-sum p log p with p = S / sum(S); between 0 and log k.

    yunis2024 Eq. 1 as printed, `EffRank`; the paper's figures show its exponential.
    """
    # Dividing by the largest first keeps sums of large or tiny values inside the number format.
    relative = _relative(S)
    p = relative / relative.sum(-1, keepdim=True)
    entropy: Tensor = torch.special.entr(p).sum(-1)
    return entropy


@_on_arrays
def normalized_spectral_entropy(
    S: Float[Tensor, "*batch k"], *, R: PerMatrix | None = None
) -> Float[Tensor, "*batch"]:
    """spectral_entropy(S) / R, at most log(R) / R. yunis2024 Eq. 1 as printed, `NormEffRank`.

    R: min(m, n), by default k.
    """
    return spectral_entropy(S) / _width(S, R)


@_on_arrays
def stable_rank(S: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """|S|_F^2 / |S|_2^2; between 1 and k, r when r values are equal and the rest zero.

    boix2023, app. B and Figs. 4, 12, 14, 16, show it for the change of each head's products.
    """
    return _relative(S).square().sum(-1)


@_on_arrays
def numerical_rank(
    S: Float[Tensor, "*batch k"], *, floor: PerMatrix | None = None
) -> Float[Tensor, "*batch"]:
    """Number of values above `floor`, by default `solver_floor(S, k, k)`.

    For changes of weights pass `rounding_floor`, or their rounding counts as rank.
    """
    k = S.shape[-1]
    level = solver_floor(S, k, k) if floor is None else _tensor(floor, S)
    count = S.gt(level.unsqueeze(-1)).sum(-1).to(S.dtype)
    return count.where(~S.isnan().any(-1), math.nan)


@_on_arrays
def energy_rank(S: Float[Tensor, "*batch k"], fraction: float) -> Float[Tensor, "*batch"]:
    """Smallest r such that the r largest values hold `fraction` of the sum of squares."""
    if not 0 < fraction <= 1:
        raise ValueError(f"energy_rank: expected a fraction in (0, 1], got {fraction}")
    # float64: in float32 a square below 1e-7 of the sum so far would add nothing to it.
    energy = _relative(S.double()).square().sort(dim=-1, descending=True).values.cumsum(-1)
    total = energy[..., -1:]
    rank = 1 + (energy < fraction * total).sum(-1)
    return rank.to(S.dtype).where(~total.squeeze(-1).isnan(), math.nan)


@_on_arrays
def tail_exponent(S: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """Exponent alpha of the power law p(x) ~ x^-alpha that fits the largest x = S^2 best.

    The tail begins at the x_min that minimises the Kolmogorov-Smirnov distance, and
    alpha = 1 + n / sum(log(x / x_min)) over its n values: Clauset, Shalizi and Newman (2009), and
    WeightWatcher's alpha. NaN with fewer than two different values above 0.
    """
    spectra = S.double().reshape(-1, S.shape[-1]).cpu().numpy()
    exponents = [_tail_exponent(np.sort(row[row > 0] ** 2)) for row in spectra]
    result = torch.tensor(exponents, dtype=S.dtype, device=S.device).reshape(S.shape[:-1])
    return result.where(~S.isnan().any(-1), math.nan)


def _tail_exponent(x: Float[np.ndarray, " k"]) -> float:
    """Fit the exponent to positive values in rising order."""
    logs = np.log(x)
    best_distance, best = math.inf, math.nan
    for start in range(len(x) - 1):
        excess = logs[start:] - logs[start]
        if excess[-1] == 0 or (start and logs[start] == logs[start - 1]):
            continue  # no spread is left, or this x_min was tried already
        slope = len(excess) / excess.sum()  # alpha - 1
        distance = np.abs(-np.expm1(-slope * excess) - np.arange(len(excess)) / len(excess)).max()
        if distance < best_distance:
            best_distance, best = distance, 1 + slope
    return best


@_on_arrays
def frobenius_norm(S: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """sqrt(sum of squares)."""
    norm: Tensor = torch.linalg.vector_norm(S, dim=-1)
    return norm


@_on_arrays
def spectral_norm(S: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """Largest value."""
    return S.amax(-1)


@_on_arrays
def nuclear_norm(S: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """Sum of the values."""
    return S.sum(-1)


@_on_arrays
def condition_number(S: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """Largest over smallest value; at least 1, infinite when one of them is 0."""
    return S.amax(-1) / S.amin(-1)


@_on_arrays
def solver_floor(
    S: Float[Tensor, "*batch k"], m: PerMatrix, n: PerMatrix
) -> Float[Tensor, "*batch"]:
    """max(m, n) eps max(S): values below it may be a solver's rounding.

    eps is that of the dtype of S. MATLAB and numpy's matrix_rank use this rule.
    """
    size = torch.maximum(_tensor(m, S), _tensor(n, S))
    return size * torch.finfo(S.dtype).eps * S.amax(-1)


def rounding_floor(
    dtype: torch.dtype, frobenius: PerMatrix, m: int, n: int, *, safety: float = 2.0
) -> PerMatrix:
    """Level below which singular values of W - W0, both stored in `dtype`, are rounding noise.

    Rounding moves a weight evenly by at most u |w|, which has variance u^2 w^2 / 3; u is half the
    spacing of numbers at 1. The difference of two rounded matrices has noise of deviation
    s = sqrt(2/3) u rms(W) on each entry, and a matrix of such entries has spectral norm
    s (sqrt(m) + sqrt(n)). Below the smallest normal number weights round as coarsely as there.

    frobenius: the Frobenius norm of W, which gives rms(W).
    safety: factor on that spectral norm. We measured noise of up to 1.3 times the norm for rows and
        columns of similar norms, and of up to 5 times where these differ tenfold.
    """
    limits = torch.finfo(dtype)
    rms: PerMatrix = frobenius / math.sqrt(max(1, m * n)) + limits.smallest_normal
    spread = math.sqrt(2 / 3) * limits.eps / 2 * (math.sqrt(m) + math.sqrt(n))
    return safety * spread * rms


def _relative(S: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch k"]:
    """S over its largest value; NaN for the zero matrix."""
    return S / S.amax(-1, keepdim=True)


def _width(S: Float[Tensor, "*batch k"], R: PerMatrix | None) -> Tensor | int:
    return S.shape[-1] if R is None else _tensor(R, S)


def _tensor(value: PerMatrix, S: Tensor) -> Tensor:
    """Return `value` on the device of S, copied from numpy, whose arrays may be read-only."""
    return value if isinstance(value, Tensor) else torch.tensor(value, device=S.device)
