"""Stage B of Algorithm 1 for a loss with a constant Hessian, such as a linear regression's.

A strictly convex loss has one KKT point on the orthant {s_i z_i >= 0}, so no flow has to be
followed to it. An active-set method, Lawson and Hanson's for non-negative least squares, finds it.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy.linalg import cho_solve, cholesky
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from torch import Tensor

from rankscope.theory.networks import DiagonalNetwork, Vector

SINGULAR = 1e-6  # smallest pivot, at a unit diagonal, of a Hessian that counts as definite
ZERO = 1e-10  # share of its terms below which a drive is zero up to rounding
SMALL = 64  # rows of a matrix for which Lanczos iteration does not pay


def constrained_minimum(
    network: DiagonalNetwork, z: Vector, sign: Vector
) -> tuple[Vector, "Factor"] | None:
    """Return the minimiser of the loss on the orthant of `sign`, and the Hessian's factor there.

    Returns None if it is not unique, or if no drive holds a coordinate at zero. The flow decides
    where these come to rest.

    z: where the search begins.
    sign: s_i of the coordinates that may move, 0 for all others.
    """
    hessian = network.constant_hessian
    assert hessian is not None
    inside = sign != 0
    for _ in range(3 * int(inside.sum()) + 10):
        support = inside.nonzero().flatten()
        factor = Factor.of(hessian[support][:, support])
        if factor is None:
            return None
        step = torch.zeros_like(z)
        step[support] = factor.solve(network.g(z)[support])
        crossing = inside & (sign * (z + step) <= 0)
        if bool(crossing.any()):
            shares = torch.where(
                crossing, (z / -step).nan_to_num(0), torch.inf
            )  # of the way to walls
            inside = inside & (shares > shares.min())
            z = torch.where(inside, z + shares.min() * step, 0.0)
            continue
        z = z + step
        z[support] += factor.solve(network.g(z)[support])  # takes away rounding errors
        waiting = (~inside & (sign != 0)).nonzero().flatten()
        push = (sign * network.g(z))[waiting]
        terms = hessian[waiting].abs() @ z.abs() + network.g(torch.zeros_like(z))[waiting].abs()
        if bool((push.abs() <= ZERO * terms).any()):
            return None
        if not bool((push > 0).any()):
            return z, factor
        inside[waiting[push.argmax()]] = True
    return None


@dataclass(frozen=True)
class Factor:
    """Cholesky factor of a definite matrix, scaled to a unit diagonal by `unit`."""

    lower: Float[np.ndarray, "s s"]
    unit: Float[np.ndarray, " s"]

    @classmethod
    def of(cls, matrix: Float[Tensor, "s s"]) -> "Factor | None":
        """Return the factor; None if the matrix is not definite beyond rounding."""
        diagonal = matrix.diagonal().numpy()
        if not (diagonal > 0).all():
            return None
        unit = diagonal**-0.5
        try:
            lower = cholesky(unit[:, None] * matrix.numpy() * unit, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            return None
        return cls(lower, unit) if lower.diagonal().min(initial=1.0) > SINGULAR else None

    def scaled(self, scale: Float[Tensor, " s"]) -> "Factor":
        """Return the factor of diag(scale) @ matrix @ diag(scale)."""
        return Factor(self.lower, self.unit / scale.numpy())

    def solve(self, right: Float[Tensor, " s"]) -> Float[Tensor, " s"]:
        """Return x with matrix @ x = right."""
        return torch.from_numpy(self._solve(right.numpy()))

    def smallest_eigenvalue(self) -> float:
        """Return the matrix's smallest eigenvalue, by Lanczos iteration with its inverse."""
        size = len(self.unit)
        if size <= SMALL:
            inverse = self._solve(np.eye(size))
            return 1 / float(np.linalg.eigvalsh((inverse + inverse.T) / 2)[-1])
        operator = LinearOperator((size, size), self._solve, dtype=np.float64)
        start = np.ones(size)  # a random start would differ from call to call
        try:
            values = eigsh(operator, k=1, v0=start, tol=1e-9, return_eigenvectors=False)
        except ArpackNoConvergence:
            inverse = self._solve(np.eye(size))
            values = np.linalg.eigvalsh((inverse + inverse.T) / 2)[-1:]
        return 1 / float(values[0])

    def _solve(self, right: Float[np.ndarray, " s *columns"]) -> Float[np.ndarray, " s *columns"]:
        unit = self.unit.reshape(-1, *[1] * (right.ndim - 1))
        solution: np.ndarray = unit * cho_solve(
            (self.lower, True), unit * right, check_finite=False
        )
        return solution
