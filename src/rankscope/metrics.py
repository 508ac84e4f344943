"""Metrics of a spectrum: singular values S (*batch, k) -> (*batch).

S holds the min(m, n) singular values of an m x n matrix, in any order. Tensors give tensors; numpy
arrays and lists give numpy arrays, without torch. NaN in, NaN out. The zero matrix, and one without
entries, has norms and numerical rank 0. Metrics that divide by a norm are NaN for it.
"""

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array, to_device
from jaxtyping import Float, Real

from rankscope.noise import Bulk, bulk_of

Values = Any  # an array of the library that S comes from
if TYPE_CHECKING:
    from torch import Tensor, dtype

    Array = TypeVar("Array", Tensor, np.ndarray)
    PerMatrix = Real[Tensor, "*#batch"] | Real[np.ndarray, "*#batch"] | float | int
else:  # torch is not imported for stored values
    Array = TypeVar("Array")
    PerMatrix = Real[Any, "*#batch"] | float | int

Options = ParamSpec("Options")

# Spacing of numbers at 1, and smallest normal number, of the types that weights are stored in.
LIMITS = {
    "float64": (2.0**-52, 2.0**-1022),
    "float32": (2.0**-23, 2.0**-126),
    "bfloat16": (2.0**-7, 2.0**-126),
    "float16": (2.0**-10, 2.0**-14),
    "float8_e4m3fn": (2.0**-3, 2.0**-6),
    "float8_e4m3fnuz": (2.0**-3, 2.0**-7),
    "float8_e5m2": (2.0**-2, 2.0**-14),
    "float8_e5m2fnuz": (2.0**-2, 2.0**-15),
    "float8_e8m0fnu": (1.0, 2.0**-127),
    "complex64": (2.0**-23, 2.0**-126),
    "complex128": (2.0**-52, 2.0**-1022),
}


def _on_arrays(
    metric: Callable[Concatenate[Values, Options], Values],
) -> Callable[Concatenate[Array, Options], Array]:
    """Let a metric take spectra of length 0, and refuse what is no spectrum."""

    @functools.wraps(metric)
    def on_arrays(S: Array, /, *args: Options.args, **kwargs: Options.kwargs) -> Array:
        if isinstance(S, list):
            return on_arrays(np.array(S, float), *args, **kwargs)
        xp = array_namespace(S)
        if bool(xp.any(S < 0)):
            raise ValueError(
                f"{metric.__name__} takes singular values, which are never negative; "
                "pass rankscope.singular_values(W) instead of a weight W"
            )
        spectra: Values = S
        if S.shape[-1] == 0:
            spectra = xp.zeros((*S.shape[:-1], 1), dtype=S.dtype, device=device(S))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
            values = metric(spectra, *args, **kwargs)
        result: Array = np.asarray(values) if is_numpy_array(S) else values
        return result

    return on_arrays


@_on_arrays
def effective_rank(S: Float[Values, "*batch k"]) -> Float[Values, "*batch"]:
    """exp of the entropy of S / sum(S); between 1 and k.

    Equals r when r values are equal and the rest zero. No epsilon: 0 log 0 = 0.
    roy2007; the yunis2024 code divides by min(m, n): see `normalized_effective_rank`.
    """
    xp = array_namespace(S)
    return xp.astype(xp.exp(_entropy(S)), S.dtype)


@_on_arrays
def normalized_effective_rank(
    S: Float[Values, "*batch k"], *, R: PerMatrix | None = None
) -> Float[Values, "*batch"]:
    """effective_rank(S) / R, in (0, 1]; the figures of yunis2024 show it.

    R: min(m, n), by default k. Pass it for a product of factors, which has fewer values.
    """
    return effective_rank(S) / _width(S, R)


@_on_arrays
def spectral_entropy(S: Float[Values, "*batch k"]) -> Float[Values, "*batch"]:
    """-sum p log p with p = S / sum(S); between 0 and log k.

    yunis2024 Eq. 1 as printed, `EffRank`; the paper's figures show its exponential.
    """
    return array_namespace(S).astype(_entropy(S), S.dtype)


