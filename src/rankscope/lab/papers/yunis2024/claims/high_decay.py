"""Claim Y7 of yunis2024: networks still train at high weight decay (figure 6)."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

import xarray as xr

from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.verdict import Cell
from rankscope.lab.papers.yunis2024.runs import collapse_remark, decay_of, decay_sweeps
from rankscope.lab.running.run_key import RunKey
from rankscope.lab.training.outcome import collapsed, diverged

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


def measure(runs: Runs) -> Iterator[Measured]:
    """A seed meets the bound if its training loss at the largest declared decay halves.

    A run that diverged does not meet it. The VGG meets it if its run at 0.1 collapsed; a VGG that
    diverged cannot tell, since divergence is no collapse. A collapsed network can meet this rule:
    see Y7-uncollapsed.
    """
    return _measure(runs, halves)


def measure_uncollapsed(runs: Runs) -> Iterator[Measured]:
    """A seed meets the bound if its training loss halves and the run did not collapse.

    The VGG is judged as in Y7. A loss may start far above that of a constant predictor, as the
    UNet's and the LSTM's do at scale small. Weights that decay to nothing then halve it.
    """
    return _measure(runs, lambda ds: halves(ds) and not collapsed(ds))


def _measure(runs: Runs, trains: Callable[[xr.Dataset], bool]) -> Iterator[Measured]:
    for key in runs:
        for seed, ds in runs[key].items():
            first, last = ds["training_loss"].to_numpy()[[0, -1]].tolist()
            met: bool | None = trains(ds)
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
    quantity="final over initial training loss at the largest decay",
    bound=f"<= {TRAINS:g}; vgg: collapsed",
    measure=measure,
    needs=highest_decays,
    table="training loss at the largest decay",
)
Y7_UNCOLLAPSED = replace(
    Y7,
    claim="Y7-uncollapsed",
    headline="Y7",
    bound=f"<= {TRAINS:g} and not collapsed; vgg: collapsed",
    measure=measure_uncollapsed,
    reason="We made this second rule after seeing runs at scale small. A loss that starts far "
    "above that of a constant predictor also halves if the network collapses to one, and Y7 counts "
    "that as training.",
)
