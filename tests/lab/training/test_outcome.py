"""Trainings that count as collapsed or diverged, and those that do not."""

import math
from typing import Any

import numpy as np
import pytest
import xarray as xr

from lab.papers.yunis2024.closed_form_runs import training_run
from rankscope.lab.training.outcome import collapsed, diverged


def stored(
    *shares: float,
    parts: dict[str, str] | None = None,
    loss: tuple[float, ...] = (1.0, 0.1),
    constant_loss: float = 1.0,
    **attrs: Any,
) -> xr.Dataset:
    """Two snapshots of matrices w0, w1, ...; w<n> starts at 10^n and ends at its share of that."""
    spectra = {f"w{n}": 10.0**n * np.array([[1, 1], [a, a]]) for n, a in enumerate(shares)}
    return training_run(spectra, parts=parts, loss=loss, constant_loss=constant_loss, **attrs)


@pytest.mark.parametrize(("share", "expected"), [(0.949, False), (0.951, True), (0.95, True)])
def test_a_loss_near_a_constant_predictors(share: float, expected: bool) -> None:
    """The share is of the constant predictor's loss, which is not 1 here."""
    run = stored(1.0, loss=(9.0, 2 * share), constant_loss=2.0)
    assert bool(collapsed(run)) is expected
    assert not diverged(run)


@pytest.mark.parametrize(("share", "expected"), [(0.0101, False), (0.0099, True), (0.0, True)])
def test_norms_that_fell_to_a_hundredth(share: float, expected: bool) -> None:
    assert bool(collapsed(stored(share, share, share))) is expected


def test_the_medians_are_compared_and_not_the_shares() -> None:
    # medians 10 and 0.2, a ratio of 0.02; the shares are 0.2, 0.001 and 0.002
    assert collapsed(stored(0.2, 0.001, 0.002)) == ""
    # medians 10 and 0.09, though two of three end above a hundredth
    assert collapsed(stored(0.09, 0.02, 0.0001)) != ""
    assert collapsed(stored(0.001)) == f"median norm fell from {math.sqrt(2):.2g} to 0.0014"


def test_parts_of_matrices_are_not_counted() -> None:
    parts = {"w1": "w0", "w2": "w0"}
    assert collapsed(stored(1.0, 0.001, 0.001, parts=parts)) == ""
    assert collapsed(stored(0.001, 1.0, 1.0, parts=parts)) != ""


def test_a_matrix_that_was_always_zero_did_not_fall() -> None:
    run = stored(1.0)
    assert collapsed(run.assign(singular_values=0 * run["singular_values"])) == ""


@pytest.mark.parametrize(
    ("loss", "attrs", "reason"),
    [
        (0.1, {"diverged_at": 7}, "diverged at step 7"),
        (0.1, {"diverged_at": 0}, "diverged at step 0"),
        (math.nan, {}, "diverged: training loss nan at the end"),
        (math.inf, {}, "diverged: training loss inf at the end"),
    ],
)
def test_runs_that_diverged_are_left_out(loss: float, attrs: dict[str, int], reason: str) -> None:
    run = stored(1.0, loss=(1.0, loss), **attrs)
    assert diverged(run) == collapsed(run) == reason


def test_a_run_that_learns_is_neither() -> None:
    assert collapsed(stored(1.0)) == diverged(stored(1.0)) == ""