@_on_arrays
def normalized_spectral_entropy(
    S: Float[Values, "*batch k"], *, R: PerMatrix | None = None
) -> Float[Values, "*batch"]:
    """spectral_entropy(S) / R, at most log(R) / R. yunis2024 Eq. 1 as printed, `NormEffRank`.

    R: min(m, n), by default k.
    """
    return spectral_entropy(S) / _width(S, R)


@_on_arrays
def stable_rank(S: Float[Values, "*batch k"]) -> Float[Values, "*batch"]:
    """|S|_F^2 / |S|_2^2; between 1 and k, r when r values are equal and the rest zero.

    boix2023, app. B and Figs. 4, 12, 14, 16, show it for the change of each head's products.
    """
    return _sum(_relative(S) ** 2)


@_on_arrays
def numerical_rank(
    S: Float[Values, "*batch k"], *, floor: PerMatrix | None = None
) -> Float[Values, "*batch"]:
    """Number of values above `floor`, by default `solver_floor(S, k, k)`.

    For changes of weights pass `rounding_floor`, or their rounding counts as rank.
    """
    k = S.shape[-1]
    xp = array_namespace(S)
    level = solver_floor(S, k, k) if floor is None else _beside(floor, S)
    count = xp.astype(xp.count_nonzero(level[..., None] < S, axis=-1), S.dtype)
    return xp.where(xp.any(xp.isnan(S), axis=-1), math.nan, count)


@_on_arrays
def energy_rank(
    S: Float[Values, "*batch k"], fraction: float, *, norm: PerMatrix | None = None
) -> Float[Values, "*batch"]:
    """Smallest r such that the r largest values hold `fraction` of the sum of squares.

    norm: Frobenius norms, if S has the largest values only; the result is NaN where they hold less.
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"energy_rank: expected a fraction in (0, 1], got {fraction}")
    # float64: in float32 a square below 1e-7 of the sum so far would add nothing to it.
    xp = array_namespace(S)
    values = xp.astype(S, xp.float64)
    values = _relative(values) if norm is None else values / _beside(norm, values)[..., None]
    if not bool(xp.all(values[..., :-1] >= values[..., 1:])):  # sorting is slow
        values = xp.sort(values, axis=-1, descending=True)
    energy = xp.cumulative_sum(values**2, axis=-1)
    total = energy[..., -1:]
    # Two sums of the same squares differ by rounding.
    needed = fraction * total if norm is None else xp.full_like(total, fraction - 1e-12)
    rank = 1 + xp.count_nonzero(energy < needed, axis=-1)
    return xp.where((total >= needed)[..., 0], xp.astype(rank, S.dtype), math.nan)


@_on_arrays
def tail_exponent(S: Float[Values, "*batch k"]) -> Float[Values, "*batch"]:
    """Exponent alpha of the power law p(x) ~ x^-alpha that fits the largest x = S^2 best.

    The tail begins at the x_min that minimises the Kolmogorov-Smirnov distance, and
    alpha = 1 + n / sum(log(x / x_min)) over its n values: Clauset, Shalizi and Newman (2009), and
    WeightWatcher's alpha. NaN with fewer than two different values above 0.
    """
    return _by_row(S, lambda row: _tail_fit(np.sort(row[row > 0] ** 2))[0])


@_on_arrays
def tail_distance(S: Float[Values, "*batch k"]) -> Float[Values, "*batch"]:
    """Kolmogorov-Smirnov distance of the tail that `tail_exponent` fits; WeightWatcher's D.

    Between 0 and 1. Small values say that the largest x = S^2 follow a power law.
    """
    return _by_row(S, lambda row: _tail_fit(np.sort(row[row > 0] ** 2))[1])


def _tail_fit(x: Float[np.ndarray, " k"]) -> tuple[float, float]:
    """Fit the exponent to positive values in rising order; return it and the distance."""
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
    return best, (math.nan if math.isnan(best) else best_distance)


@_on_arrays
def hill_exponent(
    S: Float[Values, "*batch k"], *, fraction: float = 0.1
) -> Float[Values, "*batch"]:
    """Exponent alpha of p(x) ~ x^-alpha over a fixed share of the largest x = S^2: hill1975.

    alpha = 1 + r / sum over i <= r of log(x_i / x_(r+1)), with r = `fraction` of the positive
    values, at least one. Unlike `tail_exponent`, it does not look for where the tail begins. NaN
    with fewer than two different values above 0.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"hill_exponent: expected a fraction in (0, 1), got {fraction}")

    def exponent(row: Float[np.ndarray, " k"]) -> float:
        logs = 2 * np.log(np.sort(row[row > 0])[::-1])
        r = max(1, int(fraction * len(logs)))
        spread = float((logs[:r] - logs[r]).sum()) if len(logs) > r else 0.0
        return 1 + r / spread if spread > 0 else math.nan

    return _by_row(S, exponent)


