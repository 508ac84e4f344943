"""Everything a run can show: metrics of stored spectra, and other arrays over time."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from rankscope.accessor import METRICS as ACCESSOR_METRICS
from rankscope.accessor import RankscopeAccessor
from rankscope.leading_spectra import METRICS as LEADING_METRICS
from rankscope.leading_spectra import leading_of

Measure = Callable[..., xr.DataArray]
DECADES = 1.5  # above which linear colours leave most of a picture dark
FEW = 0.05  # share of values that are no reason for logarithmic colours


@dataclass(frozen=True)
class Metric:
    """A metric of spectra: the accessor's method, and how its values are shown."""

    label: str
    method: Measure
    scale: str = "linear"
    domain: tuple[float, float] | None = None
    integer: bool = False
    expensive: bool = False

    @property
    def help(self) -> str:
        method = self.method.func if isinstance(self.method, partial) else self.method
        return (method.__doc__ or "").partition("\n")[0]


def _energy(percent: int) -> Metric:
    method = partial(RankscopeAccessor.energy_rank, fraction=percent / 100)
    return Metric(f"rank that holds {percent}% of the energy", method, integer=True)


# The first ones are computed before they are asked for.
METRICS = {
    "normalized_effective_rank": Metric(
        "normalised effective rank", RankscopeAccessor.normalized_effective_rank, domain=(0.0, 1.0)
    ),
    "stable_rank": Metric("stable rank", RankscopeAccessor.stable_rank),
    "frobenius_norm": Metric("Frobenius norm", RankscopeAccessor.frobenius_norm, "log"),
    "spectral_norm": Metric("largest value", RankscopeAccessor.spectral_norm, "log"),
    "numerical_rank": Metric("numerical rank", RankscopeAccessor.numerical_rank, integer=True),
    "condition_number": Metric("condition number", RankscopeAccessor.condition_number, "log"),
    "effective_rank": Metric("effective rank", RankscopeAccessor.effective_rank),
    "nuclear_norm": Metric("nuclear norm", RankscopeAccessor.nuclear_norm, "log"),
    "spectral_entropy": Metric("entropy of the spectrum", RankscopeAccessor.spectral_entropy),
    "energy_rank_90": _energy(90),
    "energy_rank_50": _energy(50),
    "energy_rank_99": _energy(99),
    "tail_exponent": Metric("tail exponent", RankscopeAccessor.tail_exponent, expensive=True),
}
NAMED = {  # for what else the accessor computes, where its name is no plain words
    "hill_exponent": "Hill exponent",
    "marchenko_pastur_edge": "Marchenko-Pastur edge",
    "mup_scale": "µP scale",
}
# Whatever else the accessor computes of a spectrum, when it is asked for.
METRICS |= {
    name: Metric(
        NAMED.get(name, name.replace("_", " ")), getattr(RankscopeAccessor, name), expensive=True
    )
    for name in ACCESSOR_METRICS
    if name not in METRICS and name != "normalized_spectral_entropy"
}
LEADING = "leading_values"  # what a run keeps in place of singular values: the largest of them
ALIGNMENTS = {
    "relative_alignment": Metric(
        "alignment over background", RankscopeAccessor.relative_alignment, "log"
    ),
    "mean_alignment": Metric("mean alignment", RankscopeAccessor.mean_alignment, domain=(0.0, 1.0)),
}
VALUE = "value"  # the metric of an array that is shown as it is stored
# Names of stored spectra; leading parts of them have the same.
GROUPS = {
    "singular_values": "weights",
    "change_singular_values": "changes",
    "product_singular_values": "products",
    "product_change_singular_values": "product changes",
}


