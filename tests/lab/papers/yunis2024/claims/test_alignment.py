"""Claims Y3, Y3b and Y10 on diagonals written by hand, and on random directions."""

import numpy as np
import pytest
import torch

from lab.papers.yunis2024.closed_form_runs import (
    PairCourse,
    at_decay,
    course,
    flat,
    judged,
    rows,
    seeds,
    training_run,
    words,
)
from rankscope.lab.judging.rule import Rule
from rankscope.lab.judging.verdict import NetworkVerdict
from rankscope.lab.models.transformer import TransformerConfig
from rankscope.lab.papers.yunis2024.claims.alignment import (
    PARTS,
    Y3,
    Y3_MEDIAN,
    Y3B,
    Y10,
    declared,
    weakness,
)
from rankscope.lab.papers.yunis2024.runs import BASE
from rankscope.overlaps import background

# a(0) at the background of 0.1, a rise to 0.3, and top ranks above the later ones at the end
GOOD = course([0.1, 0.3, 0.2], R=64, rest=0.1)


def pairs(*diagonals: np.ndarray, kind: str = "linear") -> list[PairCourse]:
    return [
        PairCourse(f"w{n}", f"w{n + 1}", diagonal, kind=kind)
        for n, diagonal in enumerate(diagonals)
    ]


def on_base_run(rule: Rule, run, count: int = 3, network: str = "vgg"):
    return judged(rule, at_decay(network, BASE[network], seeds(run, count)))


def outcome(*args, **options) -> NetworkVerdict:
    (network,) = on_base_run(*args, **options).networks
    return network


def weak(*diagonals: np.ndarray):
    return on_base_run(Y3, training_run(pairs=pairs(*diagonals)))


def word(verdict) -> str:
    (network,) = words(verdict).values()
    return network


def value(verdict) -> float:
    (network,) = verdict.networks
    return network.value


@pytest.mark.parametrize("start", [0.0751, 0.1249])
def test_weak_alignment_from_chance_in_the_top_ranks(start: float) -> None:
    verdict = weak(course([start, 0.5, 0.2], R=64, rest=0.1))
    assert words(verdict) == {"vgg": "holds"}
    assert value(verdict) == pytest.approx(0.1)  # 1 - 0.9; the third part has 0.5 to spare
    assert verdict.bound == ">= 0"


@pytest.mark.parametrize(
    ("bad", "part"),
    [
        (course([0.0749, 0.3, 0.2], R=64, rest=0.1), 0),
        (course([0.1251, 0.3, 0.2], R=64, rest=0.1), 0),
        (course([0.1, 0.501, 0.2], R=64, rest=0.1), 1),
    ],
)
def test_the_first_two_parts_hold_for_nine_of_ten(bad: np.ndarray, part: int) -> None:
    once, twice = weak(*[GOOD] * 9, bad), weak(*[GOOD] * 8, bad, bad)
    assert (word(once), word(twice)) == ("holds", "fails")
    assert (value(once), value(twice)) == (0, pytest.approx(-0.1))
    name, share = list(PARTS.items())[part]
    row = rows(twice)[0]
    assert row[f"{name}, >= {share:g}"] == 0.8
    assert row[f"not {name}"] == "2 of 10: w8 > w9, w9 > w10"
    assert twice.tables[1].rows[0][2] == "seed 0 1 2: w8 > w9, w9 > w10"


def test_the_third_part_holds_for_half() -> None:
    level = course([0.1, 0.3, 0.1], R=64)  # equal is not above
    half, less = weak(GOOD, level), weak(GOOD, level, level)
    assert (word(half), value(half)) == ("holds", 0)
    assert (word(less), value(less)) == ("fails", pytest.approx(1 / 3 - 1 / 2))


def test_narrow_pairs_take_no_part_in_the_third() -> None:
    narrow = course([0.1, 0.3, 0.1], R=50)
    assert word(weak(GOOD, *[narrow] * 8)) == "holds"
    verdict = weak(*[narrow] * 9)
    assert (word(verdict), value(verdict)) == ("no data", pytest.approx(0.1))
    assert rows(verdict)[0]["not top ranks above"] == "none of 0; 9 cannot tell"
    assert word(weak(*[course([0.3] * 3, R=50)] * 9)) == "fails"  # the first part fails without it


