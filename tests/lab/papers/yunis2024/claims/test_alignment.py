"""Claim Y3 and its first rule on diagonals written by hand, and on random directions."""

import numpy as np
import pytest
import torch

from lab.papers.yunis2024.closed_form_runs import (
    PairCourse,
    chained,
    course,
    flat,
    judged_at_base,
    only,
    outcome,
    rows,
    training_run,
)
from rankscope.lab.judging.rule import Rule
from rankscope.lab.models.transformer import TransformerConfig
from rankscope.lab.papers.yunis2024.claims.alignment import (
    PARTS,
    Y3,
    Y3_FIRST,
    top_ranks_above,
    weakness,
)
from rankscope.overlaps import background


def rising(start: float, peak: float = 0.3) -> np.ndarray:
    """a(0) as given over a background of 0.1, and top ranks above the later ones at the end."""
    return course([start, peak, 0.2], R=64, rest=0.1)


GOOD = rising(0.1)


@pytest.mark.parametrize("start", [0.0751, 0.1249])
def test_weak_alignment_from_chance_in_the_top_ranks(start: float) -> None:
    # 1 - 0.9; the third part has 0.5 to spare
    assert outcome(Y3_FIRST, rising(start, peak=0.5)) == ("holds", pytest.approx(0.1))


@pytest.mark.parametrize(
    ("bad", "part"), [(rising(0.0749), 0), (rising(0.1251), 0), (rising(0.1, peak=0.501), 1)]
)
def test_the_first_two_parts_hold_for_nine_of_ten(bad: np.ndarray, part: int) -> None:
    assert outcome(Y3_FIRST, *[GOOD] * 9, bad) == ("holds", 0)
    verdict = judged_at_base(Y3_FIRST, "vgg", chained(*[GOOD] * 8, bad, bad))
    assert (only(verdict).word, only(verdict).value) == ("fails", pytest.approx(-0.1))
    name, share = list(PARTS.items())[part]
    row = rows(verdict)[0]
    assert row[f"{name}, >= {share:g}"] == 0.8
    assert row[f"{name}, exceptions"] == "2 of 10: w8 > w9, w9 > w10"
    assert verdict.tables[1].rows[0][2] == "seed 0 1 2: w8 > w9, w9 > w10"


def test_the_third_part_holds_for_half() -> None:
    level = course([0.1, 0.3, 0.1], R=64)  # equal is not above
    assert outcome(Y3_FIRST, GOOD, level) == ("holds", 0)
    assert outcome(Y3_FIRST, GOOD, level, level) == ("fails", pytest.approx(1 / 3 - 1 / 2))


def test_narrow_pairs_take_no_part_in_the_third() -> None:
    narrow = course([0.1, 0.3, 0.1], R=50)
    assert outcome(Y3_FIRST, GOOD, *[narrow] * 8)[0] == "holds"
    verdict = judged_at_base(Y3_FIRST, "vgg", chained(*[narrow] * 9))
    assert (only(verdict).word, only(verdict).value) == ("no data", pytest.approx(0.1))
    assert rows(verdict)[0]["top ranks above, exceptions"] == "none of 0; 9 cannot tell"
    assert (
        outcome(Y3_FIRST, course([0.3] * 3, R=50))[0] == "fails"
    )  # the first part fails without it


def test_pairs_of_fewer_than_ten_directions() -> None:
    parts = weakness(chained(course([0.1, 0.6], R=5)))
    assert (parts.at_chance.share, parts.weak.share, parts.top_above.counted) == (1, 0, ())


def test_pairs_of_a_matrix_that_died_cannot_tell() -> None:
    spectra = {"w0": flat(64, [64, 64, 64]), "w2": flat(64, [64, 64, 0])}
    run = chained(GOOD, GOOD, spectra=spectra)
    parts = weakness(run)
    assert parts.top_above.unknown == ("w1 > w2",)
    assert (len(parts.at_chance.counted), len(parts.weak.counted)) == (2, 2)


