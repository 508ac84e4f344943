"""Coverage of a network: how every tensor with two or more axes was read, or why not."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from rankscope.matrices.reading import Reading

Status = Literal["read", "assumed", "flattened", "vector", "tied", "not read", "excluded"]


@dataclass(frozen=True)
class Covered:
    """Coverage of one tensor.

    how: how it was read, or why it was not.
    matrices: names of the whole matrices read from it.
    tied_to: name under which the same tensor is read.
    """

    tensor: str
    shape: tuple[int, ...]
    status: Status
    how: str
    matrices: tuple[str, ...] = ()
    tied_to: str | None = None


@dataclass(frozen=True)
class Coverage:
    """Table with one line per tensor of two or more axes."""

    lines: tuple[Covered, ...]

    def __iter__(self) -> Iterator[Covered]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, tensor: str) -> Covered:
        """Return the line of a tensor."""
        return {line.tensor: line for line in self.lines}[tensor]

    @property
    def summary(self) -> str:
        """One line with the number of matrices, and of tensors by status."""
        counts = Counter(line.status for line in self.lines)
        matrices = sum(len(line.matrices) for line in self.lines)
        how = ", ".join(f"{count} {status}" for status, count in counts.items())
        return f"{matrices} matrices of {len(self)} tensors: {how}"

    def __repr__(self) -> str:
        return f"Coverage({self.summary}; print it to see every tensor)"

    def __str__(self) -> str:
        rows = [("tensor", "shape", "status", "how")]
        rows += [
            (line.tensor, "x".join(map(str, line.shape)), line.status, line.how)
            for line in self.lines
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        table = ["  ".join([*map(str.ljust, row[:3], widths), row[3]]) for row in rows]
        return "\n".join([self.summary, *table])


def tied(tensor: str, shape: tuple[int, ...], first: str) -> Covered:
    """Return the line of a second name of a tensor."""
    return Covered(tensor, shape, "tied", f"tied to {first}", tied_to=first)


def described(reading: Reading) -> str:
    """Describe rows and columns as "out x in*tap0*tap1", and whether they are stored transposed."""
    first_axis = next(axis for axis, _ in reading.axes if axis not in dict(reading.index))
    transposed = "" if first_axis in reading.outputs else ", stored transposed"
    return f"{'*'.join(reading.outputs)} x {'*'.join(reading.inputs)}{transposed}"
