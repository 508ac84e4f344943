"""`ds.rankscope`: metrics of an opened run, computed from its spectra on demand.

Spectra are stored padded with NaN to the longest one. A metric sees each spectrum at its own
length, so a NaN in its result means a zero matrix or a failed decomposition. Long runs are read
part by part.
"""

import json
from collections.abc import Callable, Hashable, Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from rankscope import metrics
from rankscope.leading_spectra import leading_of, metric_of_leading

# Size of spectra read at a time; a metric needs about ten times that while it works.
PART_BYTES = 16 * 1024 * 1024

NEED_MORE = ("energy_rank", "rounding_floor")

Metric = Callable[..., np.ndarray]
Options = dict[str, Any]
Selection = dict[Hashable, slice | np.ndarray]


def _method(
    metric: Metric, **from_shape: Callable[["RankscopeAccessor", str], xr.DataArray]
) -> Callable[..., xr.DataArray]:
    """Return the metric as a method, with the metric's name and documentation.

    from_shape: options that follow from the shapes of the matrices.
    """

    def method(
        self: "RankscopeAccessor", *, of: str = "singular_values", **options: Any
    ) -> xr.DataArray:
        if (leading := leading_of(self._dataset, of)) is not None:
            return metric_of_leading(metric.__name__, leading, **options)
        known = {name: value(self, of) for name, value in from_shape.items()}
        return self.apply(metric, of=of, **known, **options)

    method.__name__ = metric.__name__
    method.__qualname__ = f"RankscopeAccessor.{metric.__name__}"
    method.__doc__ = f"{metric.__doc__}\n\n    of: name of the stored spectra."
    return method


def _shorter_side(accessor: "RankscopeAccessor", of: str) -> xr.DataArray:
    """R = min(m, n); the spectrum of a product may be shorter."""
    return _smaller(*accessor._shape(of))


def _outputs(accessor: "RankscopeAccessor", of: str) -> xr.DataArray:
    return accessor._shape(of)[0]


def _inputs(accessor: "RankscopeAccessor", of: str) -> xr.DataArray:
    return accessor._shape(of)[1]


class Measured(NamedTuple):
    """One measure of a run: its name, the names of its variables, and its options."""

    name: str
    variables: tuple[str, ...]
    options: Mapping[str, Any]


