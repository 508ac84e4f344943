"""Numbers inside the sentences of pages, read from the evidence of claims.

In a page a number stands as <!-- value: NAME -->1.5<!-- / -->, where NAME is that of a `PageValue`.
`rankscope results keep` writes it, and `rankscope results check` compares it.
A `PageText` is a block of such sentences that waits for its runs.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rankscope.lab.judging.verdict import Cell, Verdict
from rankscope.lab.reporting.numbers import number

NO_DATA = "(not run yet)"
MARKER = re.compile(r"(?P<begin><!-- value: (?P<name>.+?) -->).*?(?P<end><!-- / -->)")

Row = Mapping[str, Cell]


def plain(value: float) -> str:
    """Return a number to two digits: "0.34"."""
    return number(value, digits=2)


def as_percent(value: float) -> str:
    """Return a share in percent: "88%"."""
    return f"{float(plain(100 * value)):g}%"


def as_factor(value: float) -> str:
    """Return the factor whose logarithm the value is."""
    return plain(math.exp(value))


def as_count(value: float) -> str:
    """Return a whole number."""
    return f"{value:.0f}"


def every(row: Row) -> bool:
    """Take part."""
    return True


@dataclass(frozen=True)
class PageValue:
    """A number in a sentence: some cells of a claim's evidence, in words.

    name: in the marker. column: of the claim's first table; "" reads the values of seeds.
    network: as the table names it ("toy: head, K-Q"); "" takes all of them.
    rows: tells whether a row takes part. reduce: makes one number of theirs, by default the median.
    """

    name: str
    claim: str
    network: str = ""
    column: str = ""
    rows: Callable[[Row], bool] = every
    reduce: Callable[[Sequence[float]], float] = median
    show: Callable[[float], str] = plain

    def text(self, verdicts: Iterable[Verdict]) -> str:
        """Return the number, or that nothing was run."""
        numbers = [
            float(cell)
            for verdict in verdicts
            if verdict.claim == self.claim
            for cell in (self._cells(verdict) if self.column else self._values(verdict))
            if isinstance(cell, int | float)
        ]
        return self.show(float(self.reduce(numbers))) if numbers else NO_DATA

    def _values(self, verdict: Verdict) -> list[Cell]:
        networks = (entry for entry in verdict.networks if self.network in ("", entry.title))
        return [outcome.value for network in networks for outcome in network.seeds]

    def _cells(self, verdict: Verdict) -> list[Cell]:
        if not verdict.tables:
            return []
        table = verdict.tables[0]
        rows = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
        return [
            row[self.column]
            for row in rows
            if self.network in ("", row["network"]) and self.rows(row)
        ]


@dataclass(frozen=True)
class PageText:
    """Sentences of a page that make sense only once there are runs.

    name: of the block in the page: "text <name>". needs: names of values that have to be there.
    text: may hold markers of values. otherwise: stands in its place until then.
    """

    name: str
    needs: tuple[str, ...]
    text: str
    otherwise: str = ""

    def content(self, values: Mapping[str, str]) -> str:
        """Return what stands in the page where its values read so."""
        return self.text if all(values[name] != NO_DATA for name in self.needs) else self.otherwise


def fill_values(text: str, values: Mapping[str, str]) -> str:
    """Return the text with every number written anew; markers with other names stay."""
    return MARKER.sub(
        lambda match: (
            f"{match['begin']}{values[match['name']]}{match['end']}"
            if match["name"] in values
            else match[0]
        ),
        text,
    )
