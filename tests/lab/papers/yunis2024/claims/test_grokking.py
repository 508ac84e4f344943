"""Claim Y9 on runs whose rank drops and whose accuracy jumps at chosen steps."""

import math

import numpy as np
import pytest

from lab.papers.yunis2024.closed_form_runs import (
    at_decay,
    flat,
    judged,
    only,
    rows,
    training_run,
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


@pytest.mark.parametrize(("jump", "word"), [(3.64, "holds"), (3.36, "holds"), (3.76, "fails")])
def test_drop_and_jump_within_a_fifth(jump: float, word: str) -> None:
    network = only(judged(Y9, at_decay("grok", 1, grok(3.5, jump))))
    assert (network.word, network.value) == (word, pytest.approx(abs(3.5 - jump), abs=0.06))


def test_the_largest_decay_is_judged_and_decay_0_stands_beside_it() -> None:
    control = at_decay("grok", 0, grok(3.0, 4.0))
    not_needed = at_decay("grok", 0.1, {})
    verdict = judged(Y9, control | not_needed | at_decay("grok", 1, grok(3.5, 3.5)))
    assert (only(verdict).word, verdict.missing) == ("holds", ())
    assert [row["decay"] for row in rows(verdict)] == ["1", "0"] * 3
    assert judged(Y9, control).networks == ()


@pytest.mark.parametrize(
    ("jump", "options"),
    [
        (3.5, {"last": 0.49}),  # never crosses
        (1.0, {}),  # above from the first snapshot on
        (3.5, {"loss": (1.0, 1.0)}),  # collapsed
    ],
)
def test_runs_that_cannot_tell_of_grokking(jump: float, options) -> None:
    runs = at_decay("grok", 1, grok(3.5, jump, **options))
    assert only(judged(Y9, runs)).word == "no data"
