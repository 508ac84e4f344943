"""What the runs say about a claim: yes, no or undecided, by one rule that was fixed before any run.

The unit is the seed. Whatever a claim measures is summarised within a seed to one value and to
whether that meets the bound; the verdict follows from these alone.
"""

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any, Literal, SupportsFloat

import numpy as np

Holds = Literal["yes", "no", "undecided"]

LEAST_SEEDS = 3

# What stands in a table of evidence.
Cell = str | float | int | bool | None

# A seed's value, and whether it meets the bound; None where the seed cannot tell.
Outcome = tuple[SupportsFloat | None, bool | np.bool_ | None]


def decide(outcomes: Sequence[bool | None]) -> Holds:
    """Yes if the bound is met in all of at least 3 seeds, no if in none; otherwise undecided.

    A seed that cannot tell (None) stands against both.
    """
    if len(outcomes) < LEAST_SEEDS:
        return "undecided"
    if all(met is not None and met for met in outcomes):
        return "yes"
    if all(met is not None and not met for met in outcomes):
        return "no"
    return "undecided"


def overall(networks: Sequence[Holds]) -> Holds:
    """Yes if it holds for all networks, no if it fails for one; otherwise, or of none, undecided.

    The claims speak of every network, so one that says no settles it.
    """
    if "no" in networks:
        return "no"
    return "yes" if networks and set(networks) == {"yes"} else "undecided"


@dataclass(frozen=True)
class SeedOutcome:
    """What one seed says; `value` is None if there is none or it is not finite."""

    seed: int
    value: float | None
    met: bool | None


@dataclass(frozen=True)
class NetworkVerdict:
    """What the seeds of one network say. `value` is their median, `interval` their range."""

    network: str
    holds: Holds
    value: float | None
    interval: tuple[float, float] | None
    seeds: tuple[SeedOutcome, ...]


@dataclass(frozen=True)
class Table:
    """Evidence in rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""


@dataclass(frozen=True)
class Verdict:
    """One claim, judged. `claim` is its key ("B3"), `sentence` what it says in our words.

    bound: what a seed has to meet, as it is printed: "<= 0.05".
    quantity: what `value` is; with `interval` the median and range over all seeds and networks
    whose values are of that kind.
    apart: networks whose values are of another kind, and not part of it.
    evidence: sentences to be read beside it.
    """

    claim: str
    sentence: str
    holds: Holds
    bound: str = ""
    value: float | None = None
    interval: tuple[float, float] | None = None
    quantity: str = ""
    networks: tuple[NetworkVerdict, ...] = ()
    evidence: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    apart: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Verdict":
        """The verdict that `to_json` wrote."""
        networks = tuple(
            NetworkVerdict(
                **{
                    **network,
                    "interval": _pair(network["interval"]),
                    "seeds": tuple(SeedOutcome(**seed) for seed in network["seeds"]),
                }
            )
            for network in stored["networks"]
        )
        tables = tuple(
            Table(tuple(table["columns"]), tuple(map(tuple, table["rows"])), table["title"])
            for table in stored["tables"]
        )
        changed = {
            "interval": _pair(stored["interval"]),
            "networks": networks,
            "evidence": tuple(stored["evidence"]),
            "tables": tables,
            "apart": tuple(stored["apart"]),
        }
        return cls(**{**stored, **changed})

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; a number that is not finite becomes null."""
        plain: dict[str, Any] = json.loads(json.dumps(_finite(asdict(self)), allow_nan=False))
        return plain


def judge(
    claim: str,
    sentence: str,
    outcomes: Mapping[str, Mapping[int, Outcome]],
    *,
    bound: str,
    quantity: str = "",
    evidence: Iterable[str] = (),
    tables: Iterable[Table] = (),
    apart: Collection[str] = (),
) -> Verdict:
    """The verdict that follows from `outcomes`: network -> seed -> (value, whether it is met).

    apart: networks that are judged like the others, but whose values are another quantity and
    take no part in the value and interval of all.
    """
    networks = tuple(_judge_network(name, seeds) for name, seeds in outcomes.items())
    alike = [network for network in networks if network.network not in apart]
    value, interval = _summary([seed for network in alike for seed in network.seeds])
    seeds = min((len(network.seeds) for network in networks), default=0)
    few = f"undecided with fewer than the {LEAST_SEEDS} seeds that it takes"
    lack = few if networks else "nothing that it speaks of was run"
    return Verdict(
        claim=claim,
        sentence=sentence,
        holds=overall([network.holds for network in networks]),
        bound=bound,
        value=value,
        interval=interval,
        quantity=quantity,
        networks=networks,
        evidence=(*evidence, *([lack] if seeds < LEAST_SEEDS else [])),
        tables=tuple(map(_without_nan, tables)),
        apart=tuple(apart),
    )


def undecided(claim: str, sentence: str, reason: str, *, bound: str = "") -> Verdict:
    """The verdict where nothing could be measured."""
    return Verdict(claim, sentence, "undecided", bound=bound, evidence=(reason,))


def _judge_network(name: str, seeds: Mapping[int, Outcome]) -> NetworkVerdict:
    outcomes = tuple(
        SeedOutcome(seed, _number(value), None if met is None else bool(met))
        for seed, (value, met) in sorted(seeds.items())
    )
    return NetworkVerdict(
        name, decide([outcome.met for outcome in outcomes]), *_summary(outcomes), outcomes
    )


def _summary(
    outcomes: Sequence[SeedOutcome],
) -> tuple[float | None, tuple[float, float] | None]:
    """Median, and smallest and largest, of the values there are."""
    values = [outcome.value for outcome in outcomes if outcome.value is not None]
    return (median(values), (min(values), max(values))) if values else (None, None)


def _without_nan(table: Table) -> Table:
    """With None, as it is shown and stored, for what is not a number."""
    return replace(
        table, rows=tuple(tuple(None if c != c else c for c in row) for row in table.rows)
    )


def _number(value: SupportsFloat | None) -> float | None:
    number = math.nan if value is None else float(value)
    return number if math.isfinite(number) else None


def _pair(stored: Sequence[float] | None) -> tuple[float, float] | None:
    return None if stored is None else (stored[0], stored[1])


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