@_on_arrays
def marchenko_pastur_edge(
    S: Float[Values, "*batch k"], m: PerMatrix, n: PerMatrix
) -> Float[Values, "*batch"]:
    """Largest singular value that noise of the size of the bulk would have: marchenko1967.

    A matrix of independent entries of deviation s has values up to s (sqrt(m) + sqrt(n)). The bulk
    is what `values_beyond_noise` leaves, which gives s.
    """

    def edge(row: Float[np.ndarray, " k"], m: Any, n: Any) -> float:
        return _bulk(row, int(m), int(n)).deviation * (math.sqrt(m) + math.sqrt(n))

    return _by_row(S, edge, m, n)


@_on_arrays
def values_beyond_noise(
    S: Float[Values, "*batch k"], m: PerMatrix, n: PerMatrix
) -> Float[Values, "*batch"]:
    """Number of values above the Marchenko-Pastur edge of the rest, beyond what chance allows.

    The largest value of noise exceeds the edge by chance; a value counts if noise has one as large
    in less than one of a hundred matrices (Tracy-Widom, johnstone2001). Values are taken out of the
    bulk until their number no longer changes.
    """
    return _by_row(S, lambda row, m, n: _bulk(row, int(m), int(n)).beyond, m, n)


def _bulk(row: Float[np.ndarray, " k"], m: int, n: int) -> Bulk:
    squares = np.sort(row) ** 2
    tails = np.append(np.cumsum(squares)[::-1], 0.0)
    return bulk_of(row, tails, m, n)


@_on_arrays
def mup_scale(S: Float[Values, "*batch k"], m: PerMatrix, n: PerMatrix) -> Float[Values, "*batch"]:
    """sqrt(n / m) times the largest value: of order 1 at every width under muP.

    m outputs and n inputs. yang2023, condition 1: the spectral norm of a weight, and of its update,
    goes like sqrt(m / n).
    """
    xp = array_namespace(S)
    ratio = xp.astype(_beside(n, S), S.dtype) / xp.astype(_beside(m, S), S.dtype)
    return xp.sqrt(ratio) * xp.max(S, axis=-1)


def _by_row(
    S: Float[Values, "*batch k"], function: Callable[..., float], *options: PerMatrix
) -> Float[Values, "*batch"]:
    """Apply a function of one spectrum, in float64 on the host; NaN for spectra with NaN."""
    xp = array_namespace(S)
    batch = S.shape[:-1]
    rows = np.asarray(to_device(xp.astype(S, xp.float64), "cpu")).reshape(-1, S.shape[-1])
    columns = [np.broadcast_to(np.asarray(o), batch).reshape(-1) for o in options]
    results = [
        math.nan if np.isnan(row).any() else function(row, *values)
        for row, *values in zip(rows, *columns, strict=True)
    ]
    return xp.reshape(xp.asarray(results, dtype=S.dtype, device=device(S)), batch)


@_on_arrays
def frobenius_norm(S: Float[Values, "*batch k"]) -> Float[Values, "*batch"]:
    """sqrt(sum of squares)."""
    return array_namespace(S).sqrt(_sum(S * S))


@_on_arrays
def spectral_norm(S: Float[Values, "*batch k"]) -> Float[Values, "*batch"]:
    """Largest value."""
    return array_namespace(S).max(S, axis=-1)


@_on_arrays
def nuclear_norm(S: Float[Values, "*batch k"]) -> Float[Values, "*batch"]:
    """Sum of the values."""
    return _sum(S)


@_on_arrays
def condition_number(S: Float[Values, "*batch k"]) -> Float[Values, "*batch"]:
    """Largest over smallest value; at least 1, infinite when one of them is 0."""
    xp = array_namespace(S)
    return xp.max(S, axis=-1) / xp.min(S, axis=-1)


