"""Verdicts: what the seeds of each network say about a claim, as plain data.

The unit is the seed. A rule reduces each seed to one value and to whether it meets the bound; the
word for a network follows from these alone. A claim about several networks has one word for each.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import median
from typing import Any, Literal, SupportsFloat

from rankscope.lab.running.run_key import Value, variant_title, with_experiment

Word = Literal["holds", "fails", "mixed", "holds so far", "fails so far", "mixed so far", "no data"]
MARKS: dict[Word, str] = {
    "holds": "✔",
    "fails": "✘",
    "mixed": "◐",
    "holds so far": "○",
    "fails so far": "●",
    "mixed so far": "◐",
    "no data": "–",
}
LEAST_SEEDS = 3
LEGEND = (
    "✔ all of three or more seeds meet the rule · ✘ none of them does · ◐ seeds disagree · "
    "○ one or two seeds so far, all meet it · ● one or two so far, none does · – no data"
)

# The content of one cell in a table of evidence.
Cell = str | float | int | bool | None


def word_for(outcomes: Iterable[bool | None]) -> Word:
    """Return the word for the outcomes of a network's seeds; None is ignored."""
    known = [met for met in outcomes if met is not None]
    if not known:
        return "no data"
    if len(known) >= LEAST_SEEDS:
        return "holds" if all(known) else "mixed" if any(known) else "fails"
    return "holds so far" if all(known) else "mixed so far" if any(known) else "fails so far"


@dataclass(frozen=True)
class SeedOutcome:
    """One seed's value, None if not finite, and whether it meets the bound, None if unknown."""

    seed: int
    value: float | None
    met: bool | None


@dataclass(frozen=True)
class NetworkVerdict:
    """The outcome of every seed of one network, or of a variant or part of it.

    quantity: what the values are, where it is not the claim's quantity.
    unseen: the seeds that nobody had seen when the rule was made; None if that is not recorded.
    """

    network: str
    seeds: tuple[SeedOutcome, ...]
    experiment: str = ""
    variant: Mapping[str, Value] = field(default_factory=dict)
    part: str = ""
    quantity: str = ""
    unseen: tuple[int, ...] | None = None

    @property
    def word(self) -> Word:
        return word_for(outcome.met for outcome in self.seeds)

    @property
    def mark(self) -> str:
        return MARKS[self.word]

    @property
    def known_seeds(self) -> tuple[int, ...]:
        """The seeds that the word rests on: those with an outcome."""
        return tuple(outcome.seed for outcome in self.seeds if outcome.met is not None)

    @property
    def words(self) -> str:
        """The word and the seeds it rests on: "holds (3 seeds, 2 unseen)"."""
        known = self.known_seeds
        if not known:
            return self.word
        counts = [f"{len(known)} seed{'' if len(known) == 1 else 's'}"]
        if self.unseen is not None:
            unseen = len(set(known) & set(self.unseen))
            number = {0: "none", len(known): "all"}.get(unseen, str(unseen))
            counts.append(f"{number} unseen")
        return f"{self.word} ({', '.join(counts)})"

    @property
    def label(self) -> str:
        """Network, variant and part in words: "resnet, decay 0.1, shortcut"."""
        return ", ".join(filter(None, (self.network, variant_title(self.variant), self.part)))

    @property
    def title(self) -> str:
        """The label after the experiment, where the network does not imply it: "toy: head"."""
        return with_experiment(self.label, self.experiment, self.network)

    @property
    def value(self) -> float | None:
        """Median over the seeds that count, or over all where none does."""
        values = self._values or [o.value for o in self.seeds if o.value is not None]
        return median(values) if values else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Smallest and largest value over the seeds that count."""
        return (min(self._values), max(self._values)) if self._values else None

    @property
    def _values(self) -> list[float]:
        """Values of the seeds that count: those with an outcome."""
        return [
            outcome.value
            for outcome in self.seeds
            if outcome.value is not None and outcome.met is not None
        ]


@dataclass(frozen=True)
class Missing:
    """Runs of one network that a claim or figure needs and that are not there whole.

    runs: titles of the runs. reason: why they are not there.
    """

    experiment: str
    network: str
    runs: tuple[str, ...]
    seeds: tuple[int, ...]
    reason: str

    def sentence(self, title: str) -> str:
        """Return which runs lack and why: "Net, seed 5, at decays 0 and 0.1 was not run".

        title: how the network is written for people.
        """
        seeds = _series("seed", map(str, self.seeds))
        text = f"{title}, {seeds}{self._settings} {self.reason}"
        return text[0].upper() + text[1:]

    @property
    def _settings(self) -> str:
        """Settings of the runs: ", at decays 0 and 0.1", or " (true labels; random labels)"."""
        settings = [run.removeprefix(self.network).removeprefix(", ") for run in self.runs]
        matches = [re.fullmatch(r"(?P<name>\w+) (?P<value>[-+.\de]+)", text) for text in settings]
        numbers = {match["value"]: match["name"] for match in matches if match}
        if len(numbers) == len(settings) and len(set(numbers.values())) == 1:
            return f", at {_series(next(iter(numbers.values())), sorted(numbers, key=float))}"
        return f" ({'; '.join(settings)})" if any(settings) else ""


@dataclass(frozen=True)
class Table:
    """Evidence in rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""


