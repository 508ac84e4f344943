"""Claims Y2 and Y12 on spectra of r equal values, whose NER is r / R."""

import pytest

from lab.papers.yunis2024.closed_form_runs import (
    at_decay,
    flat,
    judged,
    judged_at_base,
    only,
    rows,
    seeds,
    training_run,
)
from rankscope.lab.papers.yunis2024.claims.ranks import Y2, Y12, final_ranks


def fallen(ends: list[int], R: int = 1000, **options):
    """Matrices that start at full rank R."""
    return training_run({f"w{n}": flat(R, [R, end]) for n, end in enumerate(ends)}, **options)


def test_final_rank_is_the_count_of_equal_values() -> None:
    run = training_run({"w": flat(20, [20, 5]), "last": flat(1, [1, 1])})
    assert final_ranks(run).to_series().to_dict() == {"w": pytest.approx(5 / 20)}


@pytest.mark.parametrize(
    ("ends", "word"),
    [
        ([900, 900, 900, 900, 1000], "holds"),  # four fifths
        ([900, 900, 900, 1000, 1000], "fails"),
        ([989] * 5, "holds"),  # by 0.011
        ([991] * 5, "fails"),  # by 0.009
    ],
)
def test_four_fifths_fall_by_more_than_a_hundredth(ends: list[int], word: str) -> None:
    network = only(judged_at_base(Y2, "lm", fallen(ends)))
    assert (network.word, network.value) == (word, sum(end < 990 for end in ends) / 5)


def test_narrow_matrices_are_not_counted() -> None:
    spectra = {"wide": flat(8, [8, 4]), "narrow": flat(7, [7, 7]), "zero": flat(9, [0, 3])}
    verdict = judged_at_base(Y2, "unet", training_run(spectra))
    assert only(verdict).word == "holds"
    assert rows(verdict)[0]["exceptions"] == "none of 1; 1 cannot tell"
    assert verdict.tables[1].rows == (("unet", "NER falls", "-", "seed 0 1 2: zero"),)


def agreement(*by_seed: list[int]):
    return judged(Y12, at_decay("vgg", 1e-4, dict(enumerate(map(fallen, by_seed)))))


def test_seeds_that_agree_on_nine_of_ten_matrices() -> None:
    verdict = agreement([500] * 10, [549] * 9 + [552], [520] * 10)
    assert only(verdict).word == "holds"
    assert {(row["share"], row["exceptions"]) for row in rows(verdict)} == {(0.9, "1 of 10: w9")}
    assert [row["median final NER"] for row in rows(verdict)] == pytest.approx([0.5, 0.549, 0.52])
    assert verdict.tables[1].rows == (("vgg", "range over seeds", "seed 0 1 2: w9", "-"),)
    assert [seed.value for seed in only(verdict).seeds] == [0.9] * 3


@pytest.mark.parametrize(
    ("by_seed", "word", "share"),
    [
        ([[500] * 10, [549] * 8 + [552] * 2, [520] * 10], "fails", 0.8),
        ([[500], [530], [560]], "fails", 0),  # neighbours differ by 0.03, the outermost by 0.06
        ([[500, 0], [500, 500], [500, 500]], "holds", 1),  # a matrix that died cannot tell
        ([[500], [500]], "holds so far", 1),
        ([[500]], "no data", None),
    ],
)
def test_the_range_is_over_all_seeds(by_seed: list[list[int]], word: str, share) -> None:
    network = only(agreement(*by_seed))
    assert (network.word, network.value) == (word, share)


def test_a_collapsed_seed_takes_no_part_in_the_range() -> None:
    runs = {**seeds(fallen([500])), 3: fallen([900], loss=(1.0, 1.0))}
    verdict = judged(Y12, at_decay("vgg", 1e-4, runs))
    assert [seed.met for seed in only(verdict).seeds] == [True, True, True, None]
    assert verdict.remarks[0].startswith("vgg, decay 0.0001, seed 3 collapsed")
