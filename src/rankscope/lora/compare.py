"""Used directions of an adapter, differences of two, and directions that are new to the base."""

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.checkpoints.files import StrPath
from rankscope.lora.adapter import Adapter, open_adapter
from rankscope.lora.adapter_spectra import adapter_spectra
from rankscope.lora.columns import Row, rank_columns, shape_column, table_of
from rankscope.lora.factors import core
from rankscope.lora.spectrum import Spectrum
from rankscope.lora.targets import read_target, targets
from rankscope.matrices import Product, product_change
from rankscope.spectra import leading, svd

INTRUDER = 0.5  # cosine with every direction of the base below which one is new
TOP = 10
FIRST = 128  # directions of the base that are compared before all of them are computed
ZERO = 1e-6  # values below this share of the largest have directions that rounding chose


def used_directions(adapter: StrPath | Adapter) -> pd.DataFrame:
    """Return how many of its directions an adapter uses: one row per module.

    The columns are shape, r, norm of the change, effective and stable rank, and how many directions
    hold 50, 90 and 99% of the energy.
    """
    adapter = adapter if isinstance(adapter, Adapter) else open_adapter(adapter)
    rows = {}
    for module, spectrum in adapter_spectra(adapter).items():
        pair = adapter.pairs[module]
        rows[module] = {**shape_column(*pair.shape), "r": pair.rank, **rank_columns(spectrum)}
    return table_of(rows)


def difference_of(a: StrPath | Adapter, b: StrPath | Adapter) -> pd.DataFrame:
    """Return the spectrum of b - a by module: norms, ranks, and the cosine between the changes.

    The difference has the factors [B_b, -B_a] and [A_b, A_a]; it is never multiplied out. A module
    that only one of them has is compared with no change.
    """
    first, second = (x if isinstance(x, Adapter) else open_adapter(x) for x in (a, b))
    rows = {}
    for module in dict.fromkeys((*first.pairs, *second.pairs)):
        products = [x.product(module) if module in x.pairs else None for x in (first, second)]
        rows[module] = _difference_row(module, *products)
    return table_of(rows)


def _difference_row(module: str, before: Product | None, after: Product | None) -> Row:
    norms = [_inner(p, p) ** 0.5 if p is not None else 0.0 for p in (before, after)]
    if before is not None and after is not None and before.shape != after.shape:
        raise ValueError(
            f"module {module!r} has shape {before.shape} in one adapter and {after.shape} in the "
            "other; compare adapters of one model"
        )
    product, cosine = _minus(after, before), float("nan")
    if before is not None and after is not None and all(norms):
        cosine = _inner(before, after) / (norms[0] * norms[1])
    spectrum = Spectrum(core(product).S, *product.shape)
    sizes: Row = {"norm_a": norms[0], "norm_b": norms[1], "cosine": cosine}
    return {**shape_column(*product.shape), **sizes, **rank_columns(spectrum)}


def _minus(after: Product | None, before: Product | None) -> Product:
    if after is None or before is None:
        product = after if before is None else Product(-before.left, before.right)
        assert product is not None
        return product
    if after.left.shape[1] == before.left.shape[1]:
        return product_change(after, before)  # exact for adapters that hardly differ
    return Product(
        left=torch.cat([after.left, -before.left], dim=1),
        right=torch.cat([after.right, before.right], dim=1),
    )


def _inner(a: Product, b: Product) -> float:
    """Return the sum of products of the entries of two matrices, from their factors."""
    return float(((a.left.mT @ b.left) * (a.right.mT @ b.right)).sum())


def intruders(
    adapter: StrPath | Adapter,
    base: StrPath | Checkpoint,
    *,
    top: int = TOP,
    below: float = INTRUDER,
) -> pd.DataFrame:
    """Return how many leading directions of base + adapter are new to the base, by module.

    An intruder is one of the `top` left singular vectors whose cosine with each of the base's is
    below `below` (Shuttleworth et al. 2024, Algorithm 1). The columns are intruders, their
    positions from 1, and the smallest of the largest cosines.
    """
    if top < 1 or not 0 < below <= 1:
        raise ValueError(f"expected top >= 1 and below in (0, 1], got {top} and {below}")
    adapter = adapter if isinstance(adapter, Adapter) else open_adapter(adapter)
    base = base if isinstance(base, Checkpoint) else open_checkpoint(base)
    rows = {}
    for module, target in targets(adapter, base).items():
        product = adapter.product(module)
        W0 = target.matrix(read_target(base, target)).double()
        W = W0 + product.left @ product.right.mT
        cosines = _nearest(leading(W.float(), min(top, *W.shape)).U, W0.float())
        places = [i + 1 for i, cosine in enumerate(cosines.tolist()) if cosine < below]
        rows[module] = {
            **shape_column(*W.shape),
            "intruders": len(places),
            "positions": _ranges(places),
            "lowest_cosine": float(cosines.min()),
        }
    return table_of(rows)


def _nearest(U: Float[Tensor, "m r"], W0: Float[Tensor, "m n"]) -> Float[Tensor, " r"]:
    """Return the largest cosine of each direction with any left singular vector of W0.

    Squared cosines add up to 1 at most. The leading vectors are enough where no other can be nearer
    by that.
    """
    k = min(W0.shape)
    if k > FIRST:
        squares = (U.mT @ leading(W0, FIRST).U).square()
        if bool((1 - squares.sum(1) <= squares.amax(1)).all()):
            return squares.amax(1).sqrt()
    whole = svd(W0)
    known = whole.U[:, ZERO * whole.S[0] < whole.S]
    return (U.mT @ known.to(U)).abs().amax(1)


def _ranges(places: list[int]) -> str:
    """Return positions as text, such as "1-3, 6"."""
    starts = [p for p in places if p - 1 not in places]
    ends = [p for p in places if p + 1 not in places]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))
