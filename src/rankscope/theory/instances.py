"""Networks that boix2023 applies its theorem to, as DiagonalNetworks with named coordinates."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from rankscope.theory.networks import Coordinate, DiagonalNetwork, square_error

Tokens = Float[Tensor, "batch n d"]
FeedForward = tuple[Float[Tensor, "d hidden"], Float[Tensor, "d hidden"]]
Bases = Float[Tensor, "layers heads d d"]


def whitened_network(optimum: Float[Tensor, " p"]) -> DiagonalNetwork:
    """Return L(z) = |z - optimum|^2 / 2: coordinates are independent, T_k = 1 / |optimum|_(k)."""
    ones = torch.ones(1, len(optimum), dtype=torch.float64)
    return DiagonalNetwork(
        lambda x, z: x * z,
        square_error,
        (ones, optimum[None]),
        coordinates=len(optimum),
        hessian=torch.eye(len(optimum), dtype=torch.float64),
    )


def linear_network(x: Float[Tensor, "batch p"], target: Float[Tensor, " batch"]) -> DiagonalNetwork:
    """Return the diagonal linear network sum_i u_i v_i x_i (footnote 2).

    The loss is half the mean square error.
    With A = x^T x / batch and r = x^T target / batch: g(z) = r - A z.
    """
    x = x.double()
    return DiagonalNetwork(
        lambda x, z: x @ z,
        square_error,
        (x, target),
        coordinates=x.shape[1],
        hessian=x.mT @ x / len(x),
    )


def diagonal_attention(x: Tokens, kq: Float[Tensor, " d"], vo: Float[Tensor, " d"]) -> Tokens:
    """Return smax(X diag(kq) X^T) X diag(vo), one head with diagonal weights (Eq. 1)."""
    return torch.softmax((x * kq) @ x.transpose(-1, -2), -1) @ x * vo


def diagonal_head(x: Tokens, target: Tokens) -> DiagonalNetwork:
    """Return one diagonal attention head (Eq. 1); z holds d entries of K-Q, then d of V-O."""
    d = x.shape[-1]
    return DiagonalNetwork(
        lambda x, z: diagonal_attention(x, z[:d], z[d:]),
        square_error,
        (x, target),
        head_coordinates(d),
    )


def head_coordinates(d: int, *, layer: int = 0, head: int = 0) -> tuple[Coordinate, ...]:
    """Name the entries of one head's K-Q product, then of its V-O product."""
    return tuple(
        Coordinate(kind, i, layer=layer, head=head) for kind in ("kq", "vo") for i in range(d)
    )


def transformer_output(
    x: Tokens,
    z: Float[Tensor, " p"],
    *,
    heads: int,
    feedforward: Sequence[FeedForward],
    bases: Bases | None = None,
) -> Tokens:
    """Return Z_L of Example 3.2: attention heads and feed-forward layers with residual paths.

    z: the products of all heads, ordered as (layer, head, K-Q or V-O, d).
    feedforward: W_A and W_B of each layer; sigma is GELU.
    bases: a rotation R for each head, whose products are R diag(kq) R^T and R diag(vo) R^T. The
        default is the standard basis, as in the paper. Heads that share a basis are exchangeable.
    """
    layers, d = len(feedforward), x.shape[-1]
    if bases is None:
        bases = torch.eye(d, dtype=torch.float64).expand(layers, heads, d, d)
    kq, vo = z.view(layers, heads, 2, 1, d).unbind(2)
    KQ, VO = (bases * kq) @ bases.mT, (bases * vo) @ bases.mT  # (layers, heads, d, d)
    for layer, (W_A, W_B) in enumerate(feedforward):
        # All heads at once: many small products would take most of the time.
        queries = x @ KQ[layer].transpose(0, 1).flatten(1)  # (batch, n, heads d)
        queries = queries.unflatten(-1, (heads, d)).flatten(1, 2)  # (batch, n heads, d)
        mixed = torch.softmax(queries @ x.mT, -1) @ x
        x = x + mixed.unflatten(1, (-1, heads)).flatten(2) @ VO[layer].flatten(0, 1)
        x = x + F.gelu(x @ W_A) @ W_B.mT
    return x


def diagonal_transformer(
    x: Tokens,
    target: Tokens,
    *,
    heads: int,
    feedforward: Sequence[FeedForward],
    bases: Bases | None = None,
) -> DiagonalNetwork:
    """Return Example 3.2: a layer per pair (W_A, W_B) of frozen weights; only attention trains."""
    coordinates = [
        coordinate
        for layer in range(len(feedforward))
        for head in range(heads)
        for coordinate in head_coordinates(x.shape[-1], layer=layer, head=head)
    ]
    frozen = tuple((W_A.detach().double(), W_B.detach().double()) for W_A, W_B in feedforward)
    return DiagonalNetwork(
        lambda x, z: transformer_output(x, z, heads=heads, feedforward=frozen, bases=bases),
        square_error,
        (x, target),
        coordinates,
    )
