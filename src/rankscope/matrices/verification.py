"""Verification of attention modules: whether their heads are what they were read as.

`rankscope.verification` finds it out; this is the result as plain data, stored with a manifest.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["verified", "assumed", "refuted"]


@dataclass(frozen=True)
class Verified:
    """Outcome for one attention module.

    verified: the forward pass uses the heads as they were read.
    assumed: this could not be checked.
    refuted: the forward pass uses other heads, or has no K^T Q or O V at all.
    """

    name: str
    status: Outcome
    why: str

    @property
    def note(self) -> str:
        """Outcome for a line of the coverage."""
        if self.status == "verified":
            return "verified"
        return f"{self.status}{' (not given)' if self.status == 'refuted' else ''}: {self.why}"


@dataclass(frozen=True)
class Verification:
    """Table with one line per attention module."""

    lines: tuple[Verified, ...] = ()

    def __iter__(self) -> Iterator[Verified]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, name: str) -> Verified:
        """Return the line of an attention module."""
        return {line.name: line for line in self.lines}[name]

    @property
    def summary(self) -> str:
        """One line with the number of attention modules by status."""
        counts = Counter(line.status for line in self.lines)
        outcomes = ", ".join(f"{count} {status}" for status, count in counts.items())
        return f"{len(self)} attention modules: {outcomes or 'none read'}"

    def __str__(self) -> str:
        rows = [("attention", "status", "why")]
        rows += [(line.name or "(root)", line.status, line.why) for line in self.lines]
        widths = [max(len(row[column]) for row in rows) for column in range(2)]
        table = ["  ".join([*map(str.ljust, row[:2], widths), row[2]]) for row in rows]
        return "\n".join([self.summary, *table])
