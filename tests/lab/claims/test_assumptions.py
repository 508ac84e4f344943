import numpy as np
import pytest
import xarray as xr

from rankscope.lab.claims.assumptions import assumptions_hold, assumptions_hold_in_the_limit
from rankscope.lab.experiment import Results

TIME = np.array([0.0, 100.0, 300.0, 1000.0])


def run(
    ends: list[float],
    *,
    alpha: float = -32.0,
    margins: tuple[float, ...] = (0.2, 0.1),
    eigenvalues: tuple[float, ...] = (1.5, 0.3),
    left_drive: float = np.inf,
    tied: float = 0.01,
    reached: float = 1e-6,
    kinds: str = "plateau",
    rising: int = 0,
    activated: int = 0,
) -> xr.Dataset:
    """Trials whose distance falls to the share 1/2, then 0.06, then ends[trial]; two stages."""
    along = [np.array([1, 0.5, 0.06, end]) for end in ends]
    distance = np.stack([(1 + j) * each for j, each in enumerate(along)]) if ends else None
    trials = len(ends)
    stages = {
        "relative_margin": margins,
        "left_drive": (np.inf, left_drive),
        "hessian_u": eigenvalues,
        "constant": tuple(value / 2 for value in eigenvalues),
        "independent": (0.0, 0.02),
        "tied": (0.0, tied),
        "reached": (0.0, reached),
    }
    return xr.Dataset(
        {
            "distance": (("trial", "time"), np.empty((0, 4)) if distance is None else distance),
            "kind": ("trial", np.array([kinds] * trials, dtype=object)),
            "noise": ("trial", np.array(["tied"] * trials, dtype=object)),
            "rising": ("trial", [rising] * trials),
            "activated": ("trial", [activated] * trials),
            **{f"stage_{name}": ("stage", list(values)) for name, values in stages.items()},
        },
        coords={"time": TIME},
        attrs={"log10_alpha": alpha, "assumptions": ["Assumption 4.2 holds: by much"]},
    )


def results(*seeds: xr.Dataset, others: tuple[xr.Dataset, ...] = ()) -> Results:
    found = {"teacher-1/alpha-1e-32": dict(enumerate(seeds))}
    if others:
        found["teacher-1/alpha-1e-300"] = dict(enumerate(others))
    return found


def test_yes_when_every_trial_of_three_seeds_is_back() -> None:
    verdict = assumptions_hold(results(run([0.01, 0.05]), run([0.02]), run([0.001])))
    assert verdict.holds == "yes" and verdict.claim == "B5"
    assert verdict.value == pytest.approx(0.02)
    assert verdict.interval == pytest.approx((0.001, 0.05))


def test_one_trial_that_is_not_back_decides_its_seed() -> None:
    far = run([0.01, 3.0])
    assert assumptions_hold(results(far, far, far)).holds == "no"
    assert assumptions_hold(results(far, run([0.01]), run([0.01]))).holds == "undecided"


@pytest.mark.parametrize(
    "fault",
    [
        {"margins": (0.2, 1e-12)},
        {"eigenvalues": (1.0, 0.0)},
        {"eigenvalues": (1.0, np.nan)},
        {"left_drive": 0.0},
    ],
)
def test_a_tie_or_a_flat_minimum_decides_too(fault: dict[str, object]) -> None:
    faulty = [run([0.01], **fault) for _ in range(3)]
    assert assumptions_hold(results(*faulty)).holds == "no"
    assert assumptions_hold_in_the_limit(results(*faulty)).holds == "no"


def test_a_seed_without_trials_cannot_tell() -> None:
    verdict = assumptions_hold(results(run([]), run([0.01]), run([0.01])))
    assert verdict.holds == "undecided"


def test_other_alphas_are_shown_and_decide_nothing() -> None:
    good, far = run([0.01]), run([9.0], alpha=-300.0)
    verdict = assumptions_hold(results(good, good, good, others=(far, far, far)))
    assert verdict.holds == "yes" and verdict.value == pytest.approx(0.01)
    assert [row[2] for row in verdict.tables[0].rows] == ["1e-32"] * 3 + ["1e-300"] * 3


@pytest.mark.parametrize(
    ("kinds", "rising", "activated", "alone"),
    [
        ("plateau", 0, 0, "2 of 3"),
        ("plateau", 1, 1, "0 of 0"),
        ("plateau", 0, 1, "0 of 0"),
        ("newly active", 1, 1, "2 of 3"),
        ("newly active", 1, 3, "0 of 0"),
    ],
)
def test_table_counts_what_is_back_and_what_nothing_disturbed(
    kinds: str, rising: int, activated: int, alone: str
) -> None:
    ds = run([0.01, 0.04, 0.5], kinds=kinds, rising=rising, activated=activated)
    (table,) = assumptions_hold(results(ds)).tables
    (row,) = table.rows
    named = dict(zip(table.columns, row, strict=True))
    assert named["trials"] == f"{kinds}, tied" and named["of"] == 3
    assert (named["100"], named["300"], named["1000"]) == (0, 0, 2)
    assert named["undisturbed"] == alone
    assert (named["median"], named["worst"]) == pytest.approx((0.04, 0.5))


def test_in_the_limit_only_the_stages_count() -> None:
    far = run([100.0])
    verdict = assumptions_hold_in_the_limit(results(far, far, far))
    assert verdict.holds == "yes" and verdict.value == pytest.approx(0.02)
    assert verdict.tables[0].rows[0][3:6] == pytest.approx((0.1, 0.3, 0.15))


@pytest.mark.parametrize("fault", [{"tied": 0.06}, {"reached": 0.02}, {"reached": np.nan}])
def test_in_the_limit_noise_that_stays_or_leads_away_decides(fault: dict[str, float]) -> None:
    faulty = run([0.01], **fault)
    assert assumptions_hold_in_the_limit(results(faulty, faulty, faulty)).holds == "no"
