"""From a flow that reached a matrix to the pair, or the reason why there is none."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rankscope.matrices import Reading
from rankscope.pairs.flow import Flow
from rankscope.pairs.graph import Edge, shape_of
from rankscope.pairs.pair import Cut, Pair, Side, block_cut


class LeftOut(NamedTuple):
    """Two matrices, one after the other, that no rule compares; with `later` empty, one alone."""

    earlier: str
    later: str
    reason: str


@dataclass(frozen=True)
class Piece:
    """One side of a matrix: channels start .. stop of the `total` that a layer gives or takes.

    A grouped convolution has one piece per group, others one that holds all. `cut` and `gate` are
    those of a recurrent module's states. Pieces of a stack meet only pieces of the same `expert`.
    """

    matrix: str
    side: Side
    start: int
    stop: int
    total: int
    taps: tuple[int, ...] = ()
    cut: Cut | None = None
    gate: str = ""
    recurrent: bool = False
    expert: int | None = None


def piece(reading: Reading, side: Side) -> Piece:
    """One side of a matrix, its taps apart from its channels."""
    axes = reading.out_axes if side == "out" else reading.in_axes
    taps = tuple(size for name, size in axes if name.startswith("tap"))
    width = math.prod(size for name, size in axes if not name.startswith("tap"))
    fixed, sizes = dict(reading.index), dict(reading.axes)
    start = fixed.get("group", 0) * width
    total = sizes.get("group", 1) * width
    expert = fixed.get("expert")
    return Piece(reading.name, side, start, start + width, total, taps, expert=expert)


@dataclass(frozen=True)
class Taking:
    """Matrices that act on an activation, along one of its axes; `moment` counts operations."""

    pieces: tuple[Piece, ...]
    activation: Edge
    in_axis: int
    moment: int

    @property
    def size(self) -> int:
        """How many entries the activation has along the axis."""
        return shape_of(self.activation)[self.in_axis]


def match(flow: Flow, earlier: Piece, later: Piece, taking: Taking) -> Pair | LeftOut | None:
    """The pair of two pieces, why it is left out, or None where they do not meet."""
    if None not in (earlier.expert, later.expert) and earlier.expert != later.expert:
        return None
    reason = flow.lost or _misfit(flow, earlier, later, taking)
    if reason:
        return LeftOut(earlier.matrix, later.matrix, reason)
    if flow.split > 1:
        return _pair(
            flow,
            earlier,
            later,
            (0, flow.count),
            Cut((flow.count, flow.split), (None, flow.split // 2)),
        )
    low, high = max(flow.first, earlier.start), min(flow.first + flow.count, earlier.stop)
    if low >= high:
        return None
    shift = flow.start - flow.first
    met = max(low + shift, later.start), min(high + shift, later.stop)
    if met[0] >= met[1]:
        return None
    if met not in ((low + shift, high + shift), (later.start, later.stop)):
        return LeftOut(
            earlier.matrix, later.matrix, "their groups of channels overlap in part only"
        )
    first = met[0] - shift - earlier.start
    cut = block_cut(first, first + met[1] - met[0], earlier.stop - earlier.start)
    if cut is not None and earlier.cut is not None:
        return LeftOut(earlier.matrix, later.matrix, "a part of the hidden units is cut out")
    return _pair(flow, earlier, later, met, cut or earlier.cut)


def _misfit(flow: Flow, earlier: Piece, later: Piece, taking: Taking) -> str:
    if later.total != taking.size:
        return f"the later matrix is read with {later.total} inputs where {taking.size} arrive"
    if flow.axis is not None and flow.axis != taking.in_axis:
        return "the later matrix acts along another axis"
    if flow.axis is None and (flow.count != later.total or flow.positions > 1):
        return f"{flow.count} outputs meet {later.total} inputs"
    if flow.positions > 1 and (later.taps or later.total % flow.positions):
        return f"{flow.positions} positions per channel meet {later.total} inputs"
    if flow.split > 1 and (earlier.cut or flow.count * flow.split != earlier.stop - earlier.start):
        return "its outputs are grouped before they become channels"
    if flow.split > 1 and (later.start or later.stop != later.total):
        return "the later matrix takes a group of the channels"
    return ""


def _pair(flow: Flow, earlier: Piece, later: Piece, met: tuple[int, int], cut: Cut | None) -> Pair:
    start, stop, channels = met[0] - later.start, met[1] - later.start, later.stop - later.start
    if flow.split > 1:
        start, stop = start + flow.start, stop + flow.start
    taps = later.taps
    if flow.positions > 1:
        channels, taps = channels // flow.positions, (flow.positions,)
    return Pair(
        earlier.matrix,
        later.matrix,
        kind=_kind(flow, earlier, later),
        earlier_side=earlier.side,
        later_side=later.side,
        earlier_cut=cut,
        later_cut=block_cut(start, stop, channels, taps=taps),
        label=earlier.gate,
    )


def _kind(
    flow: Flow, earlier: Piece, later: Piece
) -> Literal["recurrent", "flatten", "conv", "linear"]:
    if earlier.recurrent or later.recurrent:
        return "recurrent"
    if flow.positions > 1 or flow.split > 1:
        return "flatten"
    return "conv" if later.taps else "linear"
