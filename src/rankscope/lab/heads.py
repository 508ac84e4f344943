"""What claims and figures on vision transformers read from stored trainings (boix2023, section 5).

Runs are named `<network>/scale-<initial scale>`. Blocks and heads are counted from 1, in the order
of the network.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr

import rankscope.accessor  # noqa: F401  (registers ds.rankscope)
from rankscope.lab.experiment import Results
from rankscope.lab.reading import Seeds, network, variant

Kind = Literal["kq", "vo"]

KINDS: dict[Kind, str] = {"kq": "K-Q", "vo": "V-O"}
PREFIX = "scale-"
SETTLED = 1e-3  # the training loss until which B7 looks, and after which B8-settled does
INITIAL = "product_singular_values"
CHANGE = "product_change_singular_values"


def scale_runs(results: Results) -> list[str]:
    """The names of the runs that are named by their initial scale."""
    return [name for name in results if variant(name).startswith(PREFIX)]


def networks(results: Results) -> list[str]:
    """The networks that have such runs."""
    return list(dict.fromkeys(network(name) for name in scale_runs(results)))


def scales(results: Results, of: str) -> dict[float, Seeds]:
    """The runs of one network by their initial scale, ascending."""
    found = {scale_of(name): results[name] for name in scale_runs(results) if network(name) == of}
    return dict(sorted(found.items()))


def scale_of(name: str) -> float:
    """0.1 of "vit/scale-0.1"."""
    return float(variant(name).removeprefix(PREFIX))


def products_of(ds: xr.Dataset, kind: Kind) -> xr.Dataset:
    """The spectra of the products of one kind, and of their changes."""
    chosen = np.flatnonzero(ds["product_kind"].to_numpy() == kind)
    if not len(chosen):
        raise ValueError(f"this run has no products of kind {kind!r}; expected some of every head")
    return ds[[INITIAL, CHANGE]].isel(product=chosen)


def by_head(values: xr.DataArray) -> xr.DataArray:
    """What has a dimension product, of one kind, with the dimensions block and head instead.

    "blocks.2.attention.h0.kq" is of block 3 if it is the third attention, and of head 1.
    """
    names = [str(name) for name in values["product"].to_numpy()]
    blocks = len({name.rsplit(".", 2)[0] for name in names})
    heads = len(names) // blocks
    plain = values.reset_coords(drop=True).drop_vars("product")
    apart = plain.coarsen(product=heads).construct(product=("block", "head"))
    return apart.assign_coords(block=np.arange(1, blocks + 1), head=np.arange(1, heads + 1))


def spectra(ds: xr.Dataset, kind: Kind, *, of: str) -> xr.DataArray:
    """Singular values (step, block, head, k) of every head's product, or of its change."""
    return by_head(products_of(ds, kind)[of]).transpose("step", "block", "head", "k")


def change_ranks(ds: xr.Dataset, kind: Kind) -> xr.DataArray:
    """Stable rank (step, block, head) of the change since step 0, where there is none yet."""
    ranks = products_of(ds, kind).rankscope.stable_rank(of=CHANGE)
    return by_head(ranks).where(ds["step"] > 0).transpose("step", "block", "head")


def initial_ranks(ds: xr.Dataset, kind: Kind) -> xr.DataArray:
    """Stable rank (block, head) of the product at the first snapshot."""
    ranks = products_of(ds.isel(step=[0]), kind).rankscope.stable_rank(of=INITIAL)
    return by_head(ranks).isel(step=0).transpose("block", "head")


class Window(NamedTuple):
    """Snapshots from `first` to `last`, positions along step; none if last < first.

    settled: whether it ends because the training loss lay below SETTLED there.
    """

    first: int
    last: int
    settled: bool

    @property
    def snapshots(self) -> int:
        return max(self.last - self.first + 1, 0)


def growth_window(ds: xr.Dataset) -> Window:
    """From epoch 1 to the first snapshot with a training loss below SETTLED, or to the end.

    Where snapshots are not scheduled by epochs, from the first one after step 0.
    """
    steps = ds["step"].to_numpy()
    settled = np.flatnonzero(ds["training_loss"].to_numpy() < SETTLED)
    first = int(np.searchsorted(steps, epoch_steps(ds) or 1))
    return Window(first, int(settled[0]) if len(settled) else len(steps) - 1, len(settled) > 0)


def settled_position(ds: xr.Dataset, *, wait: int) -> int:
    """Of the first snapshot `wait` steps or more after the loss settled; the last if none is."""
    steps, window = ds["step"].to_numpy(), growth_window(ds)
    wanted = steps[window.last] + wait if window.settled else np.inf
    return min(int(np.searchsorted(steps, wanted)), len(steps) - 1)


def epoch_steps(ds: xr.Dataset) -> int | None:
    """The steps of one epoch as the snapshots were declared; None if they were not by epochs."""
    steps: int | None = _declared(ds, "snapshots").get("steps_per_epoch")
    return steps


def times(ds: xr.Dataset) -> np.ndarray:
    """The epoch of each snapshot, or its step where epochs are not declared."""
    steps: np.ndarray = ds["step"].to_numpy()
    return steps / (epoch_steps(ds) or 1)


def time_unit(ds: xr.Dataset) -> str:
    """What `times` counts."""
    return "epoch" if epoch_steps(ds) else "step"


def moment(ds: xr.Dataset, position: int) -> str:
    """ "epoch 12" of a snapshot."""
    return f"{time_unit(ds)} {times(ds)[position]:.4g}"


def stop_steps(ds: xr.Dataset) -> int:
    """How long the run was to go on after its loss settled; 0 if it was to train to the end."""
    steps: int = _declared(ds, "stop").get("steps", 0)
    return steps


def stop_of(ds: xr.Dataset) -> str:
    """When and why training ended before its last step; "" if it did not."""
    at = ds.attrs.get("stopped_at")
    if at is None:
        return ""
    unit, length = time_unit(ds), epoch_steps(ds) or 1
    said = f"stopped at {unit} {at / length:.4g}"
    stop = _declared(ds, "stop")
    if not stop:
        return said
    after = f"{stop['steps'] / length:.4g} {unit}s or more after one with"
    return f"{said}, at the first snapshot {after} training loss < {stop['loss']:g}"


def _declared(ds: xr.Dataset, field: str) -> dict[str, Any]:
    """One field of the run's declaration; {} if there is none."""
    return (ds.attrs.get("declaration") or {}).get(field) or {}
