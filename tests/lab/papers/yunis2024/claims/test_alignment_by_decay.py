"""Claim Y5 on runs whose ranks and overlaps at each decay are chosen."""

import numpy as np
import pytest

from lab.papers.yunis2024.closed_form_runs import (
    PairCourse,
    at_decay,
    decay_key,
    flat,
    judged,
    only,
    over_decays,
    rows,
    seeds,
    training_run,
    words,
)
from rankscope.lab.judging.available_runs import AvailableRuns
from rankscope.lab.judging.study import judge
from rankscope.lab.papers.yunis2024.claims.alignment_by_decay import (
    Y5,
    leading_directions,
    mean_overlap,
)

MOST = "lm, most of all networks"


def overlapping(*ends: float, rank: int = 40, **options):
    """Pairs u > w0, u > w1, ... whose overlaps end as given; each matrix has this rank of 40."""
    names = ["u", *(f"w{n}" for n in range(len(ends)))]
    spectra = {name: flat(40, [40, rank]) for name in names}
    pairs = [
        PairCourse("u", f"w{n}", np.array([[0.1] * 40, [end] * 40])) for n, end in enumerate(ends)
    ]
    return training_run(spectra, pairs, **options)


def swept(*by_decay: tuple[float, ...], network: str = "lm"):
    return over_decays(network, *(overlapping(*ends) for ends in by_decay))


@pytest.mark.parametrize(
    ("at_zero", "at_largest", "word"),
    [
        ((0.1, 0.1, 0.1), (0.13, 0.13, 0.13), "holds"),
        ((0.1, 0.1, 0.1), (0.121, 0.121, 0.0), "holds"),  # rises in two of three
        ((0.1, 0.1, 0.1), (0.119, 0.119, 0.119), "fails"),  # by too little
        ((0.1, 0.2, 0.1, 0.2, 0.1), (0.9, 0.2, 0.9, 0.2, 0.9), "holds"),  # in 3 of 5
        ((0.1, 0.1, 0.4, 0.4), (0.5, 0.5, 0.4, 0.4), "fails"),  # in half, though 0.45 from 0.25
        ((0.3, 0.3), (0.1, 0.1), "fails"),
        ((np.nan, 0.1), (0.2, 0.2), "holds"),  # a pair without overlaps is not counted
        ((np.nan,), (0.2,), "no data"),
    ],
)
def test_the_median_rises_by_a_fifth_and_most_pairs_do(at_zero, at_largest, word: str) -> None:
    verdict = judged(Y5, swept(at_zero, (0.9,) * len(at_zero), at_largest))
    assert words(verdict) == {"lm": word}  # alone, it is compared with no other network


def test_the_row_has_both_medians() -> None:
    verdict = judged(Y5, swept((0.1, 0.2, 0.3), (0.2, 0.4, 0.2)))
    row = rows(verdict)[0]
    assert (row["median at decay 0"], row["median at the largest"]) == pytest.approx((0.2, 0.2))
    assert (row["largest decay"], row["exceptions"]) == ("0.1", "1 of 3: u > w2")
    assert (only(verdict).word, only(verdict).value) == ("fails", pytest.approx(1.0))


@pytest.mark.parametrize(
    ("ranks", "k"),
    [((40, 40), 10), ((40, 3), 3), ((1, 40), 1), ((11, 12), 10), ((9, 12), 9)],
)
def test_the_smaller_effective_rank_counts_directions(ranks: tuple[int, int], k: int) -> None:
    spectra = {name: flat(40, [40, rank]) for name, rank in zip("uw", ranks, strict=True)}
    run = training_run(spectra, [PairCourse("u", "w", np.full((2, 40), 0.1))])
    assert leading_directions(run).to_numpy().tolist() == [k]


def test_effective_ranks_are_rounded_down() -> None:
    spectrum = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.5]])  # 2.83 at the end
    run = training_run({"u": spectrum, "w": spectrum}, [PairCourse("u", "w", np.ones((2, 3)))])
    assert leading_directions(run).to_numpy().tolist() == [2]


def test_parts_count_with_the_rank_of_the_whole_and_dead_matrices_cannot_tell() -> None:
    spectra = {
        "qkv": flat(40, [40, 4]),
        "q": flat(10, [10, 1]),
        "k": flat(10, [10, 1]),
        "dead": flat(40, [40, 0]),
    }
    ends = (("q", "k"), ("k", "dead"), ("k", "absent"))
    pairs = [PairCourse(*names, np.full((2, 10), 0.1)) for names in ends]
    run = training_run(spectra, pairs, parts={"q": "qkv", "k": "qkv"})
    k = leading_directions(run).to_numpy()
    assert k[0] == 4 and np.isnan(k[1:]).all()