@_on_arrays
def distance_from_orthogonal(
    S: Float[Values, "*batch k"], *, R: PerMatrix | None = None
) -> Float[Values, "*batch"]:
    """Return min |W - c Q|_F / |W|_F over numbers c and matrices Q with equal singular values 1.

    It is sqrt(1 - (sum S)^2 / (R |S|_F^2)): 0 when all values are equal, sqrt(1 - 1/R) for rank 1.
    Muon makes its steps nearly orthogonal (jordan2024).

    R: min(m, n), by default k.
    """
    xp = array_namespace(S)
    relative = _relative(S)
    total, squares = _sum(relative), _sum(relative**2)
    left_out = 1 - total**2 / (squares * _width(S, R))
    return xp.sqrt(xp.where(left_out < 0, xp.zeros_like(left_out), left_out))


@_on_arrays
def solver_floor(
    S: Float[Values, "*batch k"], m: PerMatrix, n: PerMatrix
) -> Float[Values, "*batch"]:
    """max(m, n) eps max(S): values below it may be a solver's rounding.

    eps is that of the dtype of S. MATLAB and numpy's matrix_rank use this rule.
    """
    xp = array_namespace(S)
    size = xp.maximum(_beside(m, S), _beside(n, S))
    return xp.astype(size, S.dtype) * float(xp.finfo(S.dtype).eps) * xp.max(S, axis=-1)


def rounding_floor(
    dtype: "dtype | str", frobenius: PerMatrix, m: int, n: int, *, safety: float = 2.0
) -> PerMatrix:
    """Level below which singular values of W - W0, both stored in `dtype`, are rounding noise.

    Rounding moves a weight evenly by at most u |w|, which has variance u^2 w^2 / 3; u is half the
    spacing of numbers at 1. The difference of two rounded matrices has noise of deviation
    s = sqrt(2/3) u rms(W) on each entry, and a matrix of such entries has spectral norm
    s (sqrt(m) + sqrt(n)). Below the smallest normal number weights round as coarsely as there.

    dtype: a torch.dtype, or its name, as runs store it.
    frobenius: the Frobenius norm of W, which gives rms(W).
    safety: factor on that spectral norm. We measured noise of up to 1.3 times the norm for rows and
        columns of similar norms, and of up to 5 times where these differ tenfold.
    """
    eps, smallest_normal = LIMITS[str(dtype).removeprefix("torch.")]
    rms: PerMatrix = frobenius / math.sqrt(max(1, m * n)) + smallest_normal
    spread = math.sqrt(2 / 3) * eps / 2 * (math.sqrt(m) + math.sqrt(n))
    return safety * spread * rms


def _entropy(S: Float[Values, "*batch k"]) -> Float[Values, "*batch"]:
    """Return -sum p log p with p = S / sum(S), in float64."""
    # Dividing by the largest first keeps sums of large or tiny values inside the number format.
    relative, xp = _relative(S), array_namespace(S)
    p = relative / _sum(relative)[..., None]
    return xp.sum(-p * xp.log(xp.where(p == 0, 1.0, p)), axis=-1, dtype=xp.float64)


def _sum(values: Float[Values, "*batch k"]) -> Float[Values, "*batch"]:
    """Sum in float64, since NumPy adds float32 numbers that do not lie side by side one by one."""
    xp = array_namespace(values)
    return xp.astype(xp.sum(values, axis=-1, dtype=xp.float64), values.dtype)


def _relative(S: Float[Values, "*batch k"]) -> Float[Values, "*batch k"]:
    """S over its largest value; NaN for the zero matrix."""
    return S / array_namespace(S).max(S, axis=-1, keepdims=True)


def _width(S: Float[Values, "*batch k"], R: PerMatrix | None) -> Values:
    return S.shape[-1] if R is None else array_namespace(S).astype(_beside(R, S), S.dtype)


def _beside(value: PerMatrix, S: Values) -> Values:
    """Return `value` as an array of the library and on the device of S.

    It is copied from numpy, whose arrays may be read-only.
    """
    if is_numpy_array(S):
        return np.asarray(value)
    if type(value) is type(S):
        return value
    return array_namespace(S).asarray(np.array(value), device=device(S))
