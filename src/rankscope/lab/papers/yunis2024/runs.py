"""The runs that claims and figures of yunis2024 read, and how they read them."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps

import numpy as np
import xarray as xr

from rankscope.lab.archive.compaction import OVERLAPS, of_zero_matrices
from rankscope.lab.judging.rule import Measured
from rankscope.lab.judging.selected_runs import Needs, Runs, runs_of
from rankscope.lab.judging.tally import Tally
from rankscope.lab.judging.verdict import Cell
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.training.outcome import collapsed

# The decay of figures 1-3. The paper prints none for the UNet; AdamW's is 0 in its code.
BASE = {"vgg": 1e-4, "unet": 0.0, "lstm": 0.1, "lm": 0.1}
LEAST_DECAYS = 3  # fewer show no trend


def decay_of(key: RunKey) -> float:
    """Return the paper's decay that a run stands for."""
    return float(key.variant["decay"])


def base_runs_of(*networks: str) -> Needs:
    """Need the run at the base decay of each network, or at the nearest declared decay."""

    def needs(keys: Sequence[RunKey]) -> Collection[RunKey]:
        nearest: dict[str, RunKey] = {}
        for key in sorted(runs_of(*networks, parameter="decay")(keys), key=_from_base):
            nearest.setdefault(key.network, key)
        return [key for key in keys if key in nearest.values()]

    return needs


def _from_base(key: RunKey) -> tuple[float, float]:
    return abs(decay_of(key) - BASE[key.network]), decay_of(key)


base_runs = base_runs_of(*BASE)
decay_sweeps = runs_of(*BASE, parameter="decay")


def per_base_run(
    measure: Callable[[xr.Dataset], Measured],
) -> Callable[[Runs], Iterator[Measured]]:
    """Return the measure of a rule that reads every run at its base decay by itself.

    A collapsed run cannot tell. Remarks name it, and a decay that stands in for the base decay.
    """

    @wraps(measure)
    def measure_runs(runs: Runs) -> Iterator[Measured]:
        for key in runs:
            for seed, ds in runs[key].items():
                if reason := collapsed(ds):
                    measured = Measured(remarks=(collapse_remark(key, seed, reason),))
                else:
                    measured = measure(ds)
                remarks = (*stand_in_remark(key), *measured.remarks)
                yield replace(measured, remarks=remarks).at(key, seed)

    return measure_runs


def share_met(tally: Tally, bound: float, part: str, cells: Mapping[str, Cell]) -> Measured:
    """Measure a rule that asks for a share of matrices or pairs; `cells` are further evidence."""
    row = {"share": tally.share, **cells, "exceptions": str(tally)}
    return Measured(tally.share, tally.at_least(bound), (row,), {part: tally})


def collapse_remark(key: RunKey, seed: int, reason: str) -> str:
    """Return a sentence that names a collapsed run."""
    return f"{key.title}, seed {seed} collapsed: {reason}"


def stand_in_remark(key: RunKey) -> Iterator[str]:
    """Yield a remark if a run stands in for one at the base decay."""
    if decay_of(key) != BASE[key.network]:
        yield f"{key.title}: the nearest declared to decay {BASE[key.network]:g}"


@dataclass(frozen=True)
class Sweep:
    """Runs of one network and seed at several decays, without those that collapsed.

    base: key of the run at the base decay, whether it collapsed or not.
    runs: by the paper's decay, ascending. left_out: a remark on each run that collapsed.
    """

    base: RunKey
    seed: int
    runs: dict[float, xr.Dataset]
    left_out: tuple[str, ...]

    @property
    def place(self) -> str:
        """Network and seed, as remarks name them."""
        return f"{self.base.network}, seed {self.seed}"

    @property
    def ends(self) -> tuple[xr.Dataset, xr.Dataset] | None:
        """The runs at decay 0 and at the largest decay above; None if one of them is missing."""
        largest = max(self.runs, default=0.0)
        return (self.runs[0.0], self.runs[largest]) if largest and 0.0 in self.runs else None


def sweeps(runs: Runs) -> Iterator[Sweep]:
    """Yield the sweep of every network and seed."""
    for network in runs.networks:
        swept = runs.of(network)
        keys = sorted(swept, key=decay_of)
        (base,) = base_runs_of(network)(keys)
        for seed in swept.seeds:
            whole: dict[float, xr.Dataset] = {}
            left_out: list[str] = []
            for key in keys:
                if reason := collapsed(swept[key][seed]):
                    left_out.append(collapse_remark(key, seed, reason))
                else:
                    whole[decay_of(key)] = swept[key][seed]
            yield Sweep(base, seed, whole, tuple(left_out))


def with_values(ds: xr.Dataset, least: int) -> xr.Dataset:
    """Select the spectra of whole matrices that have at least this many singular values."""
    spectra: xr.Dataset = ds[["singular_values"]].rankscope.whole()
    wide = np.minimum(spectra["m"].to_numpy(), spectra["n"].to_numpy()) >= least
    return spectra if wide.all() else spectra.isel(matrix=np.flatnonzero(wide))


def neighbours(ds: xr.Dataset) -> xr.Dataset:
    """Drop the pairs at other taps than the centre, which only Y11 reads."""
    return ds.isel(pair=np.flatnonzero(ds["pair_kind"].to_numpy() != "tap"))


def overlaps(ds: xr.Dataset) -> xr.Dataset:
    """Select overlaps and backgrounds of pairs; NaN while a matrix of the pair is zero."""
    selected = ds[[name for name in OVERLAPS if name in ds]]
    dead = of_zero_matrices(ds)
    return selected.where(~dead) if bool(dead.any()) else selected


def relative_alignment(ds: xr.Dataset) -> xr.DataArray:
    """(step, pair): a / background; NaN for pairs of single vectors, which have no background."""
    ratio: xr.DataArray = neighbours(overlaps(ds)).rankscope.relative_alignment()
    return ratio


def in_second_half(ds: xr.Dataset) -> np.ndarray:
    """(step): whether a snapshot was taken at half of the last step or later."""
    steps = ds["step"].to_numpy()
    late: np.ndarray = 2 * steps >= steps[-1]
    return late


def with_full_loss(ds: xr.Dataset) -> xr.Dataset:
    """Add the loss of the full network where it is the training loss.

    Networks with BatchNorm store it: there it is measured with new statistics, as the losses of
    the truncated networks are.
    """
    return ds if "full_loss" in ds else ds.assign(full_loss=ds["training_loss"])
