"""Claims Y2 and Y12 on spectra of r equal values, whose NER is r / R."""

import numpy as np
import pytest

from lab.claims.training_runs import flat, seeds, training_run
from rankscope.lab.claims.ranks import final_ranks, rank_falls, seeds_agree


def fallen(ends: list[int], R: int = 1000, **options):
    """Matrices that start at full rank R."""
    return training_run({f"w{n}": flat(R, [R, end]) for n, end in enumerate(ends)}, **options)


def test_final_rank_is_the_count_of_equal_values() -> None:
    run = training_run({"w": flat(20, [20, 5]), "last": flat(1, [1, 1])})
    assert final_ranks(run).to_series().to_dict() == {"w": pytest.approx(5 / 20)}


@pytest.mark.parametrize(
    ("ends", "holds"),
    [
        ([900, 900, 900, 900, 1000], "yes"),  # four fifths
        ([900, 900, 900, 1000, 1000], "no"),
        ([989] * 5, "yes"),  # by 0.011
        ([991] * 5, "no"),  # by 0.009
    ],
)
def test_four_fifths_fall_by_more_than_a_hundredth(ends: list[int], holds: str) -> None:
    judged = rank_falls({"lm/decay-0.1": seeds(fallen(ends))})
    assert judged.holds == holds
    assert judged.networks[0].value == sum(end < 990 for end in ends) / 5


def test_narrow_matrices_are_not_counted() -> None:
    spectra = {"wide": flat(8, [8, 4]), "narrow": flat(7, [7, 7]), "zero": flat(9, [0, 3])}
    judged = rank_falls({"unet/decay-0": seeds(training_run(spectra))})
    assert judged.holds == "yes"
    assert judged.tables[0].rows[0][-1] == "none of 1; 1 cannot tell"
    assert judged.tables[1].rows == (("unet", "NER falls", "-", "seed 0 1 2: zero"),)


def test_a_network_of_narrow_matrices_is_not_judged() -> None:
    judged = rank_falls({"unet/decay-0": seeds(fallen([3], R=7))})
    assert (judged.holds, judged.networks) == ("undecided", ())


def test_two_seeds_or_a_collapsed_one_leave_it_undecided() -> None:
    run = fallen([500])
    assert rank_falls({"lm/decay-0.1": seeds(run, 2)}).holds == "undecided"
    dead = run.assign(singular_values=run.singular_values * np.array([1, 1e-3])[:, None, None])
    judged = rank_falls({"lm/decay-0.1": {**seeds(run), 2: dead}})
    assert judged.holds == "undecided"
    assert "median norm fell" in judged.evidence[0]


def agreement(by_seed: list[list[int]], **options):
    runs = {seed: fallen(ends, **options) for seed, ends in enumerate(by_seed)}
    return seeds_agree({"vgg/decay-0.0001": runs})


def test_seeds_that_agree_on_nine_of_ten_matrices() -> None:
    judged = agreement([[500] * 10, [549] * 9 + [552], [520] * 10])
    assert judged.holds == "yes"
    assert judged.tables[0].rows == (("vgg", 0.9, "1 of 10: w9"),)
    assert judged.tables[1].rows == (("vgg", "range over seeds", "seed 0 1 2: w9", "-"),)
    assert [seed.value for seed in judged.networks[0].seeds] == [0.9] * 3


def test_a_matrix_that_died_in_one_seed_cannot_tell() -> None:
    judged = agreement([[500, 0], [500, 500], [500, 500]])
    assert judged.holds == "yes"
    assert judged.tables[0].rows == (("vgg", 1.0, "none of 1; 1 cannot tell"),)


def test_seeds_that_do_not() -> None:
    assert agreement([[500] * 10, [549] * 8 + [552] * 2, [520] * 10]).holds == "no"


def test_the_range_is_over_all_seeds() -> None:
    # neighbours differ by 0.03, the outermost by 0.06
    assert agreement([[500], [530], [560]]).holds == "no"


def test_agreement_of_fewer_seeds_is_undecided() -> None:
    judged = agreement([[500], [500]])
    assert (judged.holds, judged.value) == ("undecided", 1.0)
    assert agreement([[500]]).value is None


def test_a_collapsed_seed_takes_no_part_in_the_range() -> None:
    runs = {**seeds(fallen([500])), 3: fallen([900], loss=(1.0, 1.0))}
    judged = seeds_agree({"vgg/decay-0.0001": runs})
    assert judged.holds == "undecided"
    assert [seed.met for seed in judged.networks[0].seeds] == [True, True, True, None]
    assert judged.evidence[0].startswith("vgg, seed 3 collapsed")


def test_no_network_to_agree_on() -> None:
    assert seeds_agree({"grok/decay-1": seeds(fallen([500]))}).networks == ()
