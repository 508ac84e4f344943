"""How far the Transformer lies above the other networks, as both rules of Y5 ask."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rankscope.lab.papers.yunis2024.runs import Sweep

TRANSFORMER = "lm"


class Lead(NamedTuple):
    """Median of one seed of the Transformer less the largest one of the other networks.

    lead: None if the Transformer's median or all others are unknown.
    complete: every other network has a median at this seed.
    """

    sweep: Sweep
    lead: float | None
    others: str
    complete: bool


def transformer_leads(
    all_sweeps: list[Sweep], median: Callable[[Sweep], float | None]
) -> Iterator[Lead]:
    """Compare each seed of the Transformer with the same seed of the other networks."""
    medians = {(sweep.base.network, sweep.seed): median(sweep) for sweep in all_sweeps}
    others = list(dict.fromkeys(network for network, _ in medians if network != TRANSFORMER))
    for sweep in all_sweeps:
        if sweep.base.network != TRANSFORMER or not others:
            continue
        own = medians[TRANSFORMER, sweep.seed]
        rest = [medians.get((network, sweep.seed)) for network in others]
        known = [value for value in rest if value is not None]
        lead = own - max(known) if own is not None and known else None
        yield Lead(sweep, lead, ", ".join(others), len(known) == len(rest))
