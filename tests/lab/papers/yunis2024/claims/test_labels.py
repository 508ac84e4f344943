"""Claims Y8 and Y8b on a network of four layers with chosen ranks and alignment."""

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
    words,
)
from rankscope.lab.judging.rule import Rule
from rankscope.lab.papers.yunis2024.claims.labels import (
    RANDOM,
    TRUE,
    Y8,
    Y8_FIRST,
    Y8B,
    alignment_kept,
)
from rankscope.lab.running.run_key import RunKey


def network(middle: tuple[float, float], a: tuple[float, ...], **options):
    """NER of the middle layers is given in hundredths; those at the ends would say the opposite."""
    ends, count = (100 - sum(middle) / 2, 20), len(a)
    ranks = {"fc1": ends[0], "fc2": middle[0], "fc3": middle[1], "fc4": ends[1]}
    spectra = {
        name: flat(1000, [1000] * (count - 1) + [round(10 * rank)]) for name, rank in ranks.items()
    }
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


def verdict_on(true=GOOD_TRUE, random=GOOD_RANDOM, *, rule: Rule = Y8_FIRST, **options):
    runs = {RANDOM: network(*random, **options), TRUE: network(*true)}
    return judged(rule, {key(labels): seeds(run) for labels, run in runs.items()})


def test_lower_rank_and_alignment_that_persists() -> None:
    verdict = verdict_on()
    assert only(verdict).word == "holds"
    assert only(verdict).value == pytest.approx(0.1, abs=1e-6)
    row = rows(verdict)[0]
    assert [row["fc2 lower by"], row["fc3 lower by"]] == pytest.approx([0.1, 0.1], abs=1e-5)
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


def test_each_middle_layer_has_a_mark_of_its_own() -> None:
    verdict = verdict_on(((44, 50), GOOD_TRUE[1]), ((45.1, 50.9), GOOD_RANDOM[1]), rule=Y8)
    assert words(verdict) == {"mlp, middle layer 1": "holds", "mlp, middle layer 2": "fails"}
    assert [n.value for n in verdict.networks] == pytest.approx([0.011, 0.009], abs=1e-5)
    assert rows(verdict)[0]["NER, random"] == pytest.approx(0.451, abs=1e-5)


@pytest.mark.parametrize(
    ("random", "words_by_layer"),
    [
        ((42, 53), ["holds", "holds"]),
        ((40, 51), ["fails", "fails"]),  # equal
        ((39, 0), ["fails", "no data"]),  # a layer of zeros has no rank
    ],
)
def test_random_labels_give_higher_rank(random, words_by_layer: list[str]) -> None:
    true = ((40, 51), GOOD_TRUE[1])
    verdict = verdict_on(true, (random, GOOD_RANDOM[1]), rule=Y8)
    assert [network.word for network in verdict.networks] == words_by_layer


@pytest.mark.parametrize(
    ("true", "random", "word"),
    [
        ((0.1, 0.5, 0.375), (0.1, 0.4, 0.2), "holds"),  # 0.75 - 0.5
        ((0.1, 0.5, 0.35), (0.1, 0.5, 0.26), "fails"),  # by 0.18
        ((0.1, 0.5, 0.3), (0.1, 0.5, 0.4), "fails"),
        ((0.5, 0.6, 0.7), (0.5, 1.0, 0.75), "holds"),  # 1 - 0.75
    ],
)
def test_alignment_lasts_longer_with_true_labels(true, random, word: str) -> None:
    verdict = verdict_on((GOOD_TRUE[0], true), (GOOD_RANDOM[0], random), rule=Y8B)
    kept = true[-1] / max(true) - random[-1] / max(random)
    assert (only(verdict).word, only(verdict).value) == (word, pytest.approx(kept))


def test_a_dead_layer_leaves_no_middle_pair() -> None:
    verdict = verdict_on(random=((50, 0), GOOD_RANDOM[1]), rule=Y8B)
    assert (only(verdict).word, only(verdict).value) == ("no data", None)


def test_only_pairs_between_middle_layers_that_live_count() -> None:
    assert alignment_kept(network((50, 50), (0.2, 0.4, 0.1))) == pytest.approx(0.25)
    assert math.isnan(alignment_kept(network((50, 0), (0.2, 0.4, 0.1))))


@pytest.mark.parametrize("rule", [Y8, Y8B, Y8_FIRST], ids=lambda rule: rule.claim)
def test_a_collapsed_run_or_one_alone_cannot_tell(rule: Rule) -> None:
    collapsed = verdict_on(rule=rule, loss=(1.0, 0.98))
    assert {network.word for network in collapsed.networks} == {"no data"}
    assert collapsed.remarks[0].startswith("mlp, random labels, seed 0 collapsed: training loss")
    assert judged(rule, {key(TRUE): seeds(network(*GOOD_TRUE))}).networks == ()


def test_three_layers_have_no_pair_of_middle_layers() -> None:
    spectra = {f"fc{n}": flat(10, [10, 5]) for n in range(3)}
    run = training_run(spectra, [PairCourse("fc0", "fc1", course([0.1, 0.2]))])
    assert math.isnan(alignment_kept(run))
