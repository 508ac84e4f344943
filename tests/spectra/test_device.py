"""Stacks of a GPU, computed here: they agree with the CPU's, and a solver that lies is caught."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rankscope.matrices import Product
from rankscope.matrices.change import Change
from rankscope.spectra import decompose, device, stacks
from rankscope.spectra.decomposition import Matrix, now_and_before
from rankscope.spectra.engine import Torch
from rankscope.spectra.stacks import gathered
from rankscope.spectra.task import Solved, Task


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype)


def tasks_of(matrices: dict[str, Matrix], rank: int) -> list[Task]:
    tasks = []
    for name, x in matrices.items():
        now, before = now_and_before(name, x)
        tasks.append(Task(name, now, before, rank))
    return tasks


def solved(
    matrices: dict[str, Matrix], *, rank: int = 0, engine: Torch | None = None
) -> dict[str, Solved]:
    """Solve matrices of one kind as a GPU does."""
    results = device.solve_batch(tasks_of(matrices, rank), engine)
    return {result.task.name: result for result in results}


def some(kind: str) -> dict[str, Matrix]:
    """Return six matrices of one kind, of which the second is hard and the third zero."""
    hard = normal(30, 80) * 10.0 ** -torch.linspace(0, 9, 30)[:, None]
    W = {f"w{i}": normal(30, 80, seed=i) for i in range(6)} | {"w1": hard, "w2": hard * 0}
    left = {f"p{i}": normal(90, 12, seed=i, dtype=torch.float64) for i in range(6)}
    right = {f"p{i}": normal(700, 12, seed=9 + i, dtype=torch.float64) for i in range(6)}
    products = {name: Product(left[name], right[name]) for name in left}
    products["p1"].right[:, 3] *= 1e-9
    products["p2"].right[:, 3] = 0
    move = [1e-9 * normal(m, 12, seed=50 + m, dtype=torch.float64) for m in (90, 700)]
    kinds: dict[str, dict[str, Matrix]] = {
        "float32": dict(W),
        "bfloat16": {name: x.bfloat16() for name, x in W.items()},
        "float64": {name: 1e200 * x.double() for name, x in W.items()},
        "tall and wide": {name: x.mT if i % 2 else x for i, (name, x) in enumerate(W.items())},
        "change": {name: Change(x, W["w0"]) for name, x in W.items()},
        "product": dict(products),
        "product change": {
            name: Change(x, Product(x.left + move[0], x.right + move[1]))
            for name, x in products.items()
        },
    }
    return kinds[kind]


KINDS = ("float32", "bfloat16", "float64", "tall and wide", "change", "product", "product change")


@pytest.mark.parametrize("rank", [0, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_stacks_agree_with_one_by_one(
    kind: str, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "COLUMNS", 33)
    matrices = some(kind)
    alone = decompose(matrices, ranks=dict.fromkeys(matrices, rank))
    together = solved(matrices, rank=rank)
    assert together.keys() == matrices.keys()
    for name, (_, svd, failed, redone) in together.items():
        expected, largest = alone[name], float(alone[name].S[0])
        assert (failed, redone) == (False, False)
        torch.testing.assert_close(svd.S, expected.S, rtol=0, atol=2e-11 * largest)
        assert (svd.U.shape, svd.Vh.shape) == (expected.U.shape, expected.Vh.shape)
        if rank and largest:
            core = svd.U.mT @ (expected.U * expected.S[:rank]) @ (expected.Vh @ svd.Vh.mT)
            torch.testing.assert_close(
                core, torch.diag(svd.S[:rank]), rtol=0, atol=1e-8 * largest, msg=name
            )


def test_what_is_not_finite_fails_alone() -> None:
    W = {name: normal(9, 14, seed=i) for i, name in enumerate("abc")}
    W["b"][3, 4] = math.inf
    results = solved(dict(W), rank=2)
    assert [name for name, result in results.items() if result.failed] == ["b"]
    assert results["b"].svd.S.isnan().all() and results["b"].svd.U.shape == (9, 2)
    huge = torch.full((2, 2), 1e300, dtype=torch.float64)
    assert solved({"overflow": Product(huge, huge)})["overflow"].failed


def test_empty_matrices_have_no_values() -> None:
    assert solved({"empty": torch.zeros(4, 0)})["empty"].svd.S.shape == (0,)


class Lying(Torch):
    """A solver that is wrong about the second matrix of a stack."""

    def __init__(self, lie: Callable[[Tensor, Tensor | None], None]) -> None:
        self._lie = lie

    def eigenvalues(self, G: Tensor) -> Tensor:
        values = super().eigenvalues(G)
        self._lie(values[1], None)
        return values

    def eigenvectors(self, G: Tensor) -> tuple[Tensor, Tensor]:
        values, vectors = super().eigenvectors(G)
        self._lie(values[1], vectors[1])
        return values, vectors


def wrong_value(values: Tensor, vectors: Tensor | None) -> None:
    values[4] *= 1 + 1e-9


def two_wrong_values(values: Tensor, vectors: Tensor | None) -> None:
    """Keep the sum of all values."""
    values[3] -= 1e-6 * values[-1]
    values[4] += 1e-6 * values[-1]


def swapped_values(values: Tensor, vectors: Tensor | None) -> None:
    values[[2, 5]] = values[[5, 2]]


def not_a_number(values: Tensor, vectors: Tensor | None) -> None:
    values[3] = math.nan


def nothing(values: Tensor, vectors: Tensor | None) -> None:
    values.zero_()


def wrong_vector(values: Tensor, vectors: Tensor | None) -> None:
    if vectors is not None:
        vectors[:, -2] += 1e-6 * vectors[:, 0]


def swapped_vectors(values: Tensor, vectors: Tensor | None) -> None:
    if vectors is not None:
        vectors[:, [-1, -2]] = vectors[:, [-2, -1]]


def zero_vector(values: Tensor, vectors: Tensor | None) -> None:
    if vectors is not None:
        vectors[:, -2] = 0


def repeated_vector(values: Tensor, vectors: Tensor | None) -> None:
    """Lie about a vector of a value that is there twice, so that no residual tells."""
    if vectors is not None:
        vectors[:, -2] = vectors[:, -1]


VALUE_LIES = (wrong_value, two_wrong_values, swapped_values, not_a_number, nothing)
VECTOR_LIES = (wrong_vector, swapped_vectors, zero_vector, repeated_vector)


@pytest.mark.parametrize(
    ("lie", "rank"),
    [*((lie, rank) for lie in VALUE_LIES for rank in (0, 3)), *((lie, 3) for lie in VECTOR_LIES)],
)
@pytest.mark.parametrize("kind", ["float32", "product change"])
def test_a_lying_solver_is_caught_and_its_matrix_redone(
    lie: Callable[[Tensor, Tensor | None], None], rank: int, kind: str
) -> None:
    named = list(some(kind).items())
    matrices = dict([named[0], *named[3:]])  # none is hard
    if lie is repeated_vector:
        matrices = {
            str(i): torch.eye(12, 20) * torch.arange(2, 14).clamp(max=12)[:, None] for i in range(3)
        }
    results = solved(matrices, rank=rank, engine=Lying(lie))
    second = list(matrices)[1]
    assert [name for name, result in results.items() if result.redone] == [second]
    alone = decompose(matrices, ranks=dict.fromkeys(matrices, rank))
    for name, result in results.items():
        assert not result.failed
        torch.testing.assert_close(
            result.svd.S, alone[name].S, rtol=0, atol=1e-11 * float(alone[name].S[0])
        )
    redone = results[second].svd
    assert torch.equal(redone.U, alone[second].U)


@pytest.mark.parametrize("place", [-1, 2])
def test_lies_while_refining_are_caught(place: int) -> None:
    """The one at `place` is far below what the sum of all values resolves."""
    hard = normal(30, 80) * 10.0 ** -torch.linspace(0, 9, 30)[:, None]
    matrices: dict[str, Matrix] = {
        name: normal(30, 80, seed=i) @ torch.diag(torch.ones(80)) for i, name in enumerate("ab")
    }
    matrices |= {"c": hard, "d": hard.flip(1)}

    class LyingLater(Torch):
        def eigenvalues(self, G: Tensor) -> Tensor:
            values = super().eigenvalues(G)
            if len(G) == 2:  # the hard ones, once more
                values[1, place] *= 2
            return values

    results = solved(matrices, engine=LyingLater())
    assert [name for name, result in results.items() if result.redone] == ["d"]


@pytest.mark.parametrize("rank", [0, 3])
def test_wrong_vectors_that_small_values_are_refined_by_are_caught(rank: int) -> None:
    """No leading direction is wrong, and the sum of all values does not tell."""

    def repeated(values: Tensor, vectors: Tensor | None) -> None:
        if vectors is not None:
            vectors[:, 0] = vectors[:, 1]

    hard = normal(30, 80) * 10.0 ** -torch.linspace(0, 9, 30)[:, None]
    matrices: dict[str, Matrix] = {"a": hard, "b": hard.flip(1), "c": hard.roll(1, 1)}
    results = solved(matrices, rank=rank, engine=Lying(repeated))
    assert [name for name, result in results.items() if result.redone] == ["b"]
    for name, result in results.items():
        exact = torch.linalg.svdvals(matrices[name].double())
        torch.testing.assert_close(result.svd.S, exact, rtol=0, atol=1e-11 * float(exact[0]))


def test_wrong_triangular_factors_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = stacks.triangular

    def lying(A: Tensor) -> Tensor:
        R = exact(A).clone()
        R[1, 0, 3] += 1e-9 * R[1, 0, 0]
        return R

    monkeypatch.setattr(stacks, "triangular", lying)
    results = solved(some("product"))
    assert [name for name, result in results.items() if result.redone] == ["p1"]


def test_a_solver_that_stops_is_replaced_by_halves() -> None:
    W = {f"w{i}": normal(6, 9, seed=i) for i in range(8)}
    bad = gathered(tasks_of({"bad": W["w5"]}, 0)).G[0]

    class Stopping(Torch):
        def eigenvectors(self, G: Tensor) -> tuple[Tensor, Tensor]:
            if any(torch.allclose(one, bad) for one in G):
                raise torch.linalg.LinAlgError("did not converge")
            return super().eigenvectors(G)

    results = solved(dict(W), engine=Stopping())
    assert [name for name, result in results.items() if result.redone] == ["w5"]
    alone = decompose(W)
    for name, result in results.items():
        torch.testing.assert_close(result.svd.S, alone[name].S, rtol=0, atol=1e-12)
