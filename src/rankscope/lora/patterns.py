"""Patterns of PEFT's configurations, matched without running a regular expression that could hang.

PEFT matches a pattern against the end of a module's name, at a dot: `(.*\\.)?PATTERN$`. A file can
hold any regular expression. Names are looked up; other expressions must be simple.
"""

import re
from collections.abc import Mapping
from typing import Any

MOST_EXPRESSIONS = 100
LONGEST = 300  # characters of an expression, and of a name it is matched with
LITERAL = re.compile(r"(?P<start>\^?)(?P<name>(?:[\w\-.]|\\[^\w\s])+)\$?")
# An expression in which repeats cannot multiply: no groups, at most two repeats.
SIMPLE = re.compile(r"(?:[\w\-.^$|]|\\[^\w\s]|\\[dw]|\[[\w\-]+\]|[*+?])+")


class Patterns:
    """Values by pattern, as `rank_pattern` and `alpha_pattern` hold them; the first match wins."""

    def __init__(self, option: str, values: Mapping[Any, Any]) -> None:
        self._whole: dict[str, tuple[int, Any]] = {}  # anchored: whole names
        self._ends: dict[str, tuple[int, Any]] = {}
        self._expressions: list[tuple[int, re.Pattern[str], Any]] = []
        for position, (pattern, value) in enumerate(values.items()):
            self._add(option, position, str(pattern), value)

    def _add(self, option: str, position: int, pattern: str, value: Any) -> None:
        if literal := LITERAL.fullmatch(pattern):
            name = re.sub(r"\\(.)", r"\1", literal["name"])
            table = self._whole if literal["start"] else self._ends
            table.setdefault(name, (position, value))
            return
        repeats = len(re.findall(r"(?<!\\)[*+?]", pattern))
        too_many = len(self._expressions) >= MOST_EXPRESSIONS
        if repeats > 2 or too_many or len(pattern) > LONGEST or not SIMPLE.fullmatch(pattern):
            raise ValueError(
                f"{option}: the pattern {pattern[:60]!r} is not a module's name and too involved "
                "to be matched safely; write the names of the modules"
            )
        try:
            expression = re.compile(rf"(.*\.)?({pattern})$")
        except re.error as mistake:
            raise ValueError(
                f"{option}: {pattern[:60]!r} is not a regular expression: {mistake}"
            ) from None
        self._expressions.append((position, expression, value))

    def get(self, name: str, default: Any) -> Any:
        """Return the value of the first pattern that matches a module's name."""
        matches = [self._whole[name]] if name in self._whole else []
        parts = name.split(".")
        ends = (".".join(parts[start:]) for start in range(len(parts)))
        matches += [self._ends[end] for end in ends if end in self._ends]
        matches += [
            (position, value)
            for position, expression, value in self._expressions
            if len(name) <= LONGEST and expression.match(name)
        ]
        return min(matches, key=lambda match: match[0])[1] if matches else default


def anchored(name: str) -> str:
    """Return the pattern that matches one module: escaped, from the beginning of its name."""
    return "^" + re.escape(name)
