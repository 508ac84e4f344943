"""Leading part of a matrix: values, directions, and the size of what they leave out."""

from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

# Below this share of the energy, a difference of energies has lost too many digits.
CANCELLED = 1e-7


@dataclass(frozen=True)
class Leading:
    """Leading part (U * S) @ Vh of a matrix, and how much it leaves out; all in float64.

    frobenius: Frobenius norm of the whole matrix.
    residuals: length of W v - s u and W^T u - s v together, for each direction.
    remainder: upper bound on the largest singular value that is left out.
    remainder_norm: Frobenius norm of all that is left out.
    excess: estimate of remainder_norm over the least possible one, less 1.
    columns: size of the space it was sought in; 0 where the full solver was used.
    """

    U: Float[Tensor, "*batch m r"]
    S: Float[Tensor, "*batch r"]
    Vh: Float[Tensor, "*batch r n"]
    frobenius: Float[Tensor, "*batch"]
    residuals: Float[Tensor, "*batch r"]
    remainder: Float[Tensor, "*batch"]
    remainder_norm: Float[Tensor, "*batch"]
    excess: Float[Tensor, "*batch"]
    columns: Int[Tensor, "*batch"]

    @property
    def mT(self) -> "Leading":
        """Leading part of the transposed matrix."""
        return replace(self, U=self.Vh.mT, Vh=self.U.mT)

    def to(self, device: torch.device) -> "Leading":
        """Leading part on another device."""
        return Leading(**{f.name: getattr(self, f.name).to(device) for f in fields(self)})

    def without_directions(self) -> "Leading":
        """Leading part with NaN for directions, which takes no memory for them."""
        absent = self.S.new_full((), torch.nan)
        return replace(self, U=absent.expand_as(self.U), Vh=absent.expand_as(self.Vh))

    def cut(self, rank: int) -> "Leading":
        """Return the part of the first `rank` directions, with what it leaves out."""
        if rank >= self.S.shape[-1]:
            return self
        rest = self.S[..., rank:]
        # What is cut off and what was left out share no rows and columns but for the residuals.
        remainder = rest[..., 0].maximum(self.remainder) + self.residuals.norm(dim=-1)
        return replace(
            self,
            U=self.U[..., :rank],
            S=self.S[..., :rank],
            Vh=self.Vh[..., :rank, :],
            residuals=self.residuals[..., :rank],
            remainder=remainder,
            remainder_norm=rest.norm(dim=-1).hypot(self.remainder_norm),
        )


def constant(
    shape: tuple[int, int], rank: int, value: float, device: torch.device | str
) -> Leading:
    """Leading part of a matrix that is zero, or not finite."""
    m, n = shape
    scalar = torch.full((), value, dtype=torch.float64, device=device)
    row = scalar.repeat(rank)
    return Leading(
        U=scalar + torch.eye(m, rank, device=device).double(),
        S=row,
        Vh=scalar + torch.eye(rank, n, device=device).double(),
        frobenius=scalar,
        residuals=row,
        remainder=scalar,
        remainder_norm=scalar,
        excess=scalar,
        columns=torch.zeros((), dtype=torch.int64, device=device),
    )