def test_other_taps_do_not_count() -> None:
    tap = PairCourse("w0", "w1", course([0.9] * 3, R=64), kind="tap", label="tap 0,0")
    run = training_run(pairs=[PairCourse("w0", "w1", GOOD), tap])
    assert only(judged_at_base(Y3_FIRST, "unet", run)).word == "holds"


def transformer(starts: dict[str, float], *, copied: bool):
    """Three layers of two heads; a(0) of every pair is at chance but for those given."""
    model = TransformerConfig(layers=3, width=8, heads=2, context=4).build()
    ends = [(pair.earlier, pair.later) for pair in model.alignment_pairs()]
    pairs = [PairCourse(*pair, rising(starts.get(" > ".join(pair), 0.1))) for pair in ends]
    declaration = {"class": "TrainingRun", "task": {"model": {"copied_layers": copied}}}
    return training_run(pairs=pairs, declaration=declaration)


@pytest.mark.parametrize(
    # 2 of heads and 3 others in a layer; one between two layers; input and output
    ("copied", "counted"),
    [(True, 2 + 3 + 1 + 2), (False, 3 * (2 + 3) + 2 + 2)],
)
def test_copied_layers_count_once_at_the_start(copied: bool, counted: int) -> None:
    parts = weakness(transformer({}, copied=copied))
    assert len(parts.at_chance.counted) == counted
    assert len(parts.weak.counted) == 3 * (2 + 3) + 2 + 2
    first = [name for name in parts.at_chance.counted if name.startswith("blocks.0.")]
    assert len(first) == 2 + 3 + 1


INPUT = {"embedding > blocks.0.attn.qkv": 0.4}
INSIDE = [("w1", "w2"), ("attn.out_proj", "w1"), ("attn.v", "attn.out_proj")]
HIGH = {f"blocks.{n}.{u} > blocks.{n}.{v}": 0.14 for n in range(3) for u, v in INSIDE}


@pytest.mark.parametrize(
    ("rule", "starts", "copied", "word"),
    [
        (Y3_FIRST, INPUT, True, "fails"),  # one of eight
        (Y3_FIRST, INPUT, False, "holds"),  # one of nineteen
        (Y3, INPUT, True, "fails"),  # a mean of 1 + 3/8
        (Y3, INPUT, False, "holds"),  # of 1 + 3/19
        (Y3, HIGH, True, "holds"),  # of 1 + 3/8 x 0.4
        (Y3, HIGH, False, "holds"),  # of 1 + 9/19 x 0.4
    ],
)
def test_copies_weigh_as_one(rule: Rule, starts, copied: bool, word: str) -> None:
    assert only(judged_at_base(rule, "lm", transformer(starts, copied=copied))).word == word


def test_pairs_between_copied_layers_start_at_chance() -> None:
    """The matrices of one layer are drawn apart, so its copy's are no nearer to them."""
    ratios = []
    for seed in range(20):
        first, second = TransformerConfig(2, 32, 2, 4, copied_layers=True).build(seed).blocks
        U, Vh = torch.linalg.svd(first.w2.weight)[0], torch.linalg.svd(second.attn.qkv.weight)[2]
        A = (U.mT @ Vh.mT).detach().abs()
        ratios.append(float(A.diagonal()[:10].mean() / background(A)))
    # 0.76 of a half-normal's mean, by the root of ten values and twenty draws, three times
    assert np.mean(ratios) == pytest.approx(1.0, abs=3 * 0.76 / np.sqrt(200))


def test_random_directions_fail_the_first_rule_and_meet_the_second() -> None:
    """The reason for the change: of pairs at chance about 70% lie within 0.75-1.25."""
    generator = torch.Generator().manual_seed(0)
    chance = []
    for n in range(60):
        A = torch.randn(100, 100, generator=generator, dtype=torch.float64).abs() / 16
        top = A.diagonal().numpy() + np.where(np.arange(100) < 10, [[0.0], [0.1]], 0)
        chance.append(PairCourse(f"w{n}", f"w{n + 1}", top, float(background(A))))
    run = training_run(pairs=chance)
    first, second = (only(judged_at_base(rule, "lstm", run)) for rule in (Y3_FIRST, Y3))
    # 0.25 is 1.05 deviations of 0.239; 60 pairs tell the share to +- 0.06
    assert (first.word, first.value) == ("fails", pytest.approx(0.705 - 0.9, abs=3 * 0.06))
    assert (second.word, second.value) == ("holds", pytest.approx(1.0, abs=3 * 0.239 / 60**0.5))


