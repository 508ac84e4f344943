import numpy as np
import pytest
import xarray as xr

from rankscope.lab.judging.available_runs import AvailableRuns
from rankscope.lab.judging.rule import Rule
from rankscope.lab.judging.study import judge
from rankscope.lab.judging.verdict import NetworkVerdict, Verdict
from rankscope.lab.papers.boix2023.claims.assumptions import B5, B5_FIRST, relative_distances
from rankscope.lab.running.run_key import RunKey

STAGES = {
    "relative_margin": (0.2, 0.1),
    "left_drive": (np.inf, np.inf),
    "hessian_u": (1.5, 0.3),
}


def run(
    ends: list[float],
    *,
    size: float = 1.0,
    kinds: str = "plateau",
    rising: int = 0,
    activated: int = 0,
    **stages: tuple[float, float],
) -> xr.Dataset:
    """Trials whose distance falls to the share 1/2, then 0.06, then ends[trial]; two stages.

    size: norm of the unperturbed z at the end, relative to the perturbation. It is a tenth before.
    """
    trials = len(ends)
    noise = 1.0 + np.arange(trials)[:, None]
    distance = noise * np.reshape([[1, 0.5, 0.06, end] for end in ends], (trials, 4))
    # The third coordinate is not perturbed.
    courses = size * np.outer([0.1, 0.1, 0.1, 1.0], [0.6, -0.8, np.nan])
    values = {**STAGES, **stages}
    return xr.Dataset(
        {
            "distance": (("trial", "time"), distance),
            "unperturbed_z": (("trial", "time", "coordinate"), noise[:, :, None] * courses),
            "kind": ("trial", np.array([kinds] * trials, dtype=object)),
            "noise": ("trial", np.array(["tied"] * trials, dtype=object)),
            "rising": ("trial", [rising] * trials),
            "activated": ("trial", [activated] * trials),
            **{f"stage_{name}": ("stage", list(value)) for name, value in values.items()},
        },
        coords={"time": [0.0, 100.0, 300.0, 1000.0]},
        attrs={"assumptions": ["Assumption 4.2 holds: by much"]},
    )


def key(log10_alpha: float, teacher: str = "teacher-1") -> RunKey:
    variant = {"log10_alpha": log10_alpha}
    return RunKey(teacher, variant, experiment="boix2023/assumptions")


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


@pytest.mark.parametrize(
    ("near", "far", "word"), [(10, 0, "holds"), (9, 1, "holds"), (8, 1, "fails"), (0, 3, "fails")]
)
def test_nine_tenths_of_the_trials_have_to_end_near(near: int, far: int, word: str) -> None:
    ds = run([0.0499] * near + [0.0501] * far)
    judged = network(verdict(B5, ds, ds, ds))
    assert (judged.word, judged.value) == (word, pytest.approx(near / (near + far)))


def test_distances_are_relative_to_the_unperturbed_run_at_the_end() -> None:
    """What is left is 0.3 of the perturbation, and 0.03 of the unperturbed z."""
    far = run([0.3, 0.3], size=10.0)
    np.testing.assert_allclose(relative_distances(far)[1], [1, 0.5, 0.06, 0.03])
    assert network(verdict(B5, far, far, far)).word == "holds"
    assert network(verdict(B5_FIRST, far, far, far)).word == "fails"
    near = run([0.03], size=0.1)
    assert network(verdict(B5, near, near, near)).word == "fails"
    assert network(verdict(B5_FIRST, near, near, near)).word == "holds"


def test_seeds_and_teachers_are_judged_apart() -> None:
    near, far = run([0.01]), run([1.0])
    assert network(verdict(B5, near, far, near)).word == "mixed"
    entries = {key(-32.0): {0: near}, key(-32.0, "teacher-0.5"): {0: far}}
    words = {n.network: n.word for n in judge(B5, AvailableRuns(entries)).networks}
    assert words == {"teacher-1": "holds so far", "teacher-0.5": "fails so far"}


def test_a_trial_without_a_number_is_not_near() -> None:
    assert network(verdict(B5, *[run([np.nan])] * 3)).word == "fails"


def test_only_1e_32_is_read_and_a_seed_without_1e_300_counts() -> None:
    near, far = run([0.01]), run([9.0])
    judged = verdict(B5, near, near, near, others=(far,))
    assert network(judged).word == "holds" and len(judged.tables[0].rows) == 3
    first = network(verdict(B5_FIRST, near, near, near, others=(far,)))
    assert [outcome.seed for outcome in first.seeds] == [0]


def test_the_table_counts_trials_that_are_near() -> None:
    (table,) = verdict(B5, run([0.01, 0.04, 0.5])).tables
    (row,) = table.rows
    named = dict(zip(table.columns, row, strict=True))
    assert named["trials"] == "plateau, tied" and named["of"] == 3
    assert (named["100"], named["300"], named["1000"]) == (0, 0, 2)
    assert (named["median"], named["farthest"]) == pytest.approx((0.04, 0.5))


def test_the_first_rule_holds_when_every_trial_of_three_seeds_is_back() -> None:
    judged = network(verdict(B5_FIRST, run([0.01, 0.05]), run([0.02]), run([0.001])))
    assert judged.word == "holds"
    assert judged.value == pytest.approx(0.02)
    assert judged.interval == pytest.approx((0.001, 0.05))


def test_one_trial_that_is_not_back_decides_its_seed_by_the_first_rule() -> None:
    far, near = run([0.01, 3.0]), run([0.01])
    assert network(verdict(B5_FIRST, far, far, far)).word == "fails"
    assert network(verdict(B5_FIRST, far, near, near)).word == "mixed"


@pytest.mark.parametrize(
    "fault",
    [
        {"relative_margin": (0.2, 1e-12)},
        {"hessian_u": (1.0, 0.0)},
        {"hessian_u": (1.0, np.nan)},
        {"left_drive": (np.inf, 0.0)},
    ],
)
def test_a_tie_or_a_flat_minimum_decides_the_first_rule(fault: dict[str, object]) -> None:
    assert network(verdict(B5_FIRST, *[run([0.01], **fault)] * 3)).word == "fails"


@pytest.mark.parametrize("rule", [B5, B5_FIRST])
def test_a_seed_without_trials_cannot_tell(rule: Rule) -> None:
    judged = network(verdict(rule, run([]), run([0.01]), run([0.01])))
    assert [seed.met for seed in judged.seeds] == [None, True, True]


def test_the_first_rule_shows_other_alphas() -> None:
    good, far = run([0.01]), run([9.0])
    judged = verdict(B5_FIRST, good, good, good, others=(far, far, far))
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
def test_the_first_table_counts_what_is_back_and_what_nothing_disturbed(
    kinds: str, rising: int, activated: int, alone: str
) -> None:
    ds = run([0.01, 0.04, 0.5], kinds=kinds, rising=rising, activated=activated)
    (table,) = verdict(B5_FIRST, ds).tables
    (row,) = table.rows
    named = dict(zip(table.columns, row, strict=True))
    assert named["trials"] == f"{kinds}, tied" and named["of"] == 3
    assert (named["100"], named["300"], named["1000"]) == (0, 0, 2)
    assert named["undisturbed"] == alone
    assert (named["median"], named["worst"]) == pytest.approx((0.04, 0.5))
