"""The diagonal Transformer of boix2023, Example 3.2, learning from a teacher of its own form."""

from dataclasses import dataclass
from typing import Any, Literal

import torch

from rankscope.lab.papers.boix2023.simulations.task import Toy, gaussian
from rankscope.theory import diagonal_transformer, transformer_output


@dataclass(frozen=True)
class TransformerTask:
    """A student and a teacher with the same frozen GELU layers, on isotropic Gaussian tokens.

    All weights are Gaussian: W_A of variance 1 / d, W_B of variance feedforward_scale^2 / hidden
    with hidden = 2 d, the teacher's z* of variance teacher_scale^2, (u0, v0) of variance 1.
    bases: the basis in which a head's weights are diagonal. "shared" is the standard basis, as in
        Example 3.2; the heads of a layer are then exchangeable. "own" is a frozen random rotation
        R per head, W_K W_Q^T = R diag(kq) R^T and W_V W_O^T = R diag(vo) R^T.
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
        """Build the toy; tokens, frozen layers, z* and (u0, v0) do not depend on `bases`."""
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
