"""Claim Y1 on spectra whose growth is chosen."""

import numpy as np
import pytest

from lab.papers.yunis2024.closed_form_runs import at_decay, judged, rows, seeds, training_run, words
from rankscope.lab.papers.yunis2024.claims.growth import Y1, lead_of_large_values

START = np.linspace(2.0, 1.0, 20)


def grown(top: float, rest: float) -> np.ndarray:
    """(2, 20): the top tenth, two of twenty, grows by one factor and the others by another."""
    return np.stack([START, START * np.where(np.arange(20) < 2, top, rest)])


def run(slow: int, *, total: int = 10, **options):
    spectra = {f"w{n}": grown(1.5, 2.0) if n < slow else grown(3.0, 2.0) for n in range(total)}
    return training_run(spectra, **options)


def test_lead_is_the_log_of_the_factors() -> None:
    lead = lead_of_large_values(training_run({"w": grown(3.0, 2.0)}))
    assert float(lead[0]) == pytest.approx(np.log(3 / 2), abs=1e-6)


@pytest.mark.parametrize(
    ("slow", "word"), [(0, "holds"), (1, "holds"), (2, "fails"), (10, "fails")]
)
def test_nine_tenths_of_the_matrices_decide(slow: int, word: str) -> None:
    verdict = judged(Y1, at_decay("vgg", 1e-4, seeds(run(slow))))
    assert words(verdict) == {"vgg": word}
    assert verdict.networks[0].value == (10 - slow) / 10
    assert rows(verdict)[0]["exceptions"].startswith(f"{slow or 'none'} of 10")
    named = ", ".join(f"w{n}" for n in range(slow))
    assert [row[2] for table in verdict.tables[1:] for row in table.rows] == (
        [f"seed 0 1 2: {named}"] if slow else []
    )


def test_equal_growth_does_not_exceed() -> None:
    run = training_run({"w": np.stack([START, 2 * START])})
    assert judged(Y1, at_decay("unet", 0, seeds(run))).networks[0].value == 0


def test_two_seeds_are_not_enough() -> None:
    verdict = judged(Y1, at_decay("lm", 0.1, seeds(run(0), 2)))
    assert words(verdict) == {"lm": "holds so far"}
    assert verdict.networks[0].value == 1


def test_matrices_that_cannot_tell_are_not_counted() -> None:
    single, zero = np.array([[1.0], [2.0]]), np.stack([np.zeros(20), START])
    spectra = {"w": grown(3.0, 2.0), "last": single, "zero": zero, "part": grown(1.0, 2.0)}
    run = training_run(spectra, parts={"part": "w"})
    verdict = judged(Y1, at_decay("unet", 0, seeds(run)))
    assert rows(verdict)[0]["exceptions"] == "none of 1; 1 cannot tell"


def test_a_matrix_that_died_cannot_tell_and_is_named() -> None:
    run = training_run({"w": grown(3.0, 2.0), "dead": grown(0.0, 0.0)})
    verdict = judged(Y1, at_decay("vgg", 0, seeds(run)))
    assert (words(verdict), verdict.networks[0].value) == ({"vgg": "holds"}, 1.0)
    row = rows(verdict)[0]
    assert (row["share"], row["median lead"]) == (1.0, pytest.approx(np.log(1.5), abs=1e-6))
    assert row["exceptions"] == "none of 1; 1 cannot tell"
    assert verdict.tables[1].rows[0][-1] == "seed 0 1 2: dead"


def test_values_that_die_are_the_slowest() -> None:
    assert float(lead_of_large_values(training_run({"w": grown(1.0, 0.0)}))[0]) == np.inf
