"""Singular values and vectors of many matrices, in float64, on the device of the input.

Weights of 32 bits or fewer, products of factors and everything on a GPU are decomposed through Gram
matrices in float64 (`solvers.by_gram`). Float64 matrices on the CPU go through a direct SVD.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, overload

import numpy as np
import torch
from jaxtyping import Float, Num
from torch import Tensor

from rankscope.matrices.arrays import as_tensor
from rankscope.matrices.change import Change, formed
from rankscope.matrices.product import Product
from rankscope.matrices.reading import View
from rankscope.spectra.solvers import Svd
from rankscope.spectra.task import Task
from rankscope.spectra.tasks import Report, say_nothing, solve_all, warn_of_failure

Matrix = (
    Num[Tensor, "... m n"] | Num[np.ndarray, "... m n"] | Sequence[Any] | View | Product | Change
)


@overload
def singular_values(x: Matrix) -> Float[Tensor, "... k"]: ...
@overload
def singular_values(x: Mapping[str, Matrix]) -> dict[str, Float[Tensor, "... k"]]: ...
def singular_values(
    x: Matrix | Mapping[str, Matrix],
) -> Float[Tensor, "... k"] | dict[str, Float[Tensor, "... k"]]:
    """Return all singular values, descending, in float64; for a mapping, a dict with its names.

    Matrices may be NumPy arrays or nested lists too. Those of a model are `views(model)`.
    A Product of inner width r has min(m, n, r) of them. Non-finite entries give NaN and a
    RuntimeWarning.
    """
    if isinstance(x, Mapping):
        return {name: result.S for name, result in _decompose_batches(x, rank=0).items()}
    return svd(x, rank=0).S


def svd(x: Matrix, rank: int | None = None) -> Svd:
    """Return all singular values, and all directions or only the leading `rank` ones.

    W is (U * S) @ Vh. With rank=r, (U * S[:r]) @ Vh is the best approximation of rank r.
    """
    if rank is not None and rank < 0:
        raise ValueError(f"rank: expected a number of directions, 0 or more, got {rank}")
    name = x.name if isinstance(x, View) else "x"
    return _decompose_batches({name: x}, rank=rank)[name]


def decompose(
    matrices: Mapping[str, Matrix],
    *,
    ranks: Mapping[str, int] = MappingProxyType({}),
    threads: int | None = None,
    on_failure: Report = warn_of_failure,
    on_redone: Report = say_nothing,
) -> dict[str, Svd]:
    """Return all singular values of each matrix, and its leading directions.

    A matrix that is not finite, or on which no solver converges, gives NaN throughout.

    ranks: number of directions by name; 0 for names that are missing.
    threads: number of CPU threads; by default as many as torch uses in this thread.
    on_failure: called with the names of the matrices that gave NaN; by default it warns.
    on_redone: called with the names of the matrices that a GPU got wrong; the CPU decomposed them.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads: expected 1 or more, or None for torch's own, got {threads}")
    if not isinstance(matrices, Mapping):
        raise ValueError(
            f"decompose() takes matrices by name, got {type(matrices).__name__}; "
            "svd() takes one matrix"
        )
    tasks = {}
    for name, x in matrices.items():
        now, before = now_and_before(name, x)
        if now[0].ndim != 2:
            raise ValueError(
                f"matrix {name!r}: expected 2 axes, got shape {tuple(now[0].shape)}; "
                "singular_values() and svd() take leading axes"
            )
        tasks[name] = Task(name, now, before, rank=ranks.get(name, 0))
    results = solve_all(
        list(tasks.values()), threads=threads, on_failure=on_failure, on_redone=on_redone
    )
    return {name: results[task] for name, task in tasks.items()}


def _decompose_batches(matrices: Mapping[str, Matrix], *, rank: int | None) -> dict[str, Svd]:
    """Decompose matrices with leading axes; rank None means every direction."""
    factors_by_name = {name: factors_of(name, x) for name, x in matrices.items()}
    tasks = {name: _batch_tasks(name, factors, rank) for name, factors in factors_by_name.items()}
    all_tasks = [task for batch in tasks.values() for task in batch]
    results = solve_all(all_tasks, threads=None, on_failure=warn_of_failure)
    return {
        name: _batched([results[task] for task in tasks[name]], shape=factors[0].shape[:-2])
        for name, factors in factors_by_name.items()
    }


def _batch_tasks(name: str, factors: tuple[Tensor, ...], rank: int | None) -> list[Task]:
    if factors[0].ndim == 2:
        return [Task(name, factors, rank=rank)]
    flat = [f.flatten(0, -3) for f in factors]
    return [
        Task(f"{name}[{i}]", parts, rank=rank) for i, parts in enumerate(zip(*flat, strict=True))
    ]


def _batched(parts: Sequence[Svd], *, shape: Sequence[int]) -> Svd:
    if not shape:
        return parts[0]
    U, S, Vh = (
        torch.stack(tensors).reshape(*shape, *tensors[0].shape)
        for tensors in zip(*((part.U, part.S, part.Vh) for part in parts), strict=True)
    )
    return Svd(U=U, S=S, Vh=Vh)


def now_and_before(name: str, x: Matrix) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the factors of a matrix, and of what to subtract from it if it is a Change."""
    if isinstance(x, Change):
        return factors_of(name, x.now), factors_of(name, x.before)
    return factors_of(name, x), ()


def factors_of(name: str, x: Matrix) -> tuple[Tensor, ...]:
    """Return (W,), or (left, right) of a product; of a change, formed."""
    if isinstance(x, Change):
        return formed(*now_and_before(name, x))
    if isinstance(x, Product):
        factors: tuple[Tensor, ...] = (x.left, x.right)
    else:
        factors = (as_tensor(name, x.W if isinstance(x, View) else x),)
    for factor in factors:
        if factor.ndim < 2:
            raise ValueError(
                f"matrix {name!r}: expected 2 axes or more, got shape {tuple(factor.shape)}"
            )
        if factor.is_meta:
            raise ValueError(f"matrix {name!r} is on the meta device and has no values")
        if not factor.is_floating_point():
            raise ValueError(
                f"matrix {name!r}: expected real floating-point numbers, got {factor.dtype}; "
                "convert it first"
            )
    # Apple's GPUs have no float64.
    return tuple(f.detach().cpu() if f.device.type == "mps" else f.detach() for f in factors)
