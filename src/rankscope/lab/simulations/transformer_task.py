"""The diagonal Transformer of boix2023, Example 3.2, learning from a teacher of its own form."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from rankscope.lab.simulations.task import Toy, gaussian
from rankscope.theory import Coordinate, DiagonalNetwork, square_error

Vector = Float[Tensor, " p"]
Tokens = Float[Tensor, "batch n d"]
Bases = Float[Tensor, "layers heads d d"]
FeedForward = tuple[Float[Tensor, "d hidden"], Float[Tensor, "d hidden"]]


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
        bases = torch.eye(d, dtype=x.dtype).expand_as(turned) if self.bases == "shared" else turned
        network = transformer_network(
            x, self.teacher_scale * z, bases=bases, feedforward=list(zip(W_A, W_B, strict=True))
        )
        return Toy(network, u0, v0)


def transformer_network(
    x: Tokens, teacher: Vector, *, bases: Bases, feedforward: Sequence[FeedForward]
) -> DiagonalNetwork:
    """Example 3.2 with each head's products diagonal in a given basis, and a teacher of its form.

    In the standard basis it is `theory.diagonal_transformer`, in the same order of coordinates.
    """
    layers, heads, d, _ = bases.shape
    coordinates = [
        Coordinate(kind, index, layer=layer, head=head)
        for layer in range(layers)
        for head in range(heads)
        for kind in ("kq", "vo")
        for index in range(d)
    ]

    def h(x: Tensor, z: Tensor) -> Tensor:
        return turned_transformer(x, z, bases=bases, feedforward=feedforward)

    return DiagonalNetwork(h, square_error, (x, h(x, teacher)), coordinates)


def turned_transformer(
    x: Tokens, z: Vector, *, bases: Bases, feedforward: Sequence[FeedForward]
) -> Tokens:
    """Z_L of Example 3.2 with W_K W_Q^T = R diag(kq) R^T and W_V W_O^T = R diag(vo) R^T."""
    layers, heads, d, _ = bases.shape
    kq, vo = z.view(layers, heads, 2, 1, d).unbind(2)
    KQ, VO = (bases * kq) @ bases.mT, (bases * vo) @ bases.mT  # (layers, heads, d, d)
    for layer, (W_A, W_B) in enumerate(feedforward):
        # All heads at once: many small products would take most of the time.
        asking = x @ KQ[layer].transpose(0, 1).flatten(1)  # (batch, n, heads d)
        asking = asking.unflatten(-1, (heads, d)).flatten(1, 2)  # (batch, n heads, d)
        mixed = torch.softmax(asking @ x.mT, -1) @ x
        x = x + mixed.unflatten(1, (-1, heads)).flatten(2) @ VO[layer].flatten(0, 1)
        x = x + F.gelu(x @ W_A) @ W_B.mT
    return x
