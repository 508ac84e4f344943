"""Claims Y4 and Y5 on runs whose rank and alignment at each decay are chosen."""

import pytest

from lab.claims.training_runs import PairCourse, course, flat, seeds, training_run
from rankscope.lab.claims.decay import decay_lowers_rank, decay_strengthens_alignment

DECAYS = ("0", "0.1", "1", "10")


def ranked(ends: list[int], **options):
    """Matrices of 100 values; NER is end / 100. One of a single value beside them."""
    spectra = {f"w{n}": flat(100, [100, end]) for n, end in enumerate(ends)}
    return training_run({**spectra, "last": flat(1, [1, 1])}, **options)


def ranks(*by_decay: list[int], network: str = "lm", count: int = 3):
    return {
        f"{network}/decay-{decay}": seeds(ranked(ends), count)
        for decay, ends in zip(DECAYS, by_decay, strict=False)
    }


@pytest.mark.parametrize(
    ("by_decay", "holds"),
    [
        ([[90], [80], [70], [60]], "yes"),
        ([[80], [90], [70], [60]], "yes"),  # Spearman is -0.8
        ([[70], [90], [80], [60]], "no"),  # -0.4
        ([[60], [70], [80], [90]], "no"),
        ([[90], [89], [87], [84]], "yes"),  # by 0.06
        ([[90], [89], [87], [86]], "no"),  # by 0.04
        ([[90] * 5, [80] * 4 + [90], [70] * 4 + [90], [60] * 4 + [90]], "yes"),
        ([[90] * 5, [80] * 3 + [90] * 2, [70] * 3 + [90] * 2, [60] * 3 + [90] * 2], "no"),
    ],
)
def test_rank_falls_with_decay_far_enough_in_enough_matrices(
    by_decay: list[list[int]], holds: str
) -> None:
    assert decay_lowers_rank(ranks(*by_decay)).holds == holds


def test_what_the_table_of_decays_says() -> None:
    judged = decay_lowers_rank(ranks([90, 90], [80, 95], [60, 99]))
    assert judged.value == 0  # median of -1 and 1
    assert judged.tables[0].rows[0] == (
        "lm", 0, "0, 0.1, 1", "0.9, 0.875, 0.795", 0.0, 0.5, "1 of 2: w1"
    )  # fmt: skip


def test_a_matrix_that_died_at_some_decay_cannot_tell() -> None:
    judged = decay_lowers_rank(ranks([90, 90], [80, 80], [60, 0]))
    assert (judged.holds, judged.value) == ("yes", -1)
    assert judged.tables[0].rows[0][-1] == "none of 1; 1 cannot tell"
    assert judged.tables[1].rows == (("lm", "changes", "-", "seed 0 1 2: w1"),)


def test_two_decays_or_two_seeds_cannot_tell() -> None:
    judged = decay_lowers_rank(ranks([90], [60]))
    assert (judged.holds, judged.value) == ("undecided", None)
    assert judged.evidence[0] == "lm, seed 0: 2 of the 3 uncollapsed decays that it takes"
    assert decay_lowers_rank(ranks([90], [80], [60], count=2)).holds == "undecided"


def test_a_collapsed_run_reads_as_high_rank_and_is_left_out() -> None:
    results = ranks([90], [80], [60], network="vgg")
    results["vgg/decay-10"] = seeds(ranked([100], loss=(1.0, 1.0)))
    judged = decay_lowers_rank(results)
    assert judged.holds == "yes"
    assert sum("collapsed" in each for each in judged.evidence) == 3
    assert judged.tables[0].rows[0][2] == "0, 0.1, 1"


def test_without_decay_0_there_is_no_drop_from_it() -> None:
    results = ranks([90], [80], [70], [60])
    results["lm/decay-0"] = seeds(ranked([90], loss=(1.0, 1.0)))
    judged = decay_lowers_rank(results)
    assert (judged.holds, judged.value) == ("undecided", -1.0)
    assert "lm, seed 0: without decay 0 no drop from it" in judged.evidence


def aligned(*by_decay: float, network: str = "lm"):
    """One pair whose a at the end is given; its background is 0.1."""
    return {
        f"{network}/decay-{decay}": seeds(
            training_run(pairs=[PairCourse("u", "w", course([0, a]))])
        )
        for decay, a in zip(DECAYS, by_decay, strict=False)
    }


@pytest.mark.parametrize(
    ("by_decay", "holds"),
    [
        ((0.1, 0.12, 0.15, 0.4), "yes"),
        ((0.4, 0.15, 0.12, 0.1), "no"),
        ((0.1, 0.101, 0.102, 0.106), "yes"),  # a / background rises by 0.06
        ((0.1, 0.101, 0.102, 0.104), "no"),
    ],
)
def test_alignment_rises_with_decay(by_decay: tuple[float, ...], holds: str) -> None:
    judged = decay_strengthens_alignment(aligned(*by_decay))
    assert judged.holds == holds
    assert [each.network for each in judged.networks] == ["lm"]
    assert judged.evidence == (
        "strongest in the Transformer: not judged without lm and others; only lm",
    )


@pytest.mark.parametrize(("other", "holds"), [(0.39, "yes"), (0.41, "no"), (0.4, "no")])
def test_the_transformer_aligns_most(other: float, holds: str) -> None:
    results = {**aligned(0.1, 0.2, 0.4), **aligned(0.1, 0.2, other, network="unet")}
    judged = decay_strengthens_alignment(results)
    strongest = judged.networks[-1]
    assert (strongest.network, strongest.holds) == ("strongest in lm", holds)
    assert strongest.value == pytest.approx((0.4 - other) / 0.1)
    assert judged.holds == holds
    assert "the largest of unet, each at its largest uncollapsed decay" in judged.evidence[-1]


def test_the_lead_of_the_transformer_is_no_correlation() -> None:
    results = {**aligned(0.1, 0.2, 0.9), **aligned(0.1, 0.2, 0.15, network="unet")}
    judged = decay_strengthens_alignment(results)
    assert [each.value for each in judged.networks] == [0.5, 1.0, pytest.approx(7.5)]
    assert (judged.value, judged.interval) == (0.75, (0.5, 1.0))


def test_other_networks_alone_are_not_compared() -> None:
    results = {**aligned(0.1, 0.2, 0.4, network="vgg"), **aligned(0.1, 0.2, 0.3, network="lstm")}
    judged = decay_strengthens_alignment(results)
    assert (judged.holds, len(judged.networks)) == ("yes", 2)
    assert judged.evidence[-1].endswith("not judged without lm and others; only vgg, lstm")


def test_a_network_that_collapsed_at_every_decay_leaves_the_comparison_open() -> None:
    dead = training_run(pairs=[PairCourse("u", "w", course([0, 0.2]))], loss=(1.0, 1.0))
    results = {**aligned(0.1, 0.2, 0.4), "vgg/decay-0": seeds(dead)}
    strongest = decay_strengthens_alignment(results).networks[-1]
    assert (strongest.network, strongest.holds) == ("strongest in lm", "undecided")


def test_the_comparison_is_at_the_largest_uncollapsed_decay() -> None:
    results = {**aligned(0.1, 0.2, 0.4), **aligned(0.1, 0.2, 0.3, 0.9, network="unet")}
    dead = results["unet/decay-10"][0].assign(training_loss=("step", [1.0, 1.0]))
    assert decay_strengthens_alignment(results).networks[-1].holds == "no"
    results["unet/decay-10"] = seeds(dead)
    assert decay_strengthens_alignment(results).networks[-1].holds == "yes"
