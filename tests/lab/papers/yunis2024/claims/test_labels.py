"""Claim Y8 on a network of four layers with chosen ranks and alignment."""

import math

import pytest

from lab.papers.yunis2024.closed_form_runs import (
    PairCourse,
    course,
    flat,
    judged,
    rows,
    seeds,
    training_run,
    words,
)
from rankscope.lab.papers.yunis2024.claims.labels import RANDOM, TRUE, Y8, alignment_kept
from rankscope.lab.running.run import RunKey


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


def key(labels: str) -> RunKey:
    return RunKey("mlp", {"labels": labels}, experiment="yunis2024/mlp")


GOOD_TRUE = ((40, 50), (0.1, 0.5, 0.4))
GOOD_RANDOM = ((50, 60), (0.1, 0.5, 0.3))


def verdict_on(true=GOOD_TRUE, random=GOOD_RANDOM, *, count: int = 3, **options):
    return judged(
        Y8,
        {
            key(RANDOM): seeds(network(*random, **options), count),
            key(TRUE): seeds(network(*true), count),
        },
    )


def test_lower_rank_and_alignment_that_persists() -> None:
    verdict = verdict_on()
    assert words(verdict) == {"mlp": "holds"}
    assert verdict.networks[0].value == pytest.approx(0.1, abs=1e-6)
    row = rows(verdict)[0]
    assert (row["seed"], row["layers"]) == (0, "fc2 0.1, fc3 0.1")
    assert row["a(end) / max a, true"] == pytest.approx(0.8)
    assert row["a(end) / max a, random"] == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("true", "random", "word"),
    [
        (((44, 54), GOOD_TRUE[1]), GOOD_RANDOM, "holds"),  # lower by 0.06
        (((46, 56), GOOD_TRUE[1]), GOOD_RANDOM, "fails"),  # by 0.04
        (((50, 48), GOOD_TRUE[1]), GOOD_RANDOM, "holds"),  # by 0 and 0.12
        ((GOOD_TRUE[0], (0.1, 0.5, 0.39)), GOOD_RANDOM, "fails"),
        (GOOD_TRUE, (GOOD_RANDOM[0], (0.1, 0.5, 0.31)), "fails"),
    ],
)
def test_each_part_of_the_rule(true, random, word: str) -> None:
    assert words(verdict_on(true, random)) == {"mlp": word}


def test_only_pairs_between_middle_layers_count() -> None:
    assert alignment_kept(network((50, 50), (0.2, 0.4, 0.1))) == pytest.approx(0.25)


def test_pairs_of_a_layer_that_died_say_nothing() -> None:
    assert math.isnan(alignment_kept(network((50, 0), (0.2, 0.4, 0.1))))


def test_runs_that_cannot_tell_of_labels() -> None:
    assert words(verdict_on(count=2)) == {"mlp": "holds so far"}
    collapsed = verdict_on(loss=(1.0, 0.98))
    assert words(collapsed) == {"mlp": "no data"}
    assert collapsed.remarks[0].startswith("mlp, random labels, seed 0 collapsed: training loss")
    assert judged(Y8, {key(TRUE): seeds(network(*GOOD_TRUE))}).networks == ()


def test_two_layers_have_no_middle() -> None:
    spectra = {"fc1": flat(10, [10, 5]), "fc2": flat(10, [10, 5])}
    run = training_run(spectra, [PairCourse("fc1", "fc2", course([0.1, 0.2]))])
    verdict = judged(Y8, {key(TRUE): seeds(run), key(RANDOM): seeds(run)})
    assert words(verdict) == {"mlp": "no data"}
