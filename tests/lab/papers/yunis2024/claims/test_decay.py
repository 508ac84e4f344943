"""Claim Y4 and the first rule of Y5 on runs whose rank and alignment at each decay are chosen."""

import pytest

from lab.papers.yunis2024.closed_form_runs import (
    PairCourse,
    at_decay,
    course,
    flat,
    judged,
    only,
    over_decays,
    rows,
    training_run,
    words,
)
from rankscope.lab.papers.yunis2024.claims.decay import Y4, Y5_FIRST

MOST = "lm, most of all networks"


def ranked(ends: list[int], **options):
    """Matrices of 100 values; NER is end / 100. One of a single value beside them."""
    spectra = {f"w{n}": flat(100, [100, end]) for n, end in enumerate(ends)}
    return training_run({**spectra, "last": flat(1, [1, 1])}, **options)


def ranks(*by_decay: list[int], network: str = "lm"):
    return over_decays(network, *map(ranked, by_decay))


@pytest.mark.parametrize(
    ("by_decay", "word"),
    [
        ([[90], [80], [70], [60]], "holds"),
        ([[80], [90], [70], [60]], "holds"),  # Spearman is -0.8
        ([[70], [90], [80], [60]], "fails"),  # -0.4
        ([[60], [70], [80], [90]], "fails"),
        ([[90], [89], [87], [84]], "holds"),  # by 0.06
        ([[90], [89], [87], [86]], "fails"),  # by 0.04
        ([[90] * 5, [80] * 4 + [90], [70] * 4 + [90], [60] * 4 + [90]], "holds"),
        ([[90] * 5, [80] * 3 + [90] * 2, [70] * 3 + [90] * 2, [60] * 3 + [90] * 2], "fails"),
    ],
)
def test_rank_falls_with_decay_far_enough_in_enough_matrices(
    by_decay: list[list[int]], word: str
) -> None:
    assert words(judged(Y4, ranks(*by_decay))) == {"lm": word}


def test_the_table_lists_ranks_by_decay() -> None:
    verdict = judged(Y4, ranks([90, 90], [80, 95], [60, 99]))
    assert verdict.networks[0].value == 0  # median of -1 and 1
    assert verdict.tables[0].columns[-3:] == ("NER at 0", "NER at 0.1", "NER at 1")
    assert verdict.tables[0].rows[0][2:5] == (0.0, 0.5, "1 of 2: w1")
    assert verdict.tables[0].rows[0][5:] == pytest.approx((0.9, 0.875, 0.795))


def test_a_matrix_that_died_at_some_decay_cannot_tell() -> None:
    verdict = judged(Y4, ranks([90, 90], [80, 80], [60, 0]))
    assert (only(verdict).word, only(verdict).value) == ("holds", -1)
    assert rows(verdict)[0]["exceptions"] == "none of 1; 1 cannot tell"
    assert verdict.tables[1].rows == (("lm", "changes", "-", "seed 0 1 2: w1"),)


def test_two_decays_do_not_settle_it() -> None:
    verdict = judged(Y4, ranks([90], [60]))
    assert (only(verdict).word, only(verdict).value) == ("no data", None)
    assert verdict.remarks[0] == "lm, seed 0: 2 uncollapsed decays, 3 are needed"


def test_a_collapsed_run_reads_as_high_rank_and_is_left_out() -> None:
    collapsed = at_decay("vgg", 10, ranked([100], loss=(1.0, 1.0)))
    verdict = judged(Y4, ranks([90], [80], [60], network="vgg") | collapsed)
    assert only(verdict).word == "holds"
    assert sum("collapsed" in remark for remark in verdict.remarks) == 3
    assert "NER at 10" not in rows(verdict)[0]


def test_without_decay_0_there_is_no_drop_from_it() -> None:
    collapsed = at_decay("lm", 0, ranked([90], loss=(1.0, 1.0)))
    verdict = judged(Y4, ranks([90], [80], [70], [60]) | collapsed)
    assert (only(verdict).word, only(verdict).value) == ("no data", -1.0)
    assert any(remark.startswith("lm, seed 0: decay 0 collapsed") for remark in verdict.remarks)


def ending(a: float, **options):
    """One pair whose a at the end is given; its background is 0.1."""
    return training_run(pairs=[PairCourse("u", "w", course([0, a]))], **options)


def aligned(*by_decay: float, network: str = "lm"):
    return over_decays(network, *map(ending, by_decay))


@pytest.mark.parametrize(
    ("by_decay", "word"),
    [
        ((0.1, 0.12, 0.15, 0.4), "holds"),
        ((0.4, 0.15, 0.12, 0.1), "fails"),
        ((0.1, 0.101, 0.102, 0.106), "holds"),  # a / background rises by 0.06
        ((0.1, 0.101, 0.102, 0.104), "fails"),
    ],
)
def test_alignment_rises_with_decay(by_decay: tuple[float, ...], word: str) -> None:
    # Alone, the Transformer is compared with no other network.
    assert words(judged(Y5_FIRST, aligned(*by_decay))) == {"lm": word}


@pytest.mark.parametrize(("other", "word"), [(0.39, "holds"), (0.41, "fails"), (0.4, "fails")])
def test_the_transformer_aligns_most(other: float, word: str) -> None:
    runs = aligned(0.1, 0.2, 0.4) | aligned(0.1, 0.2, other, network="unet")
    networks = judged(Y5_FIRST, runs).networks
    (most,) = (network for network in networks if network.label == MOST)
    trends = [network for network in networks if network is not most]
    assert (most.label, most.word) == (MOST, word)
    assert most.value == pytest.approx((0.4 - other) / 0.1)
    assert "the largest of unet, each at its largest uncollapsed decay" in most.quantity
    assert [(trend.value, trend.quantity) for trend in trends] == [(1.0, "")] * 2


def test_other_networks_alone_are_not_compared() -> None:
    runs = aligned(0.1, 0.2, 0.4, network="vgg") | aligned(0.1, 0.2, 0.3, network="lstm")
    assert words(judged(Y5_FIRST, runs)) == {"vgg": "holds", "lstm": "holds"}


def test_a_network_that_collapsed_at_every_decay_leaves_the_comparison_open() -> None:
    dead = at_decay("vgg", 0, ending(0.2, loss=(1.0, 1.0)))
    assert words(judged(Y5_FIRST, aligned(0.1, 0.2, 0.4) | dead))[MOST] == "no data"


def test_the_comparison_is_at_the_largest_uncollapsed_decay() -> None:
    runs = aligned(0.1, 0.2, 0.4) | aligned(0.1, 0.2, 0.3, 0.9, network="unet")
    dead = at_decay("unet", 10, ending(0.9, loss=(1.0, 1.0)))
    assert words(judged(Y5_FIRST, runs))[MOST] == "fails"
    assert words(judged(Y5_FIRST, runs | dead))[MOST] == "holds"
