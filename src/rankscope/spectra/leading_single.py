"""Leading part of a single matrix, from block Krylov spaces.

A space in the precision of the matrix finds the directions. Values and residuals come from products
in float64. Where that does not reach the tolerance, a second space in float64 starts from the
directions of the first.
"""

import math

import torch
from torch import Tensor

from rankscope.spectra.certificate import Bound, norm_left_out
from rankscope.spectra.krylov import Ritz, excess_of, leading_vectors
from rankscope.spectra.leading_part import CANCELLED, Leading
from rankscope.spectra.operator import Operator, of_tensor


def by_krylov(W: Operator, rank: int, energy: float, tolerance: float) -> Leading | None:
    """Return the leading part, or None if neither space reaches the tolerance."""
    start, columns = None, 0
    for operator in (W, None):
        if operator is None:
            operator = W.in_float64() if W.W is None else of_tensor(W.W.double())
        ritz = leading_vectors(
            operator,
            rank,
            energy=energy,
            tolerance=tolerance,
            limit=W.shape[1] // 2,
            start=start,
        )
        columns += ritz.columns
        part, bound = _measured(operator, ritz, energy, columns)
        # What lies below the rounding of the matrix's own format counts as rounding.
        rounding = 8 * torch.finfo(W.dtype).eps * math.sqrt(energy)
        if part.excess <= tolerance or part.remainder_norm <= rounding:
            return part
        start = torch.cat([part.Vh.mT, bound.V], dim=1)
    return None


def _measured(W: Operator, ritz: Ritz, energy: float, columns: int) -> tuple[Leading, Bound]:
    """Return the leading part in the Ritz vectors, with errors measured in float64."""
    precise, eps = W.in_float64(), torch.finfo(W.dtype).eps
    U, S, V = _rotated(precise, W.matmul(ritz.V.to(W.dtype)).double())
    residuals = (precise.matmul(V) - U * S).norm(dim=0)
    rest = _norm_left_out(W, U, S, V, energy)
    bound = norm_left_out(W, U, V)
    # W - (U * S) @ V^T is E beside the residuals, in rows that are orthogonal.
    remainder = math.hypot(bound.norm, float(residuals.norm())) + 8 * eps * float(S[0])
    missed = float((bound.values.square() - S[-1] ** 2).clamp(min=0.0).sum())
    eigenvalues = torch.cat([S, bound.values[:1].clamp(max=S[-1])]).square()
    left_out = max(rest, eps * math.sqrt(energy)) ** 2 or 1.0
    excess = max(
        ritz.excess, excess_of(eigenvalues, S * residuals, left_out), missed / (2 * left_out)
    )
    part = Leading(
        U=U,
        S=S,
        Vh=V.mT,
        frobenius=S.new_tensor(math.sqrt(energy)),
        residuals=residuals,
        remainder=S.new_tensor(min(remainder, rest)),
        remainder_norm=S.new_tensor(rest),
        excess=S.new_tensor(excess),
        columns=torch.tensor(columns, device=S.device),
    )
    return part, bound


def _rotated(W: Operator, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the SVD of W projected on the images: U^T W is S V^T up to rounding."""
    basis = torch.linalg.qr(images).Q
    P, R = torch.linalg.qr(W.transposed_matmul(basis))
    left, S, right = torch.linalg.svd(R)
    return basis @ right.mT, S, P @ left


def _norm_left_out(W: Operator, U: Tensor, S: Tensor, V: Tensor, energy: float) -> float:
    """Frobenius norm of W - (U * S) @ V^T, by differences of entries if those of energies cancel.

    U^T W is S V^T, so that both parts of W are orthogonal.
    """
    difference = energy - float(S.square().sum())
    if difference > CANCELLED * energy:
        return math.sqrt(difference)
    rests = (panel - (U * S) @ V[columns].mT for columns, panel in W.panels())
    return math.sqrt(sum(float(rest.square().sum()) for rest in rests))
