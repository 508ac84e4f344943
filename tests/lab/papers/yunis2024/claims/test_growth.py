"""Claim Y1 on spectra whose growth is chosen."""

import numpy as np
import pytest

from lab.papers.yunis2024.closed_form_runs import judged_at_base, only, rows, training_run
from rankscope.lab.papers.yunis2024.claims.growth import Y1, Y1_FIRST, lead_of_large_values

START = np.linspace(2.0, 1.0, 20)


def grown(top: float, rest: float) -> np.ndarray:
    """(2, 20): the top tenth, two of twenty, grows by one factor and the others by another."""
    return np.stack([START, START * np.where(np.arange(20) < 2, top, rest)])


@pytest.mark.parametrize(("top", "rest", "lead"), [(3, 2, np.log(3 / 2)), (1, 0, np.inf)])
def test_lead_is_the_log_of_the_factors(top: float, rest: float, lead: float) -> None:
    leads = lead_of_large_values(training_run({"w": grown(top, rest)}))
    assert float(leads[0]) == pytest.approx(lead, abs=1e-6)


@pytest.mark.parametrize(("slow", "word"), [(0, "holds"), (1, "holds"), (2, "fails")])
def test_nine_tenths_of_the_matrices_decide(slow: int, word: str) -> None:
    spectra = {f"w{n}": grown(1.5 if n < slow else 3.0, 2.0) for n in range(10)}
    verdict = judged_at_base(Y1, "vgg", training_run(spectra))
    assert (only(verdict).word, only(verdict).value) == (word, (10 - slow) / 10)
    assert rows(verdict)[0]["exceptions"].startswith(f"{slow or 'none'} of 10")


def test_equal_growth_does_not_exceed() -> None:
    assert only(judged_at_base(Y1, "unet", training_run({"w": grown(2.0, 2.0)}))).value == 0


def narrow(factor: float, *, R: int = 19) -> np.ndarray:
    """(2, R): the largest of R values grows by a factor, the others stay."""
    start = np.linspace(2.0, 1.0, R)
    return np.stack([start, start * np.where(np.arange(R) < 1, factor, 1.0)])


@pytest.mark.parametrize(("R", "word"), [(19, "holds"), (20, "fails")])
def test_narrow_matrices_take_no_part_any_more(R: int, word: str) -> None:
    run = training_run({"w": grown(3.0, 2.0), "other": narrow(0.5, R=R)})
    assert only(judged_at_base(Y1, "vgg", run)).word == word
    assert only(judged_at_base(Y1_FIRST, "vgg", run)).word == "fails"


def test_without_wide_matrices_there_is_no_data() -> None:
    run = training_run({"w": narrow(2.0)})
    assert only(judged_at_base(Y1, "unet", run)).word == "no data"
    assert only(judged_at_base(Y1_FIRST, "unet", run)).word == "holds"


def test_matrices_that_cannot_tell_are_not_counted() -> None:
    spectra = {
        "w": grown(3.0, 2.0),
        "single": np.array([[1.0], [2.0]]),
        "born": np.stack([np.zeros(20), START]),
        "dead": grown(0.0, 0.0),
        "part": grown(1.0, 2.0),
    }
    verdict = judged_at_base(Y1, "unet", training_run(spectra, parts={"part": "w"}))
    assert (only(verdict).word, only(verdict).value) == ("holds", 1.0)
    row = rows(verdict)[0]
    assert (row["share"], row["median lead"]) == (1.0, pytest.approx(np.log(1.5), abs=1e-6))
    assert row["exceptions"] == "none of 1; 2 cannot tell"
    assert verdict.tables[1].rows == (("unet", "top tenth faster", "-", "seed 0 1 2: born, dead"),)
