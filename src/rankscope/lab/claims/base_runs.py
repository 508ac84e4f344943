"""What claims on training at the decay of figures 1-3 share: they look at each such run alone."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import xarray as xr

from rankscope.lab.claims.tally import SeedTally, Tally, full_list
from rankscope.lab.experiment import Results
from rankscope.lab.reading import BASE, base, base_decay, collapsed, decays
from rankscope.lab.verdict import Cell, Outcome, Table, Verdict, judge, undecided


class Seen(NamedTuple):
    """What one run says, its row of evidence, and what was counted for which part of the rule."""

    outcome: Outcome
    row: tuple[Cell, ...]
    counted: tuple[tuple[str, Tally], ...] = ()


@dataclass(frozen=True)
class Rule:
    """What is said of every run of some networks. `columns` name the cells of `Seen.row`."""

    claim: str
    sentence: str
    bound: str
    quantity: str
    columns: tuple[str, ...]
    title: str
    networks: Collection[str] = tuple(BASE)
    evidence: tuple[str, ...] = ()


def judge_base_runs(
    rule: Rule, results: Results, see: Callable[[xr.Dataset], Seen | None]
) -> Verdict:
    """The verdict on the networks there are; a collapsed run cannot tell, and is named.

    `see` returns None of a run that the claim does not speak of.
    """
    outcomes: dict[str, dict[int, Outcome]] = {}
    rows: list[tuple[Cell, ...]] = []
    tallies: list[SeedTally] = []
    evidence = list(rule.evidence)
    for network in with_decays(results, rule.networks):
        evidence += nearest_decay(results, network)
        for seed, ds in base(results, network).items():
            reason = collapsed(ds)
            seen = Seen((None, None), ()) if reason else see(ds)
            if seen is None:
                continue
            outcomes.setdefault(network, {})[seed] = seen.outcome
            rows += [(network, seed, *seen.row)] if seen.row else []
            tallies += [SeedTally(network, seed, part, each) for part, each in seen.counted]
            evidence += [f"{network}, seed {seed} collapsed: {reason}"] if reason else []
    if not outcomes:
        return nothing_to_judge(rule.claim, rule.sentence, rule.networks, rule.bound)
    return judge(
        rule.claim,
        rule.sentence,
        outcomes,
        bound=rule.bound,
        quantity=rule.quantity,
        evidence=evidence,
        tables=[
            Table(("network", "seed", *rule.columns), tuple(rows), rule.title),
            *full_list(tallies),
        ],
    )


def with_decays(results: Results, among: Collection[str] = tuple(BASE)) -> list[str]:
    """Which of the networks have runs that are named by their decay, in the order of `among`."""
    return [network for network in among if decays(results, network)]


def nearest_decay(results: Results, network: str) -> Iterator[str]:
    """A sentence where the decay of figures 1-3 was not run."""
    nearest, wanted = base_decay(results, network), BASE[network]
    if nearest != wanted:
        yield f"{network} at decay {nearest:g}, the nearest there is to {wanted:g}"


def nothing_to_judge(claim: str, sentence: str, networks: Collection[str], bound: str) -> Verdict:
    """Undecided, since no run is there that the claim speaks of."""
    reason = f"speaks of {', '.join(networks)}, of which no seed has all runs that it reads"
    return undecided(claim, sentence, reason, bound=bound)
