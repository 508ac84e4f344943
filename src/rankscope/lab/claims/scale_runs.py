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

    columns: of a row of `Seen.blocks`, after the block. evidence: stands before that of the runs.
    """

    claim: str
    sentence: str
    bound: str
    quantity: str
    part: str
    columns: tuple[str, ...]
    title: str
    evidence: tuple[str, ...] = ()


class Seen(NamedTuple):
    """What one run says of one kind of product: a row for each block, and what was counted.

    left_out: the run collapsed.
    """

    outcome: Outcome
    blocks: tuple[tuple[Cell, ...], ...] = ()
    counted: Tally | None = None
    remarks: tuple[str, ...] = ()
    left_out: bool = False


def share_of_all(tally: Tally, least: float) -> Outcome:
    """The share of all that is known to meet the bound, and whether it is `least` or more.

    Those that cannot tell may be either: None where it depends on them.
    """
    if not tally.counted:
        return None, None
    met, unknown = len(tally.counted) - len(tally.exceptions), len(tally.unknown)
    every = len(tally.counted) + unknown
    if met / every >= least:
        return met / every, True
    possible = (met + unknown) / every >= least
    return met / every, None if possible else False


def judge_each(rule: Rule, results: Results, see: Callable[[xr.Dataset, Kind], Seen]) -> Verdict:
    """Every run and kind of product a network of its own; a collapsed seed cannot tell.

    Networks of which every seed collapsed take no part in the verdict, and are shown.
    """
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
    """What the run says; of one that collapsed only the rows. Its remarks begin with its name."""
    seen, reason = see(ds, kind), collapsed(ds)
    if reason:
        seen = Seen((None, None), seen.blocks, remarks=(f"is left out: {reason}",), left_out=True)
    remarks = (stop_of(ds), *seen.remarks)
    return seen._replace(remarks=tuple(f"{name}, seed {seed} {line}" for line in remarks if line))


def judge_seen(rule: Rule, found: Mapping[str, Mapping[int, Seen]]) -> Verdict:
    """The verdict on network -> seed -> what is seen there."""
    if not found:
        reason = "speaks of runs at some initial scale, of which there is none"
        return undecided(rule.claim, rule.sentence, reason, bound=rule.bound)
    every = [(name, seed, seen) for name, of in found.items() for seed, seen in of.items()]
    rows = [
        (name + " (collapsed)" * seen.left_out, seed, *row)
        for name, seed, seen in every
        for row in seen.blocks or [("-", *[None] * len(rule.columns))]
    ]
    tallies = [
        SeedTally(name, seed, rule.part, seen.counted) for name, seed, seen in every if seen.counted
    ]
    # If all collapsed, all are judged, and cannot tell.
    judged = {
        name: of for name, of in found.items() if not all(seen.left_out for seen in of.values())
    } or found
    return judge(
        rule.claim,
        rule.sentence,
        {name: {seed: seen.outcome for seed, seen in of.items()} for name, of in judged.items()},
        bound=rule.bound,
        quantity=rule.quantity,
        # both kinds of product say the same of their run
        evidence=dict.fromkeys(
            (*rule.evidence, *(line for _, _, seen in every for line in seen.remarks))
        ),
        tables=[
            Table(("network", "seed", "block", *rule.columns), tuple(rows), rule.title),
            *full_list(tallies),
        ],
    )
