"""Claim Y7 of yunis2024: networks still train at high weight decay (figure 6)."""

from collections.abc import Callable, Iterator

import xarray as xr

from rankscope.lab.claims.base_runs import nothing_to_judge, with_decays
from rankscope.lab.experiment import Results
from rankscope.lab.reading import BASE, collapsed, decays, diverged
from rankscope.lab.verdict import Cell, Outcome, Table, Verdict, judge

TRAINS = 0.5
COLLAPSES = 0.1  # the decay at which the VGG does
SENTENCE = "high decay still trains, but for the VGG, which collapses at 0.1"
REASON = (
    "a second rule, made when runs at scale small had been seen: a loss that starts far above that "
    "of a constant predictor halves also if the network collapses to one, and by Y7 that is "
    "training"
)
COLUMNS = ("network", "seed", "decay", "initial loss", "final loss", "constant's", "collapsed")


def high_decay_trains(results: Results) -> Verdict:
    """Y7. High decay still trains, but for the VGG, which collapses at 0.1.

    Yes: the final training loss at the largest decay that was run is <= half of the initial one,
    for all but the VGG; the VGG's run at 0.1 collapsed. A run that diverged has no final loss and
    does not meet it; of the VGG it cannot tell, since divergence is no collapse. A VGG that was not
    run at 0.1 is not judged. A collapsed network may meet the rule: see Y7-uncollapsed.
    """
    return _judge("Y7", f"<= {TRAINS:g}; vgg: collapsed", results, halves)


def high_decay_trains_without_collapse(results: Results) -> Verdict:
    """Y7-uncollapsed, a second rule: Y7 with a network that collapsed counted as not trained.

    Yes: at the largest decay the run did not collapse and its final training loss is <= half of the
    initial one, for all but the VGG; the VGG as in Y7. The reason: a loss may start far above that
    of a constant predictor (at scale small the UNet's at 4 or 5, where an output of 0 has 1, CTC's
    at 11, where it is 3.3), and then weights that decay to nothing halve it.
    """
    bound = f"<= {TRAINS:g} and not collapsed; vgg: collapsed"
    return _judge("Y7-uncollapsed", bound, results, halves_uncollapsed, evidence=[REASON])


def halves(ds: xr.Dataset) -> bool:
    """Whether the training loss ends at half of the initial one or below."""
    return not diverged(ds) and bool(ds["training_loss"][-1] <= TRAINS * ds["training_loss"][0])


def halves_uncollapsed(ds: xr.Dataset) -> bool:
    return not collapsed(ds) and halves(ds)


def collapses(ds: xr.Dataset) -> bool | None:
    """None of a run that diverged, which is no collapse."""
    return None if diverged(ds) else bool(collapsed(ds))


def _judge(
    claim: str,
    bound: str,
    results: Results,
    trains: Callable[[xr.Dataset], bool],
    *,
    evidence: list[str] | None = None,
) -> Verdict:
    outcomes: dict[str, dict[int, Outcome]] = {}
    rows: list[tuple[Cell, ...]] = []
    said = list(evidence or [])
    for network in with_decays(results):
        found = decays(results, network)
        decay = COLLAPSES if network == "vgg" else max(found)
        if decay not in found:
            said.append(f"{network} was not run at decay {decay:g}, and is not judged")
        for seed, ds in found.get(decay, {}).items():
            first, last = float(ds["training_loss"][0]), float(ds["training_loss"][-1])
            met = collapses(ds) if network == "vgg" else trains(ds)
            outcomes.setdefault(network, {})[seed] = (last / first, met)
            constant, why = ds.attrs["constant_loss"], collapsed(ds)
            rows.append((network, seed, f"{decay:g}", first, last, constant, why or "-"))
            said += _remarks(f"{network} at decay {decay:g}, seed {seed}", ds, met)
    if not outcomes:
        return nothing_to_judge(claim, SENTENCE, BASE, bound)
    return judge(
        claim,
        SENTENCE,
        outcomes,
        bound=bound,
        quantity="final over initial training loss at the largest decay, all but the VGG",
        evidence=said,
        tables=[Table(COLUMNS, tuple(rows), "training loss at the largest decay")],
        apart=("vgg",),
    )


def _remarks(run: str, ds: xr.Dataset, met: bool | None) -> Iterator[str]:
    """A sentence on a run that diverged or collapsed."""
    if why := diverged(ds):
        yield f"{run} {why}" + (", which is no collapse: it cannot tell" if met is None else "")
    elif why := collapsed(ds):
        yield f"{run} collapsed: {why}"
