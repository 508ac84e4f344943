"""Claim Y8 on a network of four layers with chosen ranks and alignment."""

import math

import pytest

from lab.papers.yunis2024.closed_form_runs import (
    PairCourse,
    course,
    flat,
    judged,
    only,
    rows,
    seeds,
    training_run,
)
from rankscope.lab.papers.yunis2024.claims.labels import RANDOM, TRUE, Y8, alignment_kept
from rankscope.lab.running.run_key import RunKey


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


def verdict_on(true=GOOD_TRUE, random=GOOD_RANDOM, **options):
    runs = {RANDOM: network(*random, **options), TRUE: network(*true)}
    return judged(Y8, {key(labels): seeds(run) for labels, run in runs.items()})


def test_lower_rank_and_alignment_that_persists() -> None:
    verdict = verdict_on()
    assert only(verdict).word == "holds"
    assert only(verdict).value == pytest.approx(0.1, abs=1e-6)
    row = rows(verdict)[0]
    assert [row["fc2 lower by"], row["fc3 lower by"]] == pytest.approx([0.1, 0.1], abs=1e-6)
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
    assert only(verdict_on(true, random)).word == word


def test_only_pairs_between_middle_layers_that_live_count() -> None:
    assert alignment_kept(network((50, 50), (0.2, 0.4, 0.1))) == pytest.approx(0.25)
    assert math.isnan(alignment_kept(network((50, 0), (0.2, 0.4, 0.1))))


def test_a_collapsed_run_or_one_alone_cannot_tell() -> None:
    collapsed = verdict_on(loss=(1.0, 0.98))
    assert only(collapsed).word == "no data"
    assert collapsed.remarks[0].startswith("mlp, random labels, seed 0 collapsed: training loss")
    assert judged(Y8, {key(TRUE): seeds(network(*GOOD_TRUE))}).networks == ()


def test_three_layers_have_no_pair_of_middle_layers() -> None:
    spectra = {f"fc{n}": flat(10, [10, 5]) for n in range(3)}
    run = training_run(spectra, [PairCourse("fc0", "fc1", course([0.1, 0.2]))])
    assert math.isnan(alignment_kept(run))