class RankscopeAccessor:
    """Metrics of the spectra in a run: `ds.rankscope.effective_rank(of="change_singular_values")`.

    `of` names the stored spectra. The result has their dimensions without k.
    """

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    effective_rank = _method(metrics.effective_rank)
    normalized_effective_rank = _method(metrics.normalized_effective_rank, R=_shorter_side)
    spectral_entropy = _method(metrics.spectral_entropy)
    normalized_spectral_entropy = _method(metrics.normalized_spectral_entropy, R=_shorter_side)
    stable_rank = _method(metrics.stable_rank)
    energy_rank = _method(metrics.energy_rank)
    tail_exponent = _method(metrics.tail_exponent)
    tail_distance = _method(metrics.tail_distance)
    hill_exponent = _method(metrics.hill_exponent)
    marchenko_pastur_edge = _method(metrics.marchenko_pastur_edge, m=_outputs, n=_inputs)
    values_beyond_noise = _method(metrics.values_beyond_noise, m=_outputs, n=_inputs)
    mup_scale = _method(metrics.mup_scale, m=_outputs, n=_inputs)
    frobenius_norm = _method(metrics.frobenius_norm)
    spectral_norm = _method(metrics.spectral_norm)
    nuclear_norm = _method(metrics.nuclear_norm)
    condition_number = _method(metrics.condition_number)
    distance_from_orthogonal = _method(metrics.distance_from_orthogonal, R=_shorter_side)

    def numerical_rank(
        self, *, of: str = "singular_values", floor: float | xr.DataArray | None = None
    ) -> xr.DataArray:
        """Number of values above `floor`.

        The default floor is the solver's rounding. For changes of weights it is the rounding of
        their dtype, so that a rank-1 change of bfloat16 weights has rank 1.
        """
        if (leading := leading_of(self._dataset, of)) is not None:
            return metric_of_leading("numerical_rank", leading)
        if floor is None and of == "change_singular_values":
            floor = self.rounding_floor()
        if floor is not None:
            return self.apply(metrics.numerical_rank, of=of, floor=floor)
        m, n = self._shape(of)
        return self.apply(_rank_above_solver, of=of, m=m, n=n).rename("numerical_rank")

    def rounding_floor(self, *, safety: float = 2.0) -> xr.DataArray:
        """Level below which a change of weights is their rounding: `metrics.rounding_floor`."""
        dtype, m, n = (self._dataset[name] for name in ("dtype", "m", "n"))
        norms = self.frobenius_norm()
        other_dims = [dim for dim in norms.dims if dim not in dtype.dims]

        def floor(dtype: str, norm: Any, m: Any, n: Any) -> metrics.PerMatrix:
            norm = np.asarray(norm, np.float64)
            return metrics.rounding_floor(dtype, norm, int(m), int(n), safety=safety)

        floors: xr.DataArray = xr.apply_ufunc(
            floor,
            dtype,
            norms,
            m,
            n,
            input_core_dims=[[], other_dims, [], []],
            output_core_dims=[other_dims],
            vectorize=True,
        )
        return floors.transpose(*norms.dims).rename("rounding_floor")

    def mean_alignment(self, *, of: str = "alignment") -> xr.DataArray:
        """Mean of A_ii over i <= min(10, R) of each pair. yunis2024 Eq. 3.

        This is `overlaps.mean_alignment` of stored values, which are padded with NaN beyond R.
        """
        if of not in self._dataset:
            raise ValueError(f"this run has no variable {of!r}; track it with pairs")
        return self._dataset[of].isel(i=slice(10)).mean("i", skipna=True).rename("mean_alignment")

    def relative_alignment(self, *, of: str = "alignment") -> xr.DataArray:
        """Mean alignment of each pair over its background, the mean overlap off the diagonal.

        Values near 1 are chance. NaN for pairs of single vectors, which have no background.
        """
        ratio = self.mean_alignment(of=of) / self._dataset[f"{of}_background"]
        return ratio.rename("relative_alignment")

    @property
    def measures(self) -> tuple["Measured", ...]:
        """Measures that the run followed beside the weights, with options and variables."""
        stored = json.loads(self._dataset.attrs.get("measures", "{}"))
        return tuple(
            Measured(name, tuple(facts.pop("variables")), facts) for name, facts in stored.items()
        )

    def measure(self, name: str) -> xr.Dataset:
        """Return the variables of one measure, such as "updates"; its options are attributes."""
        known = {measured.name: measured for measured in self.measures}
        if name not in known:
            names = ", ".join(known) or "no measures"
            raise ValueError(f"this run has no measure {name!r}; it has {names}")
        variables = [v for v in known[name].variables if v in self._dataset]
        return self._dataset[variables].assign_attrs(dict(known[name].options))

    def view(self, *, of: str | None = None, metric: str | None = None) -> Any:
        """Show the run in a notebook cell: scalars, a heat map of a metric, what moved most.

        The picture shows the run as it is now and needs no server; `rankscope view` shows more.

        of, metric: names of stored values and of a metric; by default the normalised effective
            rank of the weights.
        """
        return import_module("rankscope.view.widget").overview(self._dataset, of=of, metric=metric)

    @property
    def has_all_values(self) -> bool:
        """Whether the run has all singular values; else it may have the leading ones."""
        return "leading_values" not in self._dataset

    def largest(self, *, of: str = "singular_values") -> xr.DataArray:
        """Stored values along k, descending: all, or the leading ones of a run that has no more."""
        if (leading := leading_of(self._dataset, of)) is not None:
            return leading[0].drop_vars("r", errors="ignore").rename(r="k")
        return self._dataset[of]

    def whole(self) -> xr.Dataset:
        """The run without matrices that are part of another, such as the heads of a projection."""
        return self._dataset.isel(matrix=np.flatnonzero(self._dataset["part_of"].to_numpy() == ""))

    def status(self) -> xr.DataArray:
        """Status of each matrix at each step, in words."""
        status = self._dataset["status"]
        words = np.array(status.attrs["flag_meanings"].split())
        return status.copy(data=words[status.to_numpy()])

    def apply(
        self, function: Metric, *, of: str = "singular_values", **options: Any
    ) -> xr.DataArray:
        """Apply your own metric: `function(S, **options)` takes arrays (..., k) and returns (...).

        S holds no padding. An option that is a DataArray over steps or matrices reaches the
        function as the matching array.
        """
        if (leading := leading_of(self._dataset, of)) is not None:
            return metric_of_leading(function.__name__, leading)
        spectra, widths = self._spectra(of), self._widths(of)
        results = [
            _apply_by_width(
                function,
                spectra.isel(part).load(),
                widths.isel(part, missing_dims="ignore"),
                _isel(options, part),
            )
            for part in _parts(spectra)
        ]
        return _concat(results, spectra.dims[0]).rename(function.__name__)

    def _spectra(self, of: str) -> xr.DataArray:
        known = [str(name) for name, array in self._dataset.items() if "k" in array.dims]
        if of not in known:
            raise ValueError(f"this run has no spectra {of!r}; it has {', '.join(known) or 'none'}")
        spectra = self._dataset[of]
        if not all(size for dim, size in spectra.sizes.items() if dim != "step"):
            raise ValueError(
                f"this run has no matrices in {of!r}; look at its attribute 'coverage'"
            )
        return spectra

    def _shape(self, of: str) -> tuple[xr.DataArray, xr.DataArray]:
        prefix = "product_" if of.startswith("product_") else ""
        return self._dataset[f"{prefix}m"], self._dataset[f"{prefix}n"]

    def _widths(self, of: str) -> xr.DataArray:
        """Length of each spectrum: min(m, n), and at most the inner width r for a product.

        The change of a product is a product of inner width 2 r.
        """
        shorter = _shorter_side(self, of)
        if not of.startswith("product_"):
            return shorter
        changes = ("product_change_", "product_update_")
        inner = self._dataset["product_r"] * (2 if of.startswith(changes) else 1)
        return _smaller(shorter, inner)


