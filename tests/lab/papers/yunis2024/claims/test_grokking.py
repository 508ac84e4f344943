"""Claim Y9 on runs whose rank drops and whose accuracy jumps at chosen steps."""

import math

import numpy as np
import pytest

from lab.papers.yunis2024.closed_form_runs import (
    at_decay,
    flat,
    judged,
    rows,
    seeds,
    training_run,
    words,
)
from rankscope.lab.papers.yunis2024.claims.grokking import Y9, crossing, mean_rank, steepest_drop

STEPS = [0, *range(100, 40001, 100)]


def grok(drop: float, jump: float, *, last: float = 1.0, **options):
    """NER is 1 and falls slowly, but by 0.4 in 0.05 of log10 step at `drop`; accuracy jumps."""
    log_steps = np.log10(np.maximum(STEPS, 1))
    fall = 0.02 * log_steps + 0.4 * np.clip((log_steps - drop) / 0.05 + 0.5, 0, 1)
    spectra = {"w": flat(1000, np.round(1000 * (1 - fall)).astype(int).tolist())}
    accuracy = np.where(log_steps < jump, 0.01, last)
    scalars = {"validation_accuracy": accuracy.tolist()}
    return training_run(spectra, steps=STEPS, scalars=scalars, **options)


@pytest.mark.parametrize("drop", [3.0, 3.5, 4.4])
def test_the_drop_is_found_within_a_cell_of_the_grid(drop: float) -> None:
    assert steepest_drop(grok(drop, 3.0)) == pytest.approx(drop, abs=0.05)


def test_the_crossing_lies_between_two_snapshots() -> None:
    run = training_run(
        {"w": flat(4, [4, 4, 4, 4])},
        steps=[0, 10, 100, 1000],
        scalars={"validation_accuracy": [0.0, 0.1, 0.4, 0.6]},
    )
    assert crossing(run) == pytest.approx(2.5)  # half way from 0.4 to 0.6
    assert math.isnan(steepest_drop(run))


def test_a_matrix_that_dies_makes_no_drop() -> None:
    falls, dies = flat(10, [9, 9, 6, 5]), flat(10, [10, 10, 10, 0])
    run = training_run({"falls": falls, "dies": dies}, steps=[0, 10, 100, 1000])
    assert mean_rank(run).to_numpy() == pytest.approx([0.9, 0.9, 0.6, 0.5])
    assert 1 < steepest_drop(run) < 2


@pytest.mark.parametrize(
    ("drop", "jump", "word"),
    [
        (3.5, 3.5, "holds"),
        (3.5, 3.64, "holds"),
        (3.5, 3.36, "holds"),
        (3.5, 3.76, "fails"),
        (4, 3, "fails"),
    ],
)
def test_drop_and_jump_within_a_fifth(drop: float, jump: float, word: str) -> None:
    verdict = judged(Y9, at_decay("grok", 1, seeds(grok(drop, jump))))
    assert words(verdict) == {"grok": word}
    assert verdict.networks[0].value == pytest.approx(abs(drop - jump), abs=0.06)


def test_the_largest_decay_is_judged_and_decay_0_stands_beside_it() -> None:
    verdict = judged(
        Y9,
        at_decay("grok", 0, seeds(grok(3.0, 4.0)))
        | at_decay("grok", 0.1, {})  # not needed
        | at_decay("grok", 1, seeds(grok(3.5, 3.5))),
    )
    assert (words(verdict), verdict.missing) == ({"grok": "holds"}, ())
    assert [row["decay"] for row in rows(verdict)] == ["1", "0"] * 3


def test_runs_that_cannot_tell_of_grokking() -> None:
    def word(run, count: int = 3) -> str:
        return words(judged(Y9, at_decay("grok", 1, seeds(run, count))))["grok"]

    assert word(grok(3.5, 3.5), 2) == "holds so far"
    assert word(grok(3.5, 3.5, last=0.49)) == "no data"  # never crosses
    assert word(grok(3.5, 1.0)) == "no data"  # above from the first snapshot on
    assert word(grok(3.5, 3.5, loss=(1.0, 1.0))) == "no data"  # collapsed
    assert judged(Y9, at_decay("grok", 0, seeds(grok(3.5, 3.5)))).networks == ()
    assert judged(Y9, at_decay("lm", 1, seeds(grok(3.5, 3.5)))).networks == ()