def test_pairs_of_fewer_than_ten_directions() -> None:
    parts = weakness(training_run(pairs=pairs(course([0.1, 0.6], R=5))))
    assert (parts.at_chance.share, parts.weak.share, parts.top_above.counted) == (1, 0, ())


def test_pairs_of_a_matrix_that_died_cannot_tell() -> None:
    spectra = {"w0": flat(64, [64, 64, 64]), "w2": flat(64, [64, 64, 0])}
    run = training_run(spectra, pairs(GOOD, GOOD))  # w0 > w1 and w1 > w2
    parts = weakness(run)
    assert parts.top_above.unknown == ("w1 > w2",)
    assert (len(parts.at_chance.counted), len(parts.weak.counted)) == (2, 2)
    assert rows(on_base_run(Y3B, run))[0]["exceptions"] == "1 of 1: w0 > w1; 1 cannot tell"


def test_other_taps_do_not_count() -> None:
    tap = PairCourse("w0", "w1", course([0.9] * 3, R=64), kind="tap", label="tap 0,0")
    run = training_run(pairs=[*pairs(GOOD), tap])
    assert outcome(Y3, run, network="unet").word == "holds"


def transformer(starts: dict[str, float], *, copied: bool):
    """Three layers of two heads; a(0) of every pair is at chance but for those given."""
    model = TransformerConfig(layers=3, width=8, heads=2, context=4).build()
    courses = {name: course([a, 0.3, 0.2], R=64, rest=0.1) for name, a in starts.items()}
    chosen = [
        PairCourse(p.earlier, p.later, courses.get(f"{p.earlier} > {p.later}", GOOD), kind=p.kind)
        for p in model.alignment_pairs()
    ]
    declaration = {"class": "TrainingRun", "task": {"model": {"copied_layers": copied}}}
    return training_run(pairs=chosen, declaration=declaration)


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


@pytest.mark.parametrize(("copied", "expected"), [(True, "fails"), (False, "holds")])
def test_one_of_eight_weighs_more_than_one_of_nineteen(copied: bool, expected: str) -> None:
    run = transformer({"embedding > blocks.0.attn.qkv": 0.4}, copied=copied)
    assert outcome(Y3, run, network="lm").word == expected


@pytest.mark.parametrize(("copied", "expected"), [(True, "holds"), (False, "fails")])
def test_the_median_counts_copies_once(copied: bool, expected: str) -> None:
    inside = [("w1", "w2"), ("attn.out_proj", "w1"), ("attn.v", "attn.out_proj")]
    high = {f"blocks.{n}.{u} > blocks.{n}.{v}": 0.14 for n in range(3) for u, v in inside}
    high |= {f"blocks.{n}.w2 > blocks.{n + 1}.attn.qkv": 0.14 for n in range(2)}
    run = transformer(high, copied=copied)  # 11 of 19; of copies 4 of 8, of median 0.12
    assert outcome(Y3_MEDIAN, run, network="lm").word == expected


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


def test_a_declaration_is_searched_everywhere() -> None:
    assert declared({"a": [1, {"b": {"wanted": False}}]}, "wanted") is False
    assert declared({"a": "wanted", "b": None}, "wanted") is None


def test_random_directions_fail_the_first_rule_and_meet_the_second() -> None:
    """The reason of Y3-median: of pairs at chance about 70% lie within 0.75-1.25."""
    generator = torch.Generator().manual_seed(0)
    chance = []
    for n in range(60):
        A = torch.randn(100, 100, generator=generator, dtype=torch.float64).abs() / 16
        top = A.diagonal().numpy() + np.where(np.arange(100) < 10, [[0.0], [0.1]], 0)
        chance.append(PairCourse(f"w{n}", f"w{n + 1}", top, float(background(A))))
    run = training_run(pairs=chance)
    first, second = (outcome(rule, run, network="lstm") for rule in (Y3, Y3_MEDIAN))
    assert first.word == "fails"
    # 0.25 is 1.05 deviations of 0.239; 60 pairs tell the share to +- 0.06
    assert first.value == pytest.approx(0.705 - 0.9, abs=3 * 0.06)
    assert second.word == "holds"
    assert second.value == pytest.approx(1.0, abs=0.12)


