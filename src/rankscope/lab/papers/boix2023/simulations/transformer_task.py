"""The diagonal Transformer of boix2023, Example 3.2, learning from a teacher of its own form."""

from dataclasses import dataclass
from typing import Any, Literal

import torch

from rankscope.lab.papers.boix2023.simulations.task import Toy, gaussian
from rankscope.theory import diagonal_transformer, transformer_output


@dataclass(frozen=True)
class TransformerTask:
    """Isotropic Gaussian tokens; a student and a teacher with the same frozen GELU layers.

    W_A is Gaussian of variance 1 / d, W_B of variance feedforward_scale^2 / hidden with
    hidden = 2 d, the teacher's z* of variance teacher_scale^2, (u0, v0) of variance 1.
    bases: in which basis a head's weights are diagonal. "shared": the standard one, as Example 3.2
        is printed; the heads of a layer are then exchangeable. "own": a random rotation R per
        head, W_K W_Q^T = R diag(kq) R^T and W_V W_O^T = R diag(vo) R^T, frozen like W_A and W_B.
    """

    d: int
    tokens: int
    samples: int
    layers: int = 2
    heads: int = 4
    teacher_scale: float = 1.0
    feedforward_scale: float = 0.5
    bases: Literal["shared", "own"] = "shared"

    def build(self, seed: int) -> Toy:
        """Tokens, frozen layers, z* and (u0, v0) of a seed do not depend on the kind of heads."""
        generator = torch.Generator().manual_seed(seed)
        d, hidden, places = self.d, 2 * self.d, (self.layers, self.heads)
        x = gaussian(self.samples, self.tokens, d, generator=generator)
        W_A, W_B = gaussian(2, self.layers, d, hidden, generator=generator)
        W_A, W_B = W_A / d**0.5, W_B * self.feedforward_scale / hidden**0.5
        u0, v0, z = gaussian(3, 2 * d * self.layers * self.heads, generator=generator)
        turned = torch.linalg.qr(gaussian(*places, d, d, generator=generator)).Q
        parts: dict[str, Any] = {
            "heads": self.heads,
            "feedforward": list(zip(W_A, W_B, strict=True)),
            "bases": turned if self.bases == "own" else None,
        }
        target = transformer_output(x, self.teacher_scale * z, **parts)
        return Toy(diagonal_transformer(x, target, **parts), u0, v0)
