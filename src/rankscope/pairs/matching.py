"""Match a flow that reached a matrix: to a pair, or to the reason why there is none."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rankscope.matrices import Reading
from rankscope.pairs.flow import Flow
from rankscope.pairs.graph import Edge, shape_of
from rankscope.pairs.pair import Cut, Pair, Side, block_cut


class LeftOut(NamedTuple):
    """Two successive matrices that are not compared, and why; `later` is empty for one alone."""

    earlier: str
    later: str
    reason: str


@dataclass(frozen=True)
class Piece:
    """One side of a matrix: channels start .. stop of the `total` that a layer gives or takes.

    A grouped convolution has one piece per group, other layers have one piece with all channels.
    `cut` and `gate` belong to the states of a recurrent module. Pieces of a stack of experts meet
    only pieces of the same `expert`.
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

    @property
    def channels(self) -> int:
        """Number of channels in this piece."""
        return self.stop - self.start


def piece(reading: Reading, side: Side) -> Piece:
    """Return one side of a matrix, with its taps kept apart from its channels."""
    axes = reading.out_axes if side == "out" else reading.in_axes
    taps = tuple(size for name, size in axes if name.startswith("tap"))
    width = math.prod(size for name, size in axes if not name.startswith("tap"))
    fixed, sizes = dict(reading.index), dict(reading.axes)
    start = fixed.get("group", 0) * width
    total = sizes["group"] * width if "group" in fixed else width
    expert = fixed.get("expert")
    return Piece(reading.name, side, start, start + width, total, taps, expert=expert)


@dataclass(frozen=True)
class Consumer:
    """Matrices that act on an activation along one of its axes.

    `moment` is autograd's number of the operation, which orders consumers in time.
    """

    pieces: tuple[Piece, ...]
    activation: Edge
    in_axis: int
    moment: int

    @property
    def size(self) -> int:
        """Number of entries of the activation along the axis."""
        return shape_of(self.activation)[self.in_axis]


def match(flow: Flow, earlier: Piece, later: Piece, consumer: Consumer) -> Pair | LeftOut | None:
    """Return the pair of two pieces, the reason it is left out, or None if they do not meet."""
    if None not in (earlier.expert, later.expert) and earlier.expert != later.expert:
        return None
    reason = flow.lost_reason or _misfit(flow, earlier, later, consumer)
    if reason:
        return LeftOut(earlier.matrix, later.matrix, reason)
    if (features := flow.features_per_channel) > 1:
        # Several features share a channel; the middle one stands for it.
        middle = Cut((flow.channels, features), (None, features // 2))
        start, stop = flow.first_channel, flow.first_channel + flow.channels
        return _pair(flow, earlier, later, start, stop, earlier_cut=middle)
    return _match_channels(flow, earlier, later)


def _misfit(flow: Flow, earlier: Piece, later: Piece, consumer: Consumer) -> str:
    """Say why the flow does not fit the two pieces; empty if it does."""
    if later.total != consumer.size:
        return f"the later matrix is read with {later.total} inputs where {consumer.size} arrive"
    if flow.axis is not None and flow.axis != consumer.in_axis:
        return "the later matrix acts along another axis"
    entries, features = flow.entries_per_channel, flow.features_per_channel
    if flow.axis is None and (flow.channels != later.total or entries > 1):
        return f"{flow.channels} outputs meet {later.total} inputs"
    if entries > 1 and (later.taps or later.total % entries):
        return f"{entries} positions per channel meet {later.total} inputs"
    if features > 1 and (earlier.cut or flow.channels * features != earlier.channels):
        return "its outputs are grouped before they become channels"
    if features > 1 and later.channels != later.total:
        return "the later matrix takes a group of the channels"
    return ""


def _match_channels(flow: Flow, earlier: Piece, later: Piece) -> Pair | LeftOut | None:
    """Pair the channels that both pieces have; one piece must contain what arrives of the other."""
    shift = flow.first_channel - flow.first_feature  # from the source's outputs to the channels
    arriving = (
        max(flow.first_feature, earlier.start) + shift,
        min(flow.first_feature + flow.channels, earlier.stop) + shift,
    )
    if arriving[0] >= arriving[1]:
        return None
    shared = max(arriving[0], later.start), min(arriving[1], later.stop)
    if shared[0] >= shared[1]:
        return None
    if shared not in (arriving, (later.start, later.stop)):
        return LeftOut(
            earlier.matrix, later.matrix, "their groups of channels overlap in part only"
        )
    first = shared[0] - shift - earlier.start
    cut = block_cut(first, first + shared[1] - shared[0], earlier.channels)
    if cut is not None and earlier.cut is not None:
        return LeftOut(earlier.matrix, later.matrix, "a part of the hidden units is cut out")
    start, stop = (channel - later.start for channel in shared)
    return _pair(flow, earlier, later, start, stop, earlier_cut=cut or earlier.cut)


def _pair(
    flow: Flow, earlier: Piece, later: Piece, start: int, stop: int, *, earlier_cut: Cut | None
) -> Pair:
    """Return the pair that meets in channels start .. stop of the later piece."""
    channels, taps = later.channels, later.taps
    if flow.entries_per_channel > 1:
        # The entries of a flattened channel are like taps: the middle one stands for them.
        channels, taps = channels // flow.entries_per_channel, (flow.entries_per_channel,)
    return Pair(
        earlier.matrix,
        later.matrix,
        kind=_kind(flow, earlier, later),
        earlier_side=earlier.side,
        later_side=later.side,
        earlier_cut=earlier_cut,
        later_cut=block_cut(start, stop, channels, taps=taps),
        label=earlier.gate,
    )


def _kind(
    flow: Flow, earlier: Piece, later: Piece
) -> Literal["recurrent", "flatten", "conv", "linear"]:
    if earlier.recurrent or later.recurrent:
        return "recurrent"
    if flow.entries_per_channel > 1 or flow.features_per_channel > 1:
        return "flatten"
    return "conv" if later.taps else "linear"
