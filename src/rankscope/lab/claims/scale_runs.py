"""What claims on the products of attention heads share: runs by initial scale, judged by block."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import xarray as xr

from rankscope.lab.claims.tally import SeedTally, Tally, full_list
from rankscope.lab.experiment import Results
from rankscope.lab.heads import KINDS, Kind, scale_runs, stop_of
from rankscope.lab.reading import collapsed
from rankscope.lab.verdict import Cell, Outcome, Table, Verdict, judge, undecided


@dataclass(frozen=True)
class Rule:
    """What is said of every run. part: what it is of a block or head, where it is an exception.

    columns: of a row of `Seen.blocks`, after the block.
    """

    claim: str
    sentence: str
    bound: str
    quantity: str
    part: str
    columns: tuple[str, ...]
    title: str


class Seen(NamedTuple):
    """What one run says of one kind of product: a row for each block, and what was counted."""

    outcome: Outcome
    blocks: tuple[tuple[Cell, ...], ...] = ()
    counted: Tally | None = None
    remarks: tuple[str, ...] = ()


def judge_each(rule: Rule, results: Results, see: Callable[[xr.Dataset, Kind], Seen]) -> Verdict:
    """Every run and kind of product a network of its own; a collapsed run cannot tell."""
    found = {
        f"{name}, {shown}": {
            seed: _see_run(see, kind, name, seed, ds) for seed, ds in results[name].items()
        }
        for name in scale_runs(results)
        for kind, shown in KINDS.items()
    }
    return judge_seen(rule, found)


def _see_run(
    see: Callable[[xr.Dataset, Kind], Seen], kind: Kind, name: str, seed: int, ds: xr.Dataset
) -> Seen:
    """What the run says, unless it collapsed; its remarks begin with its name."""
    reason = collapsed(ds)
    seen = Seen((None, None)) if reason else see(ds, kind)
    remarks = (f"is left out: {reason}" if reason else "", stop_of(ds), *seen.remarks)
    named = tuple(f"{name}, seed {seed} {remark}" for remark in remarks if remark)
    return seen._replace(remarks=named)


def judge_seen(rule: Rule, found: Mapping[str, Mapping[int, Seen]]) -> Verdict:
    """The verdict on network -> seed -> what is seen there."""
    if not found:
        reason = "speaks of runs at some initial scale, of which there is none"
        return undecided(rule.claim, rule.sentence, reason, bound=rule.bound)
    every = [(name, seed, seen) for name, of in found.items() for seed, seen in of.items()]
    rows = [(name, seed, *row) for name, seed, seen in every for row in seen.blocks]
    tallies = [
        SeedTally(name, seed, rule.part, seen.counted) for name, seed, seen in every if seen.counted
    ]
    return judge(
        rule.claim,
        rule.sentence,
        {name: {seed: seen.outcome for seed, seen in of.items()} for name, of in found.items()},
        bound=rule.bound,
        quantity=rule.quantity,
        # both kinds of product say the same of their run
        evidence=dict.fromkeys(line for _, _, seen in every for line in seen.remarks),
        tables=[
            Table(("network", "seed", "block", *rule.columns), tuple(rows), rule.title),
            *full_list(tallies),
        ],
    )
