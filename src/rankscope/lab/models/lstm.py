"""The bidirectional LSTM of yunis2024 (app. C.3), from speech features to characters."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from rankscope.lab.models.initialisation import drawn
from rankscope.lab.training.task import Shown
from rankscope.matrices.rules import GATES
from rankscope.pairs import Cut, Pair, inside_pairs
from rankscope.pairs.pair import block_cut


@dataclass(frozen=True)
class BiLstmConfig:
    """`layers` bidirectional LSTM layers and a linear output, with torch's default weights.

    The defaults are the paper's. characters: size of the output, including the blank of CTC.
    """

    features: int = 40
    hidden: int = 256
    layers: int = 4
    characters: int = 29

    def __post_init__(self) -> None:
        if min(self.features, self.hidden, self.characters) < 1 or self.layers < 2:
            raise ValueError(f"a BiLstm needs sizes of 1 or more and 2 or more layers, got {self}")

    def build(self, seed: int) -> "BiLstm":
        return drawn(lambda: BiLstm(self), seed)


class BiLstm(nn.Module):
    """Features of each frame to log-probabilities of characters."""

    def __init__(self, config: BiLstmConfig) -> None:
        super().__init__()
        self.config = config
        sizes = (config.features, config.hidden, config.layers)
        self.lstm = nn.LSTM(*sizes, bidirectional=True, batch_first=True)
        self.output = nn.Linear(2 * config.hidden, config.characters)

    def forward(
        self, features: Float[Tensor, "batch frames features"]
    ) -> Float[Tensor, "batch frames characters"]:
        states, _ = self.lstm(features)  # (batch, frames, 2 hidden)
        # Always in float32, since CTC sums hundreds of these.
        characters: Tensor = self.output(states).float().log_softmax(-1)
        return characters

    def alignment_pairs(self) -> tuple[Pair, ...]:
        """The pairs inside the LSTM and those of its last layer with the output.

        They are W_ih-W_hh, W_ih-W_ih above, W_hh-W_ih above and last layer-output, for each
        direction and gate. As in the paper, no pair joins two directions. The paper's code lacks
        W_ih-W_hh of the last layer.
        """
        inside = (pair for pair in inside_pairs(self) if _within_one_direction(pair))
        return (*inside, *self._output_pairs())

    def _output_pairs(self) -> list[Pair]:
        hidden, last = self.config.hidden, self.config.layers - 1
        return [
            Pair(
                f"lstm.l{last}{suffix}.{role}",
                "output",
                kind="recurrent",
                earlier_cut=Cut((4, hidden), (position, None)),
                later_cut=block_cut(direction * hidden, (direction + 1) * hidden, 2 * hidden),
                label=gate,
            )
            for direction, suffix in enumerate(("", ".reverse"))
            for role in ("ih", "hh")
            for position, gate in enumerate(GATES["lstm"])
        ]

    def shown(self) -> Shown:
        """The input matrix of a middle layer, and its cell gate with the input matrix above.

        The paper shows one plot for the pair and does not name the gate. We show g, which
        computes what the cell stores; the others only scale it.
        """
        middle = (self.config.layers - 1) // 2
        return Shown(f"lstm.l{middle}.ih", f"lstm.l{middle}.ih > lstm.l{middle + 1}.ih [g]")


def _within_one_direction(pair: Pair) -> bool:
    return (".reverse." in pair.earlier) == (".reverse." in pair.later)
