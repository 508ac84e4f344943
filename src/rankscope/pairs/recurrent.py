"""Pairs inside a recurrent module, and the matrices that take its input and make its states.

The 4H rows of an LSTM's matrices are cut into their gates.
yunis2024, App. C.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from torch import nn

from rankscope.matrices.reading import dotted
from rankscope.matrices.rules import GATES, recurrent_kind
from rankscope.pairs.pair import Cut, Pair, block_cut


class State(NamedTuple):
    """A matrix that makes hidden states, with one gate's block of its left vectors or all."""

    matrix: str
    cut: Cut | None
    gate: str


@dataclass(frozen=True)
class Recurrent:
    """Sizes of a recurrent module, and the names of its gates in the order of their rows.

    `projection` is the width of LSTM states after W_hr, or 0. `cell` marks single-step modules.
    """

    name: str
    gates: str
    layers: int
    directions: int
    inputs: int
    hidden: int
    projection: int
    cell: bool

    @property
    def width(self) -> int:
        """Size of a hidden state of one direction."""
        return self.projection or self.hidden

    def matrix(self, layer: int, direction: int, role: str) -> str:
        """Name of one matrix, such as `lstm.l0.reverse.ih`."""
        place = ("",) if self.cell else (f"l{layer}", "reverse" if direction else "")
        return dotted(self.name, *place, role)

    def input_matrices(self) -> tuple[str, ...]:
        """Names of the matrices that take the module's input, one per direction."""
        return tuple(self.matrix(0, direction, "ih") for direction in range(self.directions))

    def states(self, layer: int, direction: int) -> tuple[State, ...]:
        """Return the matrices that make the states of one layer and direction, gate by gate."""
        if self.projection:
            return (State(self.matrix(layer, direction, "hr"), None, ""),)
        return self.by_gate(layer, direction, "ih", "hh")

    def by_gate(self, layer: int, direction: int, *roles: str) -> tuple[State, ...]:
        """Return one state per matrix and gate."""
        names = [self.matrix(layer, direction, role) for role in roles]
        if not self.gates:
            return tuple(State(name, None, "") for name in names)
        shape = (len(self.gates), self.hidden)
        return tuple(
            State(name, Cut(shape, (position, None)), gate)
            for name in names
            for position, gate in enumerate(self.gates)
        )


def recurrent(module: nn.Module, name: str) -> Recurrent | None:
    """Describe a recurrent module; None for other modules and for computed weights."""
    if isinstance(module, nn.RNNBase) and "weight_ih_l0" in module._parameters:
        return Recurrent(
            name,
            gates=GATES[recurrent_kind(module)],
            layers=module.num_layers,
            directions=2 if module.bidirectional else 1,
            inputs=module.input_size,
            hidden=module.hidden_size,
            projection=module.proj_size,
            cell=False,
        )
    if isinstance(module, nn.RNNCellBase) and "weight_ih" in module._parameters:
        gates, inputs, hidden = GATES[recurrent_kind(module)], module.input_size, module.hidden_size
        return Recurrent(name, gates, 1, 1, inputs, hidden, projection=0, cell=True)
    return None


def recurrent_pairs(unit: Recurrent) -> Iterator[Pair]:
    """Yield W_ih(l)-W_hh(l), W_ih(l)-W_ih(l+1), W_hh(l)-W_ih(l+1), by direction and gate.

    Both directions of a bidirectional layer take both directions below as input, so the states of
    each are paired with their half of the inputs of both. A projection W_hr of the states stands
    in between: gates-W_hr, W_hr-W_hh, W_hr-W_ih(l+1).
    """
    for layer in range(unit.layers):
        for direction in range(unit.directions):
            yield from _within_layer(unit, layer, direction)
            if layer + 1 < unit.layers:
                start, total = direction * unit.width, unit.directions * unit.width
                half = block_cut(start, start + unit.width, total)
                yield from (
                    _pair(state, unit.matrix(layer + 1, above, "ih"), half)
                    for above in range(unit.directions)
                    for state in unit.states(layer, direction)
                )


def _within_layer(unit: Recurrent, layer: int, direction: int) -> Iterator[Pair]:
    hh = unit.matrix(layer, direction, "hh")
    if not unit.projection:
        yield from (_pair(state, hh) for state in unit.by_gate(layer, direction, "ih"))
        return
    hr = unit.matrix(layer, direction, "hr")
    yield from (_pair(state, hr) for state in unit.by_gate(layer, direction, "ih", "hh"))
    yield _pair(State(hr, None, ""), hh)


def _pair(state: State, later: str, half: Cut | None = None) -> Pair:
    return Pair(
        state.matrix,
        later,
        kind="recurrent",
        earlier_cut=state.cut,
        later_cut=half,
        label=state.gate,
    )
