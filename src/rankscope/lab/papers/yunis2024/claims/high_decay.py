"""Claim Y7 of yunis2024: networks still train at high weight decay (figure 6)."""

from collections.abc import Collection, Iterator, Sequence

import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.verdict import Cell
from rankscope.lab.papers.yunis2024.runs import collapse_remark, decay_of, decay_sweeps
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.training.outcome import collapsed, diverged

KEPT = 0.5  # of the gain at decay 0
STAYS = 0.98  # of a constant predictor's loss
TRAINS = 0.5
COLLAPSING = "vgg"
COLLAPSES = 0.1  # the decay at which it does


def highest_decays(keys: Sequence[RunKey]) -> Collection[RunKey]:
    """Need the run at the largest decay of every network, and the VGG's at 0.1 if declared."""
    highest: dict[str, RunKey] = {}
    for key in sorted(decay_sweeps(keys), key=decay_of):
        if key.network != COLLAPSING or decay_of(key) == COLLAPSES:
            highest[key.network] = key
    return [key for key in keys if key in highest.values()]


def highest_decays_and_none(keys: Sequence[RunKey]) -> Collection[RunKey]:
    """Need the runs of `highest_decays`, and those at decay 0 to compare them with."""
    highest = highest_decays(keys)
    compared = {key.network for key in highest} - {COLLAPSING}
    return [
        key
        for key in keys
        if key in highest or (key.network in compared and key.variant.get("decay") == 0)
    ]


def measure(runs: Runs) -> Iterator[Measured]:
    """A seed meets the bound if training at the largest declared decay gains half of that at 0.

    The gain is L_const - L_end: the loss of a constant predictor less the last training loss. A run
    that diverged does not meet it. Without decay 0, or if that collapsed, the seed cannot tell.
    The VGG meets the bound if its run at 0.1 ends at 0.98 L_const or above; if it diverged it
    cannot tell, since divergence is no collapse.
    """
    for key in (key for key in highest_decays(list(runs)) if decay_of(key) > 0):
        for seed, ds in runs[key].items():
            constant, last = ds.attrs["constant_loss"], float(ds["training_loss"][-1])
            row: dict[str, Cell] = {
                "decay": f"{decay_of(key):g}",
                "final loss": last,
                "constant's": constant,
                "collapsed": collapsed(ds) or "-",
            }
            met: bool | None
            if exempt := key.network == COLLAPSING:
                value: float | None = last / constant
                met = None if diverged(ds) else last >= STAYS * constant
            else:
                at_zero = runs.of(key.network).by("decay").get(0.0)
                value = _kept_gain(ds, at_zero[seed]) if at_zero else None
                met = None if value is None else not diverged(ds) and value >= KEPT
            yield Measured(
                value,
                met,
                (row,),
                remarks=tuple(_remarks(key, seed, ds, met)),
                quantity=f"final loss at decay {COLLAPSES:g} over a constant predictor's, >= "
                f"{STAYS:g}"
                if exempt
                else "",
            ).at(key, seed)


def _kept_gain(ds: xr.Dataset, without_decay: xr.Dataset) -> float | None:
    """Return what training gains over what it gains at decay 0; None if that run collapsed."""
    if collapsed(without_decay):
        return None
    gain, at_zero = (
        run.attrs["constant_loss"] - float(run["training_loss"][-1]) for run in (ds, without_decay)
    )
    return float(gain / at_zero)


def measure_first(runs: Runs) -> Iterator[Measured]:
    """A seed meets the bound if its training loss at the largest declared decay halves.

    A run that diverged does not meet it. The VGG meets it if its run at 0.1 collapsed; a VGG that
    diverged cannot tell, since divergence is no collapse. A collapsed network can meet this rule.
    """
    for key in runs:
        for seed, ds in runs[key].items():
            first, last = ds["training_loss"].to_numpy()[[0, -1]].tolist()
            met: bool | None = halves(ds)
            if exempt := key.network == COLLAPSING:
                met = None if diverged(ds) else bool(collapsed(ds))
            row: dict[str, Cell] = {
                "decay": f"{decay_of(key):g}",
                "initial loss": first,
                "final loss": last,
                "constant's": ds.attrs["constant_loss"],
                "collapsed": collapsed(ds) or "-",
            }
            yield Measured(
                last / first,
                met,
                (row,),
                remarks=tuple(_remarks(key, seed, ds, met)),
                quantity="final over initial training loss at decay 0.1, where it should collapse"
                if exempt
                else "",
            ).at(key, seed)


def _remarks(key: RunKey, seed: int, ds: xr.Dataset, met: bool | None) -> Iterator[str]:
    """Yield a remark on a run that diverged or collapsed."""
    if reason := diverged(ds):
        cannot_tell = ", which is no collapse: it cannot tell" if met is None else ""
        yield f"{key.title}, seed {seed} {reason}{cannot_tell}"
    elif reason := collapsed(ds):
        yield collapse_remark(key, seed, reason)


def halves(ds: xr.Dataset) -> bool:
    """Whether the training loss ends at half of the initial one or below."""
    return not diverged(ds) and bool(ds["training_loss"][-1] <= TRAINS * ds["training_loss"][0])


Y7 = Rule(
    claim="Y7",
    sentence="networks still train at high decay, except the VGG",
    quantity="what training gains at the largest decay, over what it gains at decay 0",
    bound=f">= {KEPT:g}; vgg: no gain at decay {COLLAPSES:g}",
    measure=measure,
    needs=highest_decays_and_none,
    table="training loss at the largest decay",
    changed=True,
    reason="The first rule compares with the initial loss. A network that collapses to a constant "
    "predictor can halve that.",
)
Y7_FIRST = Rule(
    claim="Y7-first",
    headline="Y7",
    sentence=Y7.sentence,
    quantity="final over initial training loss at the largest decay",
    bound=f"<= {TRAINS:g}; vgg: collapsed",
    measure=measure_first,
    needs=highest_decays,
    table="training loss at the largest decay",
)
