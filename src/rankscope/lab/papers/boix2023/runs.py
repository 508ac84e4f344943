"""Stored runs of this paper: networks, and the attention heads of vision transformers.

Blocks and heads are counted from 1, in the order of the network.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr

from rankscope.lab.judging.selected_runs import Runs, Seeds
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.training.rates import Constant, Cosine, RateSchedule

Kind = Literal["kq", "vo"]

KINDS: dict[Kind, str] = {"kq": "K-Q", "vo": "V-O"}
SETTLED = 1e-3  # a training loss below it has settled
BEGUN = 2.5e-3  # sum of learning rates from which on the rank of the change is followed
INITIAL = "product_singular_values"
CHANGE = "product_change_singular_values"
SCHEDULES: dict[str, Callable[..., RateSchedule]] = {
    schedule.__name__: schedule for schedule in (Constant, Cosine)
}


# Networks as they are written for people, by experiment ("" where it holds in all) and network.
TITLES = {
    ("", "teacher-1"): "head, teacher 1",
    ("", "teacher-0.5"): "head, teacher 1/2",
    ("", "alike"): "Transformer, alike heads",
    ("", "bases"): "Transformer, own bases",
    ("", "aligned"): "aligned teacher",
    ("", "gaussian"): "Gaussian teacher",
    ("", "aligned-1e-4"): "aligned 1e-4",
    ("", "gaussian-1e-8"): "Gaussian 1e-8",
    ("", "gaussian-1e-32"): "Gaussian 1e-32",
    ("", "depth-12"): "ViT, depth 12",
    ("", "depth-3"): "ViT, depth 3",
    ("", "narrow"): "ViT, half as wide",
    ("", "augmented"): "ViT, augmented images",
    ("boix2023/vit-cifar10", "vit"): "ViT, CIFAR-10",
    ("boix2023/vit-cifar100", "vit"): "ViT, CIFAR-100",
    ("boix2023/vit-imagenet", "vit"): "ViT, ImageNet",
}


def by_network(runs: Runs) -> dict[RunKey, Runs]:
    """Return the runs of each network, by a key that names experiment and network alone.

    Networks of two experiments may have the same name.
    """
    entries: dict[RunKey, dict[RunKey, Seeds]] = {}
    for key in runs:
        network = RunKey(key.network, experiment=key.experiment)
        entries.setdefault(network, {})[key] = runs[key]
    return {network: Runs(of_network) for network, of_network in entries.items()}


def products_of(ds: xr.Dataset, kind: Kind) -> xr.Dataset:
    """Return the spectra of the products of one kind, and of their changes."""
    positions = np.flatnonzero(ds["product_kind"].to_numpy() == kind)
    if not len(positions):
        raise ValueError(f"this run has no products of kind {kind!r}; expected some of every head")
    return ds[[INITIAL, CHANGE]].isel(product=positions)


def by_head(values: xr.DataArray) -> xr.DataArray:
    """Return values of products of one kind with the dimensions block and head for product.

    "blocks.2.attention.h0.kq" is head 1 of block 3 if it is in the third attention.
    """
    names = [str(name) for name in values["product"].to_numpy()]
    blocks = len({name.rsplit(".", 2)[0] for name in names})
    heads = len(names) // blocks
    plain = values.reset_coords(drop=True).drop_vars("product")
    apart = plain.coarsen(product=heads).construct(product=("block", "head"))
    return apart.assign_coords(block=np.arange(1, blocks + 1), head=np.arange(1, heads + 1))


def spectra(ds: xr.Dataset, kind: Kind, *, of: str) -> xr.DataArray:
    """Return singular values (step, block, head, k) of every head's product, or of its change.

    of: INITIAL or CHANGE.
    """
    return by_head(products_of(ds, kind)[of]).transpose("step", "block", "head", "k")


def change_ranks(ds: xr.Dataset, kind: Kind) -> xr.DataArray:
    """Return the stable rank (step, block, head) of the change since step 0; NaN at step 0."""
    return _of_change(ds, products_of(ds, kind).rankscope.stable_rank(of=CHANGE))


def change_effective_ranks(ds: xr.Dataset, kind: Kind) -> xr.DataArray:
    """Return the effective rank (step, block, head) of the change since step 0; NaN at step 0."""
    return _of_change(ds, products_of(ds, kind).rankscope.effective_rank(of=CHANGE))


def _of_change(ds: xr.Dataset, ranks: xr.DataArray) -> xr.DataArray:
    return by_head(ranks).where(ds["step"] > 0).transpose("step", "block", "head")


def initial_ranks(ds: xr.Dataset, kind: Kind) -> xr.DataArray:
    """Return the stable rank (block, head) of the product at the first snapshot."""
    ranks = products_of(ds.isel(step=[0]), kind).rankscope.stable_rank(of=INITIAL)
    return by_head(ranks).isel(step=0).transpose("block", "head")


class Window(NamedTuple):
    """Snapshots from `first` to `last`, positions along step; none if last < first.

    settled: whether the window ends because the training loss is below SETTLED there.
    """

    first: int
    last: int
    settled: bool

    @property
    def snapshots(self) -> int:
        return max(self.last - self.first + 1, 0)


def growth_window(ds: xr.Dataset) -> Window:
    """Return the window from epoch 1 to the first snapshot with a settled loss, or to the end.

    If snapshots are not scheduled by epochs, it begins at the first one after step 0.
    """
    steps = ds["step"].to_numpy()
    settled = np.flatnonzero(ds["training_loss"].to_numpy() < SETTLED)
    first = int(np.searchsorted(steps, epoch_steps(ds) or 1))
    return Window(first, int(settled[0]) if len(settled) else len(steps) - 1, len(settled) > 0)


def growth_start(ds: xr.Dataset) -> int | None:
    """Return the position of the first snapshot at which the learning rates sum to BEGUN.

    The change of a product dips in rank before. None if there is no such snapshot.
    """
    begun = np.flatnonzero(learning_rate_sums(ds) >= BEGUN)
    return int(begun[0]) if len(begun) else None


def learning_rate_sums(ds: xr.Dataset) -> np.ndarray:
    """Return, for each snapshot, the sum of the scheduled learning rates of the steps before it."""
    steps, declared = ds["step"].to_numpy(), dict(_declared(ds, "rate"))
    schedule = SCHEDULES[declared.pop("class")](**declared)
    factors = [schedule(step) for step in range(int(steps[-1]))]
    sums: np.ndarray = np.concatenate([[0.0], np.cumsum(factors)])[steps]
    return float(_declared(ds, "optimizer")["rate"]) * sums


def epoch_steps(ds: xr.Dataset) -> int | None:
    """Return the declared steps of one epoch; None if snapshots are not scheduled by epochs."""
    steps: int | None = _declared(ds, "snapshots").get("steps_per_epoch")
    return steps


def times(ds: xr.Dataset) -> np.ndarray:
    """Return the epoch of each snapshot, or its step if epochs are not declared."""
    steps: np.ndarray = ds["step"].to_numpy()
    return steps / (epoch_steps(ds) or 1)


def time_unit(ds: xr.Dataset) -> str:
    """Return the unit of `times`: "epoch" or "step"."""
    return "epoch" if epoch_steps(ds) else "step"


def moment(ds: xr.Dataset, position: int) -> str:
    """Return the time of a snapshot in words: "epoch 12"."""
    return f"{time_unit(ds)} {times(ds)[position]:.4g}"


def stop_of(ds: xr.Dataset) -> str:
    """Return when and why training ended before its last step; "" if it did not."""
    stopped_at = ds.attrs.get("stopped_at")
    if stopped_at is None:
        return ""
    unit, length, stop = time_unit(ds), epoch_steps(ds) or 1, _declared(ds, "stop")
    after = f"{stop['steps'] / length:.4g} {unit}s or more after one with"
    return (
        f"stopped at {unit} {stopped_at / length:.4g}, at the first snapshot {after} training "
        f"loss < {stop['loss']:g}"
    )


def _declared(ds: xr.Dataset, field: str) -> dict[str, Any]:
    """Return one field of the run's declaration; {} if there is none."""
    return (ds.attrs.get("declaration") or {}).get(field) or {}
