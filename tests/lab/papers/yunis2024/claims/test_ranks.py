"""Claims Y2 and Y12 on spectra of r equal values, whose NER is r / R."""

import numpy as np
import pytest

from lab.papers.yunis2024.closed_form_runs import (
    at_decay,
    flat,
    judged,
    rows,
    seeds,
    training_run,
    words,
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
    verdict = judged(Y2, at_decay("lm", 0.1, seeds(fallen(ends))))
    assert words(verdict) == {"lm": word}
    assert verdict.networks[0].value == sum(end < 990 for end in ends) / 5


def test_narrow_matrices_are_not_counted() -> None:
    spectra = {"wide": flat(8, [8, 4]), "narrow": flat(7, [7, 7]), "zero": flat(9, [0, 3])}
    verdict = judged(Y2, at_decay("unet", 0, seeds(training_run(spectra))))
    assert words(verdict) == {"unet": "holds"}
    assert rows(verdict)[0]["exceptions"] == "none of 1; 1 cannot tell"
    assert verdict.tables[1].rows == (("unet", "NER falls", "-", "seed 0 1 2: zero"),)


def test_two_seeds_or_a_collapsed_one_do_not_settle_it() -> None:
    run = fallen([500])
    assert words(judged(Y2, at_decay("lm", 0.1, seeds(run, 2)))) == {"lm": "holds so far"}
    dead = run.assign(singular_values=run.singular_values * np.array([1, 1e-3])[:, None, None])
    verdict = judged(Y2, at_decay("lm", 0.1, {**seeds(run), 2: dead}))
    assert words(verdict) == {"lm": "holds so far"}
    assert "median norm fell" in verdict.remarks[0]


def agreement(by_seed: list[list[int]], **options):
    runs = {seed: fallen(ends, **options) for seed, ends in enumerate(by_seed)}
    return judged(Y12, at_decay("vgg", 1e-4, runs))


def test_seeds_that_agree_on_nine_of_ten_matrices() -> None:
    verdict = agreement([[500] * 10, [549] * 9 + [552], [520] * 10])
    assert words(verdict) == {"vgg": "holds"}
    assert {(row["share"], row["exceptions"]) for row in rows(verdict)} == {(0.9, "1 of 10: w9")}
    assert [row["median final NER"] for row in rows(verdict)] == pytest.approx([0.5, 0.549, 0.52])
    assert verdict.tables[1].rows == (("vgg", "range over seeds", "seed 0 1 2: w9", "-"),)
    assert [seed.value for seed in verdict.networks[0].seeds] == [0.9] * 3


def test_a_matrix_that_died_in_one_seed_cannot_tell() -> None:
    verdict = agreement([[500, 0], [500, 500], [500, 500]])
    assert words(verdict) == {"vgg": "holds"}
    assert rows(verdict)[0]["exceptions"] == "none of 1; 1 cannot tell"


def test_seeds_that_do_not_agree() -> None:
    verdict = agreement([[500] * 10, [549] * 8 + [552] * 2, [520] * 10])
    assert words(verdict) == {"vgg": "fails"}


def test_the_range_is_over_all_seeds() -> None:
    # neighbours differ by 0.03, the outermost by 0.06
    assert words(agreement([[500], [530], [560]])) == {"vgg": "fails"}


def test_agreement_of_fewer_seeds() -> None:
    verdict = agreement([[500], [500]])
    assert (words(verdict), verdict.networks[0].value) == ({"vgg": "holds so far"}, 1.0)
    alone = agreement([[500]])
    assert (words(alone), alone.networks[0].value) == ({"vgg": "no data"}, None)


def test_a_collapsed_seed_takes_no_part_in_the_range() -> None:
    runs = {**seeds(fallen([500])), 3: fallen([900], loss=(1.0, 1.0))}
    verdict = judged(Y12, at_decay("vgg", 1e-4, runs))
    assert [seed.met for seed in verdict.networks[0].seeds] == [True, True, True, None]
    assert verdict.remarks[0].startswith("vgg, decay 0.0001, seed 3 collapsed")


def test_no_network_to_agree_on() -> None:
    assert judged(Y12, at_decay("grok", 1, seeds(fallen([500])))).networks == ()
