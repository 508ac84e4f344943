"""Overlaps against closed forms, invariances, and random vectors."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rankscope import overlaps
from rankscope.pairs import Cut, Pair
from rankscope.spectra import Svd, decompose

PLAIN = Pair("a", "b")
examples = settings(max_examples=25, deadline=None)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def orthonormal(size: int, count: int, seed: int) -> Tensor:
    square = torch.randn(size, size, dtype=torch.float64, generator=generator(seed))
    return torch.linalg.qr(square).Q[:, :count]


def decomposed(U: Tensor, V: Tensor) -> Svd:
    """A decomposition with the given vectors as columns."""
    return Svd(U=U, S=torch.ones(U.shape[1], dtype=torch.float64), Vh=V.mT)


def random_pair(d: int, j: int, k: int, seed: int) -> dict[str, Svd]:
    unused_a, unused_b = orthonormal(j, j, seed + 2), orthonormal(k, k, seed + 3)
    return {
        "a": decomposed(orthonormal(d, j, seed), unused_a),
        "b": decomposed(unused_b, orthonormal(d, k, seed + 1)),
    }


sizes = st.tuples(st.integers(4, 12), st.integers(1, 4), st.integers(1, 4), st.integers(0, 999))


@examples
@given(sizes)
def test_overlaps_are_those_of_the_vectors(size: tuple[int, int, int, int]) -> None:
    decompositions = random_pair(*size)
    A = overlaps.overlap(PLAIN, decompositions)
    for j, k in ((0, 0), (A.shape[0] - 1, A.shape[1] - 1)):
        u, v = decompositions["a"].U[:, j], decompositions["b"].Vh[k]
        assert A[j, k].item() == pytest.approx(abs(sum(x * y for x, y in zip(u, v, strict=True))))
    assert A.shape == size[1:3]
    assert torch.equal(overlaps.alignment(PLAIN, decompositions), A.diagonal())
    # Uncut vectors need no normalising.
    torch.testing.assert_close(overlaps.normalized_overlap(PLAIN, decompositions), A)


@examples
@given(sizes, st.integers(0, 999))
def test_signs_and_a_rotation_of_the_shared_space_change_nothing(
    size: tuple[int, int, int, int], seed: int
) -> None:
    before = random_pair(*size)
    d, j, k, _ = size
    rotation = orthonormal(d, d, seed)
    signs = torch.randint(2, (j + k,), generator=generator(seed)) * 2.0 - 1
    after = {
        "a": decomposed(rotation @ before["a"].U * signs[:j], before["a"].Vh.mT),
        "b": decomposed(before["b"].U, rotation @ before["b"].Vh.mT * signs[j:]),
    }
    torch.testing.assert_close(overlaps.overlap(PLAIN, after), overlaps.overlap(PLAIN, before))


@examples
@given(sizes, st.integers(1, 4))
def test_overlaps_lie_between_0_and_1_and_cutting_only_shortens(
    size: tuple[int, int, int, int], entries: int
) -> None:
    decompositions = random_pair(*size)
    cut = Cut((size[0],), ((0, entries),))
    pair = Pair("a", "b", earlier_cut=cut, later_cut=cut)
    raw = overlaps.overlap(pair, decompositions)
    normalized = overlaps.normalized_overlap(pair, decompositions)
    assert raw.min() >= 0
    assert normalized.max() <= 1
    assert (raw <= normalized + 1e-12).all()


def test_normalised_overlaps_are_cosines_of_the_cut_vectors() -> None:
    """The first two entries of (3, 4, 0) / 5 and (0, 0, 1) have lengths 1 and 0."""
    U = torch.tensor([[3.0], [4.0], [0.0]], dtype=torch.float64) / 5
    V = torch.tensor([[0.6, 0.0], [0.0, 0.0], [0.8, 1.0]], dtype=torch.float64)
    decompositions = {
        "a": decomposed(U, torch.ones(1, 1, dtype=torch.float64)),
        "b": decomposed(torch.eye(2, dtype=torch.float64), V),
    }
    cut = Cut((3,), ((0, 2),))
    pair = Pair("a", "b", earlier_cut=cut, later_cut=cut)
    assert overlaps.overlap(pair, decompositions).tolist() == [[pytest.approx(0.36), 0.0]]
    assert overlaps.normalized_overlap(pair, decompositions).tolist() == [[pytest.approx(0.6), 0.0]]


def test_sides_choose_left_or_right_vectors() -> None:
    """diag(2, 1) P, P a swap, has the left vectors of diag(2, 1), and its right ones swapped."""
    turn = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    scale = torch.diag(torch.tensor([2.0, 1.0], dtype=torch.float64))
    matrices = {"a": scale @ turn, "b": scale}
    decompositions = decompose(matrices, ranks={"a": 2, "b": 2})
    for earlier, later in product(("out", "in"), repeat=2):
        diagonal = [1.0, 1.0] if earlier == "out" else [0.0, 0.0]
        pair = Pair("a", "b", earlier_side=earlier, later_side=later)
        assert overlaps.alignment(pair, decompositions).tolist() == pytest.approx(diagonal)


def test_measure_is_the_four_numbers_of_a_pair() -> None:
    decompositions = random_pair(8, 4, 3, seed=5)
    pair = Pair("a", "b", earlier_cut=Cut((2, 4), (1, None)), later_cut=Cut((2, 4), (0, None)))
    measured = overlaps.measure(pair, decompositions, top=3)
    A = overlaps.overlap(pair, decompositions, top=3)
    B = overlaps.normalized_overlap(pair, decompositions, top=3)
    assert torch.equal(measured.diagonal, A.diagonal())
    assert torch.equal(measured.normalized_diagonal, B.diagonal())
    assert torch.equal(
        measured.normalized_diagonal, overlaps.normalized_alignment(pair, decompositions, top=3)
    )
    off = [(j, k) for j in range(3) for k in range(3) if j != k]
    for background, matrix in ((measured.background, A), (measured.normalized_background, B)):
        assert background.item() == pytest.approx(sum(matrix[j, k].item() for j, k in off) / 6)


def test_background_of_one_overlap_is_not_a_number() -> None:
    assert overlaps.background(torch.ones(1, 1)).isnan()


def test_mean_alignment_takes_the_first_ten_or_all_there_are() -> None:
    diagonal = torch.arange(20.0, dtype=torch.float64)
    assert overlaps.mean_alignment(diagonal) == 4.5
    assert overlaps.mean_alignment(diagonal[:3]) == 1.0
    assert overlaps.mean_alignment(diagonal.expand(2, 20)).tolist() == [4.5, 4.5]


def test_failed_decompositions_give_not_a_number_in_silence() -> None:
    decompositions = random_pair(6, 3, 3, seed=1)
    failed = decompositions["a"].U * math.nan
    decompositions["a"] = decomposed(failed, decompositions["a"].Vh.mT)
    cut = Cut((2, 3), (0, None))
    measured = overlaps.measure(Pair("a", "b", earlier_cut=cut, later_cut=cut), decompositions)
    assert all(value.isnan().all() for value in measured)


@pytest.mark.parametrize("d", [16, 256])
def test_chance_overlap_is_that_of_random_vectors(d: int) -> None:
    draws = 40_000
    vectors = torch.randn(draws, d, dtype=torch.float64, generator=generator(d))
    # By symmetry one of the two vectors may be the first axis.
    sample = vectors[:, 0].abs() / vectors.norm(dim=1)
    error = sample.std().item() / math.sqrt(draws)
    # The exact mean is larger by about 1 / (4 d).
    expected = sample.mean().item() / (1 + 1 / (4 * d))
    assert overlaps.chance_overlap(d) == pytest.approx(expected, abs=5 * error)


def test_a_balanced_deep_linear_pair_is_aligned() -> None:
    """W = U S V^T and W' = Q S U^T have W'^T W' = W W^T, and u_i = v'_i."""
    U, V, Q = (orthonormal(6, 5, seed) for seed in range(3))
    S = torch.tensor([9.0, 5.0, 3.0, 1.0, 0.1], dtype=torch.float64)
    earlier, later = (U * S) @ V.mT, (Q * S) @ U.mT
    assert overlaps.balancedness(earlier, later).item() == pytest.approx(0, abs=1e-15)
    decompositions = decompose({"a": earlier, "b": later}, ranks={"a": 5, "b": 5})
    torch.testing.assert_close(
        overlaps.alignment(PLAIN, decompositions), torch.ones(5, dtype=torch.float64)
    )
    assert overlaps.background(overlaps.overlap(PLAIN, decompositions)).item() < 1e-9


def test_balancedness_of_orthogonal_grams_is_1() -> None:
    earlier, later = torch.diag(torch.tensor([1.0, 0.0])), torch.diag(torch.tensor([0.0, 3.0]))
    # |9 e2 e2^T - e1 e1^T|_F = sqrt(82), over 9 + 1.
    assert overlaps.balancedness(earlier, later).item() == pytest.approx(math.sqrt(82) / 10)
    assert overlaps.balancedness(earlier, 0 * later).item() == pytest.approx(1)


def test_agreement_compares_directions_of_one_matrix() -> None:
    now = decomposed(orthonormal(6, 3, 0), orthonormal(4, 3, 1))
    turned = decomposed(-now.U, now.Vh[[1, 0, 2]].mT)
    out_side, in_side = overlaps.agreement(now, turned)
    assert out_side.tolist() == pytest.approx([1, 1, 1])
    assert in_side.tolist() == pytest.approx([0, 0, 1], abs=1e-15)
    assert overlaps.agreement(now, turned, top=2).in_side.shape == (2,)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (Pair("a", "missing"), "not among the decompositions"),
        (Pair("a", "b", later_side="out"), "8 entries of the earlier vectors meet 3 of the later"),
        (Pair("a", "b", earlier_cut=Cut((3, 3), (0, None))), "do not fit the cut's shape"),
        (Pair("a", "without"), "without vectors"),
    ],
)
def test_pairs_that_cannot_be_compared_say_why(pair: Pair, message: str) -> None:
    decompositions = random_pair(8, 4, 3, seed=0) | decompose({"without": torch.ones(3, 8)})
    with pytest.raises(ValueError, match=message):
        overlaps.overlap(pair, decompositions)