@pytest.mark.parametrize(
    ("starts", "word"),
    [
        ((0.0801,), "holds"),
        ((0.0799,), "fails"),
        ((0.1199,), "holds"),
        ((0.1201,), "fails"),
        ((0.01, 0.19), "holds"),  # the mean decides, far as both are from it
        ((0.01, 0.05, 0.4), "fails"),
    ],
)
def test_the_mean_pair_starts_at_chance(starts: tuple[float, ...], word: str) -> None:
    mean = pytest.approx(np.mean(starts) / 0.1)
    assert outcome(Y3, *map(rising, starts)) == (word, mean)


def test_nine_of_ten_pairs_stay_weak_by_the_second_rule_too() -> None:
    strong = rising(0.1, peak=0.501)
    assert outcome(Y3, *[GOOD] * 9, strong)[0] == "holds"
    assert outcome(Y3, *[GOOD] * 8, strong, strong)[0] == "fails"
    assert outcome(Y3, rising(0.1, peak=0.5))[0] == "holds"


def ending_at(R: int, *levels: tuple[int, float]) -> np.ndarray:
    """(2, R): 0.1 at first; at the end each level up to and including a rank, in order."""
    end = np.full(R, np.nan)
    for upto, level in reversed(levels):
        end[:upto] = level
    return np.stack([np.full(R, 0.1), end])


@pytest.mark.parametrize(
    ("R", "levels", "above"),
    [
        (100, [(10, 0.2), (50, 0.9), (100, 0.1)], True),  # ranks 11 to 50 do not matter
        (100, [(10, 0.2), (50, 0.1), (100, 0.3)], False),
        (99, [(10, 0.2), (49, 0.9), (99, 0.1)], True),  # the last half: ranks 50 to 99
        (99, [(10, 0.2), (48, 0.1), (99, 0.3)], False),
        (27, [(10, 0.2), (13, 0.9), (27, 0.1)], True),
        (20, [(10, 0.2), (20, 0.1)], True),
        (20, [(20, 0.2)], False),  # equal is not above
    ],
)
def test_top_ranks_stand_above_later_ones(R: int, levels, above: bool) -> None:
    tally = top_ranks_above(chained(ending_at(R, *levels)))
    assert (len(tally.counted), tally.share) == (1, float(above))


def test_six_of_ten_pairs_have_top_ranks_above_later_ones() -> None:
    level = course([0.1, 0.3, 0.1], R=64)
    assert outcome(Y3, *[GOOD] * 6, *[level] * 4)[0] == "holds"
    assert outcome(Y3, *[GOOD] * 5, *[level] * 4)[0] == "fails"


def test_pairs_of_fewer_than_twenty_directions_take_no_part_in_the_third_part() -> None:
    narrow = course([0.1, 0.3, 0.1], R=19)
    assert outcome(Y3, GOOD, *[narrow] * 8)[0] == "holds"
    verdict = judged_at_base(Y3, "vgg", chained(*[narrow] * 3))
    assert (only(verdict).word, only(verdict).value) == ("no data", pytest.approx(1))
    assert rows(verdict)[0]["top ranks above, exceptions"] == "none of 0"
    assert outcome(Y3, course([0.3] * 3, R=19))[0] == "fails"  # the first part fails without it


def test_a_pair_that_died_cannot_tell_of_its_top_ranks() -> None:
    spectra = {"w0": flat(64, [64, 64, 64]), "w2": flat(64, [64, 64, 0])}
    tally = top_ranks_above(chained(GOOD, GOOD, spectra=spectra))
    assert (tally.counted, tally.unknown) == (("w0 > w1",), ("w1 > w2",))