@dataclass(frozen=True)
class Verdict:
    """A claim with the outcome of every network.

    claim: its key. sentence: what it says. bound: what a seed has to meet: "<= 0.05".
    missing: runs the rule needs and lacks. remarks: sentences to read beside the values.
    fault: why the claim could not be judged at all; "" if it was.
    headline: where this was judged by a first rule, the key of the rule that decides.
    reason: why the first rule was changed. ours: whether the claim is our own.
    """

    claim: str
    sentence: str
    bound: str = ""
    quantity: str = ""
    networks: tuple[NetworkVerdict, ...] = ()
    missing: tuple[Missing, ...] = ()
    remarks: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    fault: str = ""
    headline: str = ""
    reason: str = ""
    ours: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON; numbers that are not finite become null."""
        plain: dict[str, Any] = json.loads(json.dumps(_finite(asdict(self)), allow_nan=False))
        for network, verdict in zip(plain["networks"], self.networks, strict=True):
            network["verdict"] = verdict.word
        return plain

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Verdict":
        """Return the verdict that `to_json` wrote."""
        networks = tuple(
            NetworkVerdict(
                **{
                    name: entry
                    for name, entry in network.items()
                    if name not in ("seeds", "unseen", "verdict")
                },
                seeds=tuple(SeedOutcome(**seed) for seed in network["seeds"]),
                unseen=None if network["unseen"] is None else tuple(network["unseen"]),
            )
            for network in stored["networks"]
        )
        missing = tuple(
            Missing(**{**lack, "runs": tuple(lack["runs"]), "seeds": tuple(lack["seeds"])})
            for lack in stored["missing"]
        )
        tables = tuple(
            Table(tuple(table["columns"]), tuple(map(tuple, table["rows"])), table["title"])
            for table in stored["tables"]
        )
        return cls(
            **{
                **stored,
                "networks": networks,
                "missing": missing,
                "remarks": tuple(stored["remarks"]),
                "tables": tables,
            }
        )


def without_nan(table: Table) -> Table:
    """Return the table with None in place of NaN, as it is shown and stored."""
    rows = (tuple(None if cell != cell else cell for cell in row) for row in table.rows)
    return replace(table, rows=tuple(rows))


def finite(value: SupportsFloat | None) -> float | None:
    """Return the value as a float, or None if it is not finite."""
    number = math.nan if value is None else float(value)
    return number if math.isfinite(number) else None


def _series(name: str, values: Iterable[str]) -> str:
    """Return "seed 1", "seeds 1 and 2" or "seeds 1, 2 and 3"."""
    *others, last = values
    return f"{name}s {', '.join(others)} and {last}" if others else f"{name} {last}"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
