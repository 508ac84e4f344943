"""How far the K-Q product of each head has moved, split into two parts.

With dK = K - K0 and dQ = Q - Q0 the change K^T Q - K0^T Q0 is dK^T Q0 + K0^T dQ, which is linear in
the change of the weights, plus dK^T dQ, which is bilinear. While the first part is much the larger,
the head follows its linearisation at the start.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankscope.lab.training.task import Machine, Problem, Task
from rankscope.matrices import Product, manifest, named_tensors

PARTS = ("linearised", "bilinear", "change")


@dataclass(frozen=True)
class WithHeadChanges:
    """A task of which every snapshot also has the norms that `HeadChanges` measures."""

    task: Task

    def build(self, machine: Machine, *, seed: int) -> Problem:
        problem = self.task.build(machine, seed=seed)
        problem.probe = HeadChanges(problem.model)
        return problem


class HeadChanges:
    """A probe for three norms of each head's change since it was made.

    The numbers are "kq_linearised_3", "kq_bilinear_3" and "kq_change_3" for the fourth head: heads
    are counted from 0 in the order of the run's products of kind kq.
    """

    def __init__(self, model: nn.Module) -> None:
        self._readings = [r for r in manifest(model).products if r.kind == "kq"]
        if not self._readings:
            raise ValueError(
                f"{type(model).__name__} has no K-Q products; give a model whose attention heads "
                "are found, see rankscope.products"
            )
        tensors = named_tensors(model)
        self._before = [_copied(r.product(tensors)) for r in self._readings]

    @property
    def directions(self) -> Mapping[str, int]:
        return {}

    def __call__(
        self, tensors: Mapping[str, Tensor], directions: Mapping[str, Tensor]
    ) -> dict[str, float]:
        norms = [
            change_norms(reading.product(tensors), before)
            for reading, before in zip(self._readings, self._before, strict=True)
        ]
        rows = torch.stack(norms).tolist()  # one wait for the device
        return {
            number_name(part, head): value
            for head, row in enumerate(rows)
            for part, value in zip(PARTS, row, strict=True)
        }


def number_name(part: str, head: int) -> str:
    """Return the name under which one norm of one head is stored."""
    return f"kq_{part}_{head}"


def change_norms(now: Product, before: Product) -> Float[Tensor, "3"]:
    """Frobenius norms of the linearised part, the bilinear part, and their sum, the whole change.

    All are formed in float64 from Gram matrices of the factors: |A B^T|^2 is the sum of the
    products of the entries of A^T A and B^T B.
    """
    left0, right0 = before.left.double(), before.right.double()
    left, right = now.left.to(left0), now.right.to(right0)
    d_left, d_right = left - left0, right - right0
    # Two terms with a common side by side form stay one product of twice the inner width.
    both = torch.cat([d_left, left0], dim=-1)
    return torch.stack(
        [
            _product_norm(both, torch.cat([right0, d_right], dim=-1)),
            _product_norm(d_left, d_right),
            _product_norm(both, torch.cat([right, d_right], dim=-1)),
        ]
    )


def _product_norm(left: Float[Tensor, "m r"], right: Float[Tensor, "n r"]) -> Float[Tensor, ""]:
    """Frobenius norm of left @ right.mT."""
    square = ((left.mT @ left) * (right.mT @ right)).sum()
    return square.clamp(min=0.0).sqrt()


def _copied(product: Product) -> Product:
    return Product(product.left.detach().double().clone(), product.right.detach().double().clone())
