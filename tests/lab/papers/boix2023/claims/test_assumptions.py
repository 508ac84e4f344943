import numpy as np
import pytest
import xarray as xr

from rankscope.lab.judging.available_runs import AvailableRuns
from rankscope.lab.judging.rule import Rule
from rankscope.lab.judging.study import judge
from rankscope.lab.judging.verdict import NetworkVerdict, Verdict
from rankscope.lab.papers.boix2023.claims.assumptions import B5, B5_LIMIT
from rankscope.lab.running.run_key import RunKey

STAGES = {
    "relative_margin": (0.2, 0.1),
    "left_drive": (np.inf, np.inf),
    "hessian_u": (1.5, 0.3),
    "constant": (0.75, 0.15),
    "independent": (0.0, 0.02),
    "tied": (0.0, 0.01),
    "reached": (0.0, 1e-6),
}


def run(
    ends: list[float],
    *,
    kinds: str = "plateau",
    rising: int = 0,
    activated: int = 0,
    **stages: tuple[float, float],
) -> xr.Dataset:
    """Trials whose distance falls to the share 1/2, then 0.06, then ends[trial]; two stages."""
    trials = len(ends)
    distance = [[1 + j, (1 + j) / 2, (1 + j) * 0.06, (1 + j) * end] for j, end in enumerate(ends)]
    values = {**STAGES, **stages}
    return xr.Dataset(
        {
            "distance": (("trial", "time"), np.reshape(distance, (trials, 4))),
            "kind": ("trial", np.array([kinds] * trials, dtype=object)),
            "noise": ("trial", np.array(["tied"] * trials, dtype=object)),
            "rising": ("trial", [rising] * trials),
            "activated": ("trial", [activated] * trials),
            **{f"stage_{name}": ("stage", list(value)) for name, value in values.items()},
        },
        coords={"time": [0.0, 100.0, 300.0, 1000.0]},
        attrs={"assumptions": ["Assumption 4.2 holds: by much"]},
    )


def key(log10_alpha: float) -> RunKey:
    variant = {"log10_alpha": log10_alpha}
    return RunKey("teacher-1", variant, experiment="boix2023/assumptions")


def verdict(rule: Rule, *seeds: xr.Dataset, others: tuple[xr.Dataset, ...] = ()) -> Verdict:
    """Judge seeds at 1e-32, and others at 1e-300."""
    runs = {key(-32.0): dict(enumerate(seeds))}
    if others:
        runs[key(-300.0)] = dict(enumerate(others))
    return judge(rule, AvailableRuns(runs))


def network(judged: Verdict) -> NetworkVerdict:
    (only,) = judged.networks
    assert (only.experiment, only.network, only.part) == ("boix2023/assumptions", "teacher-1", "")
    return only


def test_it_holds_when_every_trial_of_three_seeds_is_back() -> None:
    judged = network(verdict(B5, run([0.01, 0.05]), run([0.02]), run([0.001])))
    assert judged.word == "holds"
    assert judged.value == pytest.approx(0.02)
    assert judged.interval == pytest.approx((0.001, 0.05))


def test_one_trial_that_is_not_back_decides_its_seed() -> None:
    far, near = run([0.01, 3.0]), run([0.01])
    assert network(verdict(B5, far, far, far)).word == "fails"
    assert network(verdict(B5, far, near, near)).word == "mixed"


@pytest.mark.parametrize("rule", [B5, B5_LIMIT])
@pytest.mark.parametrize(
    "fault",
    [
        {"relative_margin": (0.2, 1e-12)},
        {"hessian_u": (1.0, 0.0)},
        {"hessian_u": (1.0, np.nan)},
        {"left_drive": (np.inf, 0.0)},
    ],
)
def test_a_tie_or_a_flat_minimum_decides_too(fault: dict[str, object], rule: Rule) -> None:
    assert network(verdict(rule, *[run([0.01], **fault)] * 3)).word == "fails"


def test_a_seed_without_trials_cannot_tell() -> None:
    judged = network(verdict(B5, run([]), run([0.01]), run([0.01])))
    assert [seed.met for seed in judged.seeds] == [None, True, True]


def test_other_alphas_are_shown_and_decide_nothing() -> None:
    good, far = run([0.01]), run([9.0])
    judged = verdict(B5, good, good, good, others=(far, far, far))
    assert network(judged).word == "holds" and network(judged).value == pytest.approx(0.01)
    assert [row[2] for row in judged.tables[0].rows] == ["1e-32", "1e-300"] * 3
    assert judged.remarks == tuple(
        f"teacher-1, seed {seed}: Assumption 4.2 holds: by much" for seed in range(3)
    )


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
    (table,) = verdict(B5, ds).tables
    (row,) = table.rows
    named = dict(zip(table.columns, row, strict=True))
    assert named["trials"] == f"{kinds}, tied" and named["of"] == 3
    assert (named["100"], named["300"], named["1000"]) == (0, 0, 2)
    assert named["undisturbed"] == alone
    assert (named["median"], named["worst"]) == pytest.approx((0.04, 0.5))


def test_in_the_limit_only_the_stages_count() -> None:
    far = run([100.0])
    judged = verdict(B5_LIMIT, far, far, far)
    assert network(judged).word == "holds" and network(judged).value == pytest.approx(0.02)
    assert judged.tables[0].rows[0][3:6] == pytest.approx((0.1, 0.3, 0.15))


@pytest.mark.parametrize(
    "fault", [{"tied": (0, 0.06)}, {"reached": (0, 0.02)}, {"reached": (0, np.nan)}]
)
def test_in_the_limit_noise_that_stays_or_leads_away_decides(fault: dict[str, tuple]) -> None:
    assert network(verdict(B5_LIMIT, *[run([0.01], **fault)] * 3)).word == "fails"
