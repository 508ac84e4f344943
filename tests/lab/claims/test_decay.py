"""Claims Y4, Y5 and Y7 on runs whose rank and alignment at each decay are chosen."""

import pytest

from lab.claims.training_runs import PairCourse, course, flat, seeds, training_run
from rankscope.lab.claims.decay import (
    decay_lowers_rank,
    decay_strengthens_alignment,
    high_decay_trains,
)

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


@pytest.mark.parametrize(("other", "holds"), [(0.39, "yes"), (0.41, "no"), (0.4, "no")])
def test_the_transformer_aligns_most(other: float, holds: str) -> None:
    results = {**aligned(0.1, 0.2, 0.4), **aligned(0.1, 0.2, other, network="unet")}
    judged = decay_strengthens_alignment(results)
    strongest = judged.networks[-1]
    assert (strongest.network, strongest.holds) == ("strongest in lm", holds)
    assert strongest.value == pytest.approx((0.4 - other) / 0.1)
    assert judged.holds == holds


def test_other_networks_alone_are_not_compared() -> None:
    results = {**aligned(0.1, 0.2, 0.4, network="vgg"), **aligned(0.1, 0.2, 0.3, network="lstm")}
    judged = decay_strengthens_alignment(results)
    assert (judged.holds, len(judged.networks)) == ("yes", 2)


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


def lossy(network: str, decay: str, *loss: float, **attrs):
    return {f"{network}/decay-{decay}": seeds(training_run(loss=loss, **attrs))}


@pytest.mark.parametrize(("last", "holds"), [(1.0, "yes"), (1.01, "no"), (float("nan"), "no")])
def test_the_loss_halves_at_the_largest_decay(last: float, holds: str) -> None:
    results = {**lossy("unet", "10", 2.0, last), **lossy("unet", "0", 2.0, 1.9)}
    assert high_decay_trains(results).holds == holds


def test_the_vgg_has_to_collapse_at_a_tenth() -> None:
    collapses, trains = lossy("vgg", "0.1", 1.2, 1.0), lossy("vgg", "0.1", 1.2, 0.1)
    lm = lossy("lm", "10", 1.0, 0.2)
    assert high_decay_trains({**collapses, **lm}).holds == "yes"
    judged = high_decay_trains({**trains, **lm})
    assert {each.network: each.holds for each in judged.networks} == {"vgg": "no", "lm": "yes"}
    assert high_decay_trains(lossy("vgg", "0.01", 1.2, 0.1)).networks == ()


def test_two_seeds_do_not_decide_on_high_decay() -> None:
    results = {"lstm/decay-10": seeds(training_run(), 2)}
    assert high_decay_trains(results).holds == "undecided"
    assert high_decay_trains({"grok/decay-1": seeds(training_run())}).networks == ()
