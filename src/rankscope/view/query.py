"""Parameters of a request, each checked before it is used."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rankscope.view.columns import MOST_COLUMNS, WIDTH, Span
from rankscope.view.library import Library
from rankscope.view.opened import Opened, TooLarge
from rankscope.view.quantities import Quantity, quantities

if TYPE_CHECKING:  # a report draws runs without the server
    from starlette.datastructures import QueryParams

LONGEST = 20_000  # characters of one parameter
RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


class Mistake(ValueError):
    """A parameter that cannot be used."""


@dataclass(frozen=True)
class Query:
    """One request: its parameters, and the runs they are about."""

    parameters: "QueryParams"
    library: Library

    def text(self, name: str, default: str | None = None) -> str:
        """Return a parameter; Mistake if it is missing and has no default."""
        value = self.parameters.get(name, default)
        if value is None:
            raise Mistake(f"the parameter {name} is missing")
        if len(value) > LONGEST:
            raise Mistake(f"the parameter {name} is too long")
        return value

    def has(self, name: str) -> bool:
        return name in self.parameters

    def texts(self, name: str) -> list[str]:
        """Return all values of a parameter that is repeated."""
        return self.parameters.getlist(name)

    def choice(self, name: str, *choices: str) -> str:
        """Return one of some words, by default the first."""
        word = self.text(name, choices[0])
        if word not in choices:
            raise Mistake(f"{name} is one of {', '.join(choices)}")
        return word

    def integer(self, name: str, default: int | None, *, most: int, least: int = 0) -> int:
        """Return a whole number between `least` and `most`."""
        return round(self._number(name, default, int, least, most))

    def number(self, name: str) -> float | None:
        """Return a finite number; None if the parameter is missing or empty."""
        if not self.parameters.get(name):
            return None
        return float(self._number(name, None, float, -math.inf, math.inf))

    def _number(
        self,
        name: str,
        default: int | float | None,
        read: Callable[[str], int | float],
        least: int | float,
        most: int | float,
    ) -> int | float:
        text = self.text(name, None if default is None else str(default))
        try:
            value = read(text[:64])
        except ValueError:
            raise Mistake(f"{name} is a number") from None
        if not (least <= value <= most and math.isfinite(value)):
            ends = f" from {least} to {most}" if math.isfinite(most) else ""
            raise Mistake(f"{name} is a finite number{ends}")
        return value

    def span(self, *, width: int = WIDTH) -> Span:
        """Return the interval and the width that are asked for."""
        return Span(
            self.number("from"),
            self.number("to"),
            self.integer("width", width, least=2, most=MOST_COLUMNS),
            self.choice("spacing", "linear", "log") == "log",
        )

    def run(self) -> Opened:
        """Return the run that is asked for."""
        return self.library.open(self.text("run"))

    def quantity(self, opened: Opened) -> Quantity:
        """Return the quantity that is asked for; by default the first of the run."""
        known = quantities(opened.ds, opened.along)
        if not known:
            raise LookupError("this run stores nothing over time that can be shown")
        stored, metric = self.parameters.get("of"), self.parameters.get("metric")
        for quantity in known:
            if stored in (None, quantity.of) and metric in (None, quantity.metric):
                return quantity
        raise LookupError("this run has no such quantity; take of and metric from /api/run")

    def rows(self, opened: Opened, axis: str, *, most: int) -> np.ndarray:
        """Return the positions of the rows that are asked for; by default all that are whole."""
        size = opened.ds.sizes[axis]
        if self.has("rows"):
            rows = _ranges(self.text("rows"), size)
        elif self.has("row"):
            rows = np.array([self.integer("row", None, most=max(0, size - 1))])
        elif names := self.texts("matrix") or self.texts("pair") or self.texts("name"):
            rows = np.array([opened.row(axis, name) for name in names[: most + 1]])
        else:
            whole = self.choice("parts", "0", "1") == "0"
            rows = opened.whole(axis) if whole else np.arange(size)
        if len(rows) > most:
            raise TooLarge(f"{len(rows)} rows are more than {most}; choose fewer with rows=")
        return rows

    def row(self, opened: Opened, axis: str) -> int:
        """Return the one row that is asked for."""
        if not (self.has("row") or self.has("matrix") or self.has("pair") or self.has("rows")):
            raise Mistake("give the row, or the name of a matrix")
        rows = self.rows(opened, axis, most=1)
        if len(rows) != 1:
            raise Mistake("give one row")
        return int(rows[0])


def _ranges(text: str, size: int) -> np.ndarray:
    """Return the numbers that "0,5,7-9" lists, each below `size`."""
    rows: dict[int, None] = {}
    for part in filter(None, text.split(",")):
        match = RANGE.fullmatch(part)
        if match is None:
            raise Mistake("rows are numbers and ranges, as in 0,5,7-9")
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= size or first > last:
            raise LookupError(f"this run has rows 0 to {size - 1} there")
        rows.update(dict.fromkeys(range(first, last + 1)))
    return np.array(list(rows), int)