@dataclass(frozen=True)
class Quantity:
    """One thing to look at: a number for each row of `axis` and each time.

    of: name of the stored array. metric: what is computed of it.
    """

    of: str
    metric: str
    axis: str
    label: str
    group: str
    scale: str = "linear"
    domain: tuple[float, float] | None = None
    integer: bool = False
    expensive: bool = False
    help: str = ""

    def colour_kind(self, values: np.ndarray) -> str:
        """Return "log" where colours of these values are logarithmic, else "linear".

        By default a quantity without bounds has them if none of its values is negative, and the
        positive ones span decades; the smallest twentieth of these may be outliers.
        """
        positive = values[np.isfinite(values) & (values > 0)]
        if self.domain is not None or not positive.size or (values < 0).any():
            return self.scale
        decades = math.log10(positive.max() / np.quantile(positive, FEW))
        return "log" if decades > DECADES else self.scale

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def quantities(ds: xr.Dataset, along: str) -> list[Quantity]:
    """Return everything that this run can show over its time axis."""
    shown: list[Quantity] = []
    for name, array in ds.data_vars.items():
        dims, stored = tuple(map(str, array.dims)), str(name)
        if dims[:1] != (along,) or array.dtype.kind not in "fiu" or 0 in array.shape[1:]:
            continue
        if dims[2:] == ("k",):
            known = METRICS if _has_shapes(ds, stored, dims[1]) else {}
            shown += [_quantity(stored, key, dims[1], metric) for key, metric in known.items()]
        elif dims[2:] == ("r",) and leading_of(ds, stored := _whole_name(stored)) is not None:
            known = {name: metric for name, metric in METRICS.items() if _is_kept(name)}
            shown += [_quantity(stored, key, dims[1], metric) for key, metric in known.items()]
        elif dims[2:] == ("i",):
            known = ALIGNMENTS if f"{stored}_background" in ds else {}
            shown += [_quantity(stored, key, dims[1], metric) for key, metric in known.items()]
        elif len(dims) == 2 and ds.sizes[dims[1]] and stored != "status":
            label = stored.replace("_", " ")
            shown.append(Quantity(stored, VALUE, dims[1], label, _group(stored), help=label))
    return shown


def _has_shapes(ds: xr.Dataset, of: str, axis: str) -> bool:
    """Return whether the lengths of the spectra are known."""
    needed = ("product_m", "product_n", "product_r") if axis == "product" else ("m", "n")
    return (axis == "product") == of.startswith("product_") and all(name in ds for name in needed)


def _whole_name(stored: str) -> str:
    """Return the name of the spectra of which a run keeps the leading values."""
    return stored.replace(LEADING, "singular_values")


def _is_kept(metric: str) -> bool:
    """Return whether a metric follows from leading values and the norm."""
    return metric.partition("_rank_")[0] + "_rank" * ("_rank_" in metric) in LEADING_METRICS


def _quantity(of: str, key: str, axis: str, metric: Metric) -> Quantity:
    return Quantity(
        of,
        key,
        axis,
        metric.label + (", cut vectors at unit length" if of.endswith("_normalized") else ""),
        _group(of),
        metric.scale,
        metric.domain,
        metric.integer,
        metric.expensive,
        metric.help,
    )


def _group(of: str) -> str:
    return GROUPS.get(of, "alignment" if of.startswith("alignment") else "other")


def name_of_spectra(stored: str) -> str:
    """Return what stored spectra, or the leading values of them, are called on the page."""
    return GROUPS.get(_whole_name(stored), stored.replace("_", " "))


def measured(part: xr.Dataset, of: str, metric: str, along: str) -> np.ndarray:
    """Return the values (time, row) of a quantity for some times of a run."""
    if metric == VALUE:
        values = part[of]
    else:
        known = METRICS.get(metric) or ALIGNMENTS[metric]
        # Not part.rankscope: the two would hold each other, and large arrays wait for collection.
        values = known.method(RankscopeAccessor(part), of=of)
    return np.asarray(values.transpose(along, ...).to_numpy(), np.float32)


def stored_name(ds: xr.Dataset, of: str) -> str:
    """Return the name of the array that holds spectra, or their leading part."""
    return of if of in ds else of.replace("singular_values", LEADING)


def inputs(ds: xr.Dataset, of: str, metric: str) -> list[str]:
    """Return the names of the variables that a quantity is computed from."""
    if metric == "relative_alignment":
        return [of, f"{of}_background"]
    if metric == "numerical_rank" and of == "change_singular_values":
        return [of, "singular_values"]
    if of not in ds:
        return [stored_name(ds, of), of.replace("singular_values", "leading_frobenius")]
    return [of]