def test_the_same_directions_are_read_at_both_decays() -> None:
    diagonal = np.array([[0.1] * 40, [0.4, 0.2] + [0.0] * 38])
    pair = PairCourse("u", "w", diagonal)
    spectra = {"u": flat(40, [40, 2]), "w": flat(40, [40, 40])}
    high = training_run(spectra, [pair])
    wide = training_run({"u": flat(40, [40, 40]), "w": flat(40, [40, 40])}, [pair])
    k = leading_directions(high)
    assert [float(mean_overlap(run, k)[0]) for run in (wide, high)] == pytest.approx([0.3, 0.3])
    verdict = judged(Y5, over_decays("vgg", wide, high))
    assert rows(verdict)[0]["median at decay 0"] == pytest.approx(0.3)


def test_a_collapsed_run_is_not_the_largest_decay() -> None:
    runs = swept((0.1,), (0.2,), (0.05,))
    assert words(judged(Y5, runs)) == {"lm": "fails"}
    collapsed = at_decay("lm", 1, overlapping(0.05, loss=(1.0, 1.0)))
    verdict = judged(Y5, runs | collapsed)
    assert words(verdict) == {"lm": "holds"}
    assert verdict.remarks[0].startswith("lm, decay 1, seed 0 collapsed")


@pytest.mark.parametrize("decays", [(0,), (0.1, 1)])
def test_without_decay_0_or_a_larger_one_there_is_no_data(decays: tuple[float, ...]) -> None:
    runs = {
        key: run for decay in decays for key, run in at_decay("lm", decay, overlapping(0.2)).items()
    }
    verdict = judged(Y5, runs)
    assert words(verdict) == {"lm": "no data"}
    assert verdict.remarks[0].startswith("lm, seed 0: decay 0 or every larger decay")


@pytest.mark.parametrize(("other", "word"), [(0.39, "holds"), (0.41, "fails"), (0.4, "fails")])
def test_the_transformer_aligns_most_at_the_largest_decay(other: float, word: str) -> None:
    runs = swept((0.1,), (0.2,), (0.4,)) | swept((0.1,), (0.9,), (other,), network="unet")
    (most,) = (network for network in judged(Y5, runs).networks if network.label == MOST)
    assert (most.label, most.word, most.value) == (MOST, word, pytest.approx(0.4 - other))
    assert "the largest of unet at the same seed" in most.quantity


def test_networks_are_compared_at_the_same_seed() -> None:
    others = {decay: overlapping(end) for decay, end in ((0, 0.1), (0.1, 0.3))}
    higher = {decay: overlapping(0.5) for decay in (0, 0.1)}
    vgg = {decay_key("vgg", d): {0: others[d], 1: higher[d]} for d in others}
    networks = judged(Y5, swept((0.1,), (0.4,)) | vgg).networks
    (most,) = (network for network in networks if network.label == MOST)
    # Seed 2 has no vgg to compare with.
    assert [outcome.met for outcome in most.seeds] == [True, False, None]


def test_seeds_that_were_seen_may_be_compared_with() -> None:
    runs = swept((0.1,), (0.4,)) | swept((0.1,), (0.3,), network="vgg")
    seen = {"yunis2024/vgg": (0, 1, 2), "yunis2024/lm": (0,)}
    verdict = judge(Y5, AvailableRuns(runs), seen=seen)
    assert {network.label: network.words for network in verdict.networks} == {
        "lm": "holds (3 seeds, 2 unseen)",
        MOST: "holds (3 seeds, 2 unseen)",
        "vgg": "no data",
    }


def test_a_missing_network_leaves_open_only_whether_the_transformer_is_first() -> None:
    lm, dead = swept((0.1,), (0.4,)), {decay_key("lstm", 0): seeds(overlapping(0.1))}
    below = swept((0.1,), (0.3,), network="vgg")
    above = swept((0.1,), (0.5,), network="vgg")
    assert words(judged(Y5, lm | dead | below))[MOST] == "no data"
    assert words(judged(Y5, lm | dead | above))[MOST] == "fails"