@pytest.mark.parametrize(("start", "expected"), [(0.1249, "holds"), (0.1251, "fails")])
def test_the_median_pair_decides_the_second_rule(start: float, expected: str) -> None:
    typical = course([start, 0.3, 0.2], R=64, rest=0.1)
    low, high = (course([a, 0.3, 0.2], R=64, rest=0.1) for a in (0.01, 0.4))
    run = training_run(pairs=pairs(low, typical, high))
    assert outcome(Y3_MEDIAN, run, network="unet").word == expected
    assert outcome(Y3_MEDIAN, run, 2, network="unet").word == f"{expected} so far"


def early(*diagonals: np.ndarray, count: int = 3, **options):
    return on_base_run(Y3B, training_run(pairs=pairs(*diagonals), **options), count)


@pytest.mark.parametrize(
    ("a", "expected"),
    [
        ([0.1, 0.4, 0.3, 0.3, 0.3, 0.3], "holds"),  # second of six, ends at 75%
        ([0.1, 0.3, 0.4, 0.3, 0.3, 0.3], "fails"),  # third of six
        ([0.1, 0.4, 0.3, 0.3, 0.3, 0.325], "fails"),  # ends at 81%
        ([0.1, 0.4, 0.3, 0.3, 0.3, 0.315], "holds"),  # ends at 79%
        ([0.1, 0.4, 0.3, 0.3, 0.3], "fails"),  # second of five is past a third
    ],
)
def test_the_peak_in_the_first_third_and_the_fall(a: list[float], expected: str) -> None:
    assert word(early(course(a))) == expected


def test_half_of_the_pairs_peak_early() -> None:
    peaks, rises = course([0.4, 0.1, 0.1]), course([0.1, 0.1, 0.4])
    assert word(early(peaks, rises)) == "holds"
    verdict = early(peaks, rises, rises)
    assert word(verdict) == "fails"
    assert verdict.tables[0].rows[0][2:] == (1 / 3, 1 / 3, 1 / 3, "2 of 3: w1 > w2, w2 > w3")


def test_runs_that_cannot_tell_of_a_peak() -> None:
    assert word(early(course([0.4, 0.1]))) == "no data"  # no third of two snapshots
    assert word(early(course([0.4, 0.1, 0.1]), count=2)) == "holds so far"
    assert word(early(course([0.4, 0.1, 0.1]), loss=(1.0, 0.96))) == "no data"


def kinds(qk: list[float], vo: list[float], **options):
    chosen = [("qk", a) for a in qk] + [("vo", a) for a in vo]
    courses = [
        PairCourse(f"w{n}", "v", course([0.1, a]), kind=kind) for n, (kind, a) in enumerate(chosen)
    ]
    return training_run(pairs=courses, **options)


@pytest.mark.parametrize(
    ("qk", "vo", "expected"),
    [
        ([0.1, 0.3, 0.4], [0.2, 0.2, 0.9], "holds"),  # medians, not means
        ([0.1, 0.2, 0.9], [0.3, 0.3], "fails"),
        ([0.2], [0.2], "fails"),
    ],
)
def test_the_largest_median_of_the_kinds(qk: list[float], vo: list[float], expected: str) -> None:
    transformer = outcome(Y10, kinds(qk, vo), network="lm")
    assert transformer.word == expected
    assert transformer.value == pytest.approx(np.median(qk) / np.median(vo))


@pytest.mark.parametrize(
    ("qk", "vo", "met"),
    [([np.nan], [0.2], None), ([], [0.2], None), ([0.3], [np.nan], None), ([0.3], [0.2], True)],
)
def test_kinds_without_a_value_take_no_part(qk: list[float], vo: list[float], met) -> None:
    verdict = on_base_run(Y10, kinds(qk, [*vo, *vo]), network="lm")
    assert [seed.met for seed in verdict.networks[0].seeds] == [met] * 3
    assert "nan" not in str(verdict.tables[0].rows)


def test_queries_and_keys_are_asked_for_in_the_transformer_alone() -> None:
    run = kinds([0.4], [0.1])
    assert on_base_run(Y10, run, network="vgg").networks == ()
    assert outcome(Y10, run, 1, network="lm").word == "holds so far"
    diverged = on_base_run(Y10, kinds([0.4], [0.1], diverged_at=7), network="lm")
    assert diverged.remarks[0] == "lm, decay 0.1, seed 0 collapsed: diverged at step 7"
