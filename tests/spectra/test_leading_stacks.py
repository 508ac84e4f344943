"""Leading parts of stacks of a GPU, computed here, against dense decompositions in float64."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from counting import Counting, there
from rankscope.matrices import Product
from rankscope.matrices.change import Change, formed
from rankscope.spectra import Leading, decompose_leading, leading_stacks, stacks, truncation
from rankscope.spectra.certificate_stacks import eigenvalues_left_out
from rankscope.spectra.chebyshev import leading_block
from rankscope.spectra.decomposition import Matrix, now_and_before
from rankscope.spectra.engine import Torch
from rankscope.spectra.leading_stacks import Solved
from rankscope.spectra.orthonormal import orthonormal
from rankscope.spectra.task import Task

K, WIDE, RANK, TOLERANCE = 310, 380, 12, 1e-4


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def with_values(S: Tensor, *, width: int = WIDE, seed: int = 0) -> Tensor:
    left, right = (
        torch.linalg.qr(normal(rows, len(S), seed=seed + i)).Q for i, rows in enumerate((K, width))
    )
    return (left * S) @ right.mT


i = torch.arange(1, K + 1, dtype=torch.float64)
flat = torch.linalg.svdvals(normal(K, WIDE)) / math.sqrt(WIDE)
SPECTRA = {
    "random": flat,
    "power law": 1 / i,
    "steep power law": i**-1.5,
    "exponential": 10 ** (-i / 80),
    "outliers": torch.cat([torch.tensor([100.0, 90.0, 20.0], dtype=torch.float64), flat[3:]]),
    "strong outlier": torch.cat([torch.tensor([3000.0], dtype=torch.float64), flat[1:]]),
    "all equal": torch.ones(K, dtype=torch.float64),
    "clusters": torch.tensor([3.0] * 10 + [2.0] * 100 + [1.0] * (K - 110), dtype=torch.float64),
    "rank 40": (i <= 40) * i**-0.5,
    "rank 30, equal": (i <= 30).double(),
}
HARD = {
    "rank 7": (i <= 7).double(),
    "rank 20 and dust": torch.where(i <= RANK, 1.0, 1e-5),
    "5 decades": 10 ** (-i / 2),
}


def solved(
    matrices: dict[str, Matrix],
    *,
    rank: int = RANK,
    engine: Torch | None = None,
    tolerance: float = TOLERANCE,
) -> dict[str, Solved]:
    """Solve matrices of one kind as a GPU does."""
    tasks = []
    for name, x in matrices.items():
        now, before = now_and_before(name, x)
        tasks.append(Task(name, now, before, rank))
    results = leading_stacks.solve_stack(tasks, tolerance, engine)
    return {result.task.name: result for result in results}


def dense(x: Matrix) -> Tensor:
    now, before = now_and_before("x", x)
    factors = [factor.double() for factor in (formed(now, before) if before else now)]
    return factors[0] if len(factors) == 1 else factors[0] @ factors[1].mT


def assert_leading(part: Leading, W: Tensor, rank: int, tolerance: float = TOLERANCE) -> None:
    """Check all that a part says about W."""
    exact = torch.linalg.svdvals(W)
    size, least = float(exact[0]), float(exact[rank:].norm())
    S, V = part.S, part.Vh.mT
    for vectors in (part.U, V):
        errors = vectors.mT @ vectors - torch.eye(rank, dtype=torch.float64)
        assert float(errors.abs().max()) < 1e-7
    assert bool((S.diff() <= 0).all()) and bool((exact[:rank] + 1e-10 * size >= S).all())
    torch.testing.assert_close(part.frobenius, W.norm(), rtol=1e-12, atol=0)
    left, right = (W @ V - part.U * S).norm(dim=0), (W.mT @ part.U - V * S).norm(dim=0)
    assert min(float(left.max()), float(right.max())) < 1e-11 * size
    lengths = left.hypot(right)
    torch.testing.assert_close(part.residuals, lengths, rtol=1e-5, atol=1e-9 * size)
    left_out = (W - (part.U * S) @ part.Vh).norm()
    torch.testing.assert_close(part.remainder_norm, left_out, rtol=1e-6, atol=0)
    assert float(left_out) <= (1 + tolerance) * least
    assert float(part.remainder_norm) <= (1 + tolerance) * least * (1 + 1e-7)
    assert float(left_out) <= (1 + float(part.excess) + 1e-6) * least
    spectral = torch.linalg.matrix_norm(W - (part.U * S) @ part.Vh, 2)
    assert float(exact[rank]) * (1 - 1e-12) <= float(spectral)
    assert float(spectral) <= float(part.remainder) * (1 + 1e-12)
    assert float(part.remainder) <= min(1.2 * float(spectral), float(part.remainder_norm))


def test_spectra_of_every_kind_in_one_stack() -> None:
    matrices = {name: with_values(S) for name, S in SPECTRA.items()}
    for name, result in solved(dict(matrices)).items():
        assert result.part is not None and not result.wrong, name
        assert result.part.excess <= TOLERANCE
        assert_leading(result.part, matrices[name], RANK)


def test_values_converge_twice_as_fast_as_directions() -> None:
    matrices = {name: with_values(S) for name, S in SPECTRA.items()}
    for name, (_, part, _) in solved(dict(matrices), tolerance=1e-9).items():
        exact = torch.linalg.svdvals(matrices[name])
        torch.testing.assert_close(part.S, exact[:RANK], rtol=0, atol=1e-8 * float(exact[0]))


def test_what_gram_matrices_cannot_resolve_is_left_to_others() -> None:
    results = solved({name: with_values(S) for name, S in (SPECTRA | HARD).items()})
    left = {name for name, result in results.items() if result.part is None}
    assert left == HARD.keys()
    assert not any(result.wrong for result in results.values())


def some(kind: str) -> dict[str, Matrix]:
    """Return four matrices of one kind."""
    names = "abcd"
    W = {name: normal(K, WIDE, seed=seed) * i[:, None] ** -0.5 for seed, name in enumerate(names)}
    W0 = {name: x + 0.01 * normal(K, WIDE, seed=10) for name, x in W.items()}
    left = {name: normal(400, K, seed=20 + seed) / i for seed, name in enumerate(names)}
    products = {name: Product(x, W[name].mT) for name, x in left.items()}
    moved = {name: Product(x + 0.01 * normal(400, K), W[name].mT) for name, x in left.items()}
    kinds: dict[str, dict[str, Matrix]] = {
        "float32": {name: x.float() for name, x in W.items()},
        "bfloat16": {name: x.bfloat16() for name, x in W.items()},
        "tall and wide": {name: x.mT if name in "bd" else x for name, x in W.items()},
        "huge": {name: 1e200 * x for name, x in W.items()},
        "tiny": {name: (1e-42 * x).float() for name, x in W.items()},
        "large": {name: (1e37 * x).float() for name, x in W.items()},
        "change": {name: Change(x.float(), W0[name].float()) for name, x in W.items()},
        "bfloat16 change": {
            name: Change(x.bfloat16(), W0[name].bfloat16()) for name, x in W.items()
        },
        "product": dict(products),
        "product change": {name: Change(x, moved[name]) for name, x in products.items()},
    }
    return kinds[kind]


KINDS = ("float32", "bfloat16", "tall and wide", "huge", "tiny", "large")
KINDS += ("change", "bfloat16 change", "product", "product change")


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_matrices(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "COLUMNS", 233)
    matrices = some(kind)
    for name, result in solved(matrices, rank=8).items():
        assert result.part is not None
        scale = 1e200 if kind == "huge" else 1.0  # whose squares the oracle cannot take
        sizes = ("S", "frobenius", "residuals", "remainder", "remainder_norm")
        small = {size: getattr(result.part, size) / scale for size in sizes}
        assert_leading(replace(result.part, **small), dense(matrices[name]) / scale, 8)


def test_what_is_zero_or_not_finite_has_parts_of_its_own() -> None:
    matrices = some("float32")
    matrices["b"][3, 4] = math.inf
    matrices["c"].zero_()
    results = solved(matrices, rank=8)
    assert results["b"].part.S.isnan().all() and results["b"].part.U.shape == (K, 8)
    assert not results["c"].part.S.any() and results["c"].part.remainder == 0
    for name in "ad":
        assert_leading(results[name].part, matrices[name].double(), 8)
    change = {name: Change(x, x) for name, x in some("bfloat16").items()}
    assert all(float(result.part.frobenius) == 0 for result in solved(change).values())


def wrong_value(values: Tensor, vectors: Tensor) -> None:
    values[-3] *= 1 + 1e-9


def not_a_number(values: Tensor, vectors: Tensor) -> None:
    values[-3] = math.nan


def nothing(values: Tensor, vectors: Tensor) -> None:
    values.zero_()


def wrong_vector(values: Tensor, vectors: Tensor) -> None:
    vectors[:, -2] += 1e-6 * vectors[:, -1]


def zero_vector(values: Tensor, vectors: Tensor) -> None:
    vectors[:, -2] = 0


def repeated_vector(values: Tensor, vectors: Tensor) -> None:
    vectors[:, -2] = vectors[:, -1]


LIES = (wrong_value, not_a_number, nothing, wrong_vector, zero_vector, repeated_vector)


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_solver_is_caught(lie: Callable[[Tensor, Tensor], None]) -> None:
    class Lying(Torch):
        def eigenvectors(self, G: Tensor) -> tuple[Tensor, Tensor]:
            values, vectors = super().eigenvectors(G)
            for one_values, one_vectors in zip(values[1::3], vectors[1::3], strict=True):
                lie(one_values, one_vectors)
            return values, vectors

    matrices = some("float32")
    results = solved(matrices, rank=8, engine=Lying())
    assert results["b"].part is None
    for name in "acd":
        assert_leading(results[name].part, matrices[name].double(), 8)


def test_a_solver_that_stops_is_tried_on_halves() -> None:
    class Stopping(Torch):
        def eigenvectors(self, G: Tensor) -> tuple[Tensor, Tensor]:
            if bool((G[:, 0, 0] > 1e6).any()):
                raise torch.linalg.LinAlgError("did not converge")
            return super().eigenvectors(G)

    matrices = some("float32")
    matrices["b"] = matrices["b"] * 1e9
    results = solved(matrices, rank=8, engine=Stopping())
    assert [name for name, result in results.items() if result.wrong] == ["b"]


def test_the_bound_holds_for_directions_that_miss_the_largest_value() -> None:
    G = torch.stack([with_values(S) @ with_values(S).mT for S in (*SPECTRA.values(), i**-3.0)])
    exact, vectors = torch.linalg.eigh(G)
    for U in (vectors[..., :RANK], vectors[..., -RANK - 1 : -1], vectors[..., -RANK:]):
        rest = G - U @ (U.mT @ G)
        largest = torch.linalg.matrix_norm(rest - (rest @ U) @ U.mT, 2)
        bound = eigenvalues_left_out(G, U.contiguous(), Torch())
        slack = 1e-12 * exact[:, -1]
        assert bool((bound.eigenvalue + slack >= largest).all())
        assert bool((bound.eigenvalue <= 1.36 * largest + slack).all())
        assert bool((bound.doubt < 1e-12).all())
        assert bool((bound.values[:, -1] <= largest + slack).all())


def test_columns_become_orthonormal_whatever_their_lengths_and_angles() -> None:
    Y = normal(K, 40) * 10.0 ** -torch.linspace(0, 100, 40, dtype=torch.float64)
    mixed = normal(K, 40) @ torch.diag(10.0 ** -torch.linspace(0, 9, 40)).double() @ normal(40, 40)
    Q = orthonormal(torch.stack([Y, mixed]))
    identity = torch.eye(40, dtype=torch.float64).expand(2, -1, -1)
    torch.testing.assert_close(Q.mT @ Q, identity, rtol=0, atol=1e-13)


def test_the_global_generator_and_the_matrices_stay_as_they_are() -> None:
    G = torch.stack([with_values(SPECTRA[name]) for name in ("random", "outliers")])
    G = G @ G.mT
    before, state = G.clone(), torch.get_rng_state()
    first, second = (leading_block(G, 8, tolerance=1e-6, engine=Torch()) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state) and torch.equal(G, before)
    assert torch.equal(first.X, second.X)


def test_tasks_of_a_gpu_take_the_way_of_stacks() -> None:
    matrices = {**some("float32"), "hard": with_values(HARD["rank 7"]).float()}
    matrices |= {"nan": matrices["a"] * math.nan, "small": normal(60, 90).float()}
    failed: list[str] = []
    redone: list[str] = []
    reports = {"on_failure": failed.extend, "on_redone": redone.extend}
    with Counting():
        there_ = {name: there(W) for name, W in matrices.items() if name not in ("hard", "small")}
        parts = decompose_leading(there_, 8, ranks={"b": 12}, tolerance=TOLERANCE, **reports)
        here = {name: part.to(torch.device("cpu")) for name, part in parts.items()}
    assert (failed, redone) == (["nan"], [])
    for name in "abcd":
        rank = 12 if name == "b" else 8
        assert here[name].S.shape == (rank,)
        assert_leading(here[name], matrices[name].double(), rank)


def test_what_has_no_room_on_a_gpu_is_decomposed_by_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Matrices that stacks leave to the solver of single ones may not fit either."""
    solve_one = truncation._of_task

    def cramped(task: Task, tolerance: float) -> Leading:
        if not task.on_cpu:
            raise torch.OutOfMemoryError("no room")
        return solve_one(task, tolerance)

    monkeypatch.setattr(truncation, "_of_task", cramped)
    W = with_values(HARD["rank 7"])
    redone: list[str] = []
    with Counting():
        hard = {name: there(W.float()) for name in "ab"}
        parts = decompose_leading(hard, 8, tolerance=TOLERANCE, on_redone=redone.extend)
        here = {name: part.to(torch.device("cpu")) for name, part in parts.items()}
    assert redone == ["a", "b"]
    for part in here.values():
        torch.testing.assert_close(part.S, torch.linalg.svdvals(W)[:8], rtol=0, atol=1e-6)
