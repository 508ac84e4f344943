"""Claim Y8 on a network of four layers with chosen ranks and alignment."""

import math

import pytest

from lab.claims.training_runs import PairCourse, course, flat, seeds, training_run
from rankscope.lab.claims.labels import alignment_kept, true_labels_give_lower_rank


def network(middle: tuple[int, int], a: tuple[float, ...], **options):
    """NER of the middle layers is given in hundredths; those at the ends would say the opposite."""
    ends, count = (100 - sum(middle) // 2, 20), len(a)
    ranks = {"fc1": ends[0], "fc2": middle[0], "fc3": middle[1], "fc4": ends[1]}
    spectra = {name: flat(100, [100] * (count - 1) + [rank]) for name, rank in ranks.items()}
    pairs = [
        PairCourse("fc1", "fc2", course([0.1] * count)),
        PairCourse("fc2", "fc3", course(a)),
        PairCourse("fc3", "fc4", course([0.9] + [0.1] * (count - 1))),
    ]
    return training_run(spectra, pairs, **options)


TRUE = ((40, 50), (0.1, 0.5, 0.4))
RANDOM = ((50, 60), (0.1, 0.5, 0.3))


def judged(true=TRUE, random=RANDOM, *, count: int = 3, **options):
    return true_labels_give_lower_rank(
        {
            "mlp/true-labels": seeds(network(*true), count),
            "mlp/random-labels": seeds(network(*random, **options), count),
        }
    )


def test_lower_rank_and_alignment_that_persists() -> None:
    verdict = judged()
    assert verdict.holds == "yes"
    assert verdict.value == pytest.approx(0.1, abs=1e-6)
    seed, _, layers, *kept = verdict.tables[0].rows[0]
    assert (seed, layers) == (0, "fc2 0.1, fc3 0.1")
    assert kept == pytest.approx([0.8, 0.6])


@pytest.mark.parametrize(
    ("true", "random", "holds"),
    [
        (((44, 54), TRUE[1]), RANDOM, "yes"),  # lower by 0.06
        (((46, 56), TRUE[1]), RANDOM, "no"),  # by 0.04
        (((50, 48), TRUE[1]), RANDOM, "yes"),  # by 0 and 0.12
        ((TRUE[0], (0.1, 0.5, 0.39)), RANDOM, "no"),
        (TRUE, (RANDOM[0], (0.1, 0.5, 0.31)), "no"),
    ],
)
def test_each_part_of_the_rule(true, random, holds: str) -> None:
    assert judged(true, random).holds == holds


def test_only_pairs_between_middle_layers_count() -> None:
    assert alignment_kept(network((50, 50), (0.2, 0.4, 0.1))) == pytest.approx(0.25)


def test_pairs_of_a_layer_that_died_say_nothing() -> None:
    assert alignment_kept(network((50, 50), (0.2, 0.4, 0.1))) > 0
    assert math.isnan(alignment_kept(network((50, 0), (0.2, 0.4, 0.1))))


def test_what_cannot_tell_of_labels() -> None:
    assert judged(count=2).holds == "undecided"
    memorised = judged(loss=(1.0, 0.98))
    assert memorised.holds == "undecided"
    assert memorised.evidence[0].startswith("mlp/random-labels, seed 0 collapsed: training loss")
    alone = true_labels_give_lower_rank({"mlp/true-labels": seeds(network(*TRUE))})
    assert (alone.holds, alone.networks) == ("undecided", ())


def test_two_layers_have_no_middle() -> None:
    spectra = {"fc1": flat(10, [10, 5]), "fc2": flat(10, [10, 5])}
    run = training_run(spectra, [PairCourse("fc1", "fc2", course([0.1, 0.2]))])
    results = {"mlp/true-labels": seeds(run), "mlp/random-labels": seeds(run)}
    assert true_labels_give_lower_rank(results).holds == "undecided"