# Metrics that need no option; energy_rank needs a fraction.
METRICS = tuple(
    name
    for name in vars(RankscopeAccessor)
    if name in vars(metrics) and not name.startswith("_") and name not in NEED_MORE
)


def _smaller(a: xr.DataArray, b: xr.DataArray) -> xr.DataArray:
    return a.where(a < b, b)


def _rank_above_solver(S: np.ndarray, m: metrics.PerMatrix, n: metrics.PerMatrix) -> np.ndarray:
    return metrics.numerical_rank(S, floor=metrics.solver_floor(S, m, n))


def _parts(spectra: xr.DataArray) -> Iterator[Selection]:
    """Yield selections of whole chunks along the first dimension, of bounded size."""
    dim, length = spectra.dims[0], spectra.shape[0]
    chunk = spectra.encoding.get("preferred_chunks", {}).get(dim, 1)
    chunk_bytes = max(1, spectra.nbytes // max(1, length) * chunk)
    rows = chunk * max(1, PART_BYTES // chunk_bytes)
    if dim == "k" or rows >= length:
        yield {}
        return
    for start in range(0, length, rows):
        yield {dim: slice(start, start + rows)}


def _apply_by_width(
    function: Metric, spectra: xr.DataArray, widths: xr.DataArray, options: Options
) -> xr.DataArray:
    if not widths.dims:  # a single matrix was selected
        return _apply(function, spectra.isel(k=slice(int(widths))), options)
    (dim,) = widths.dims
    groups = [np.flatnonzero(widths == width) for width in np.unique(widths)]
    results = [
        _apply(
            function,
            spectra.isel({dim: group, "k": slice(int(widths[group[0]]))}),
            _isel(options, {dim: group}),
        )
        for group in groups
    ]
    return _concat(results, dim).isel({dim: np.argsort(np.concatenate(groups))})


def _apply(function: Metric, spectra: xr.DataArray, options: Options) -> xr.DataArray:
    arrays = {name: value for name, value in options.items() if isinstance(value, xr.DataArray)}
    others = {name: value for name, value in options.items() if name not in arrays}

    def on_arrays(S: np.ndarray, *values: np.ndarray) -> np.ndarray:
        return function(S, **dict(zip(arrays, values, strict=True)), **others)

    result: xr.DataArray = xr.apply_ufunc(
        on_arrays, spectra, *arrays.values(), input_core_dims=[["k"], *([] for _ in arrays)]
    )
    return result


def _isel(options: Options, selection: Selection) -> Options:
    return {
        name: value.isel(selection, missing_dims="ignore")
        if isinstance(value, xr.DataArray)
        else value
        for name, value in options.items()
    }


def _concat(results: list[xr.DataArray], dim: Hashable) -> xr.DataArray:
    if len(results) == 1:
        return results[0]
    return xr.concat(results, dim, coords="minimal", compat="override", join="override")
