"""Which runs claims read, and what they read from them; a rule counts matrices as an example."""

import numpy as np
import pytest
import xarray as xr

from lab.papers.yunis2024.closed_form_runs import (
    PairCourse,
    at_decay,
    course,
    decay_key,
    flat,
    judged,
    only,
    seeds,
    training_run,
    words,
)
from rankscope.lab.judging.rule import Measured, Rule
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.papers.yunis2024.runs import (
    base_runs,
    base_runs_of,
    decay_sweeps,
    neighbours,
    overlaps,
    per_base_run,
    sweeps,
    with_full_loss,
    with_values,
)
from rankscope.lab.running.run_key import RunKey


@per_base_run
def matrices(ds: xr.Dataset) -> Measured:
    """Count matrices; two are enough."""
    return Measured(ds.sizes["matrix"], ds.sizes["matrix"] >= 2)


RULE = Rule("Y0", "has two matrices", "matrices", ">= 2", matrices, base_runs_of("vgg", "lm"))


def run(count: int, **options):
    return training_run({f"w{n}": flat(4, [4, 4]) for n in range(count)}, **options)


@pytest.mark.parametrize(
    ("network", "decays", "base"),
    [
        ("vgg", [0.0, 1e-4, 0.1], 1e-4),
        ("vgg", [0.001, 0.0, 0.1], 0.0),  # nearer to 0.0001 than 0.001 is
        ("lm", [0.0, 0.1, 10.0], 0.1),
        ("lm", [10.0, 1.0], 1.0),
        ("unet", [0.1, 0.0], 0.0),
    ],
)
def test_the_base_decay_or_the_nearest(network: str, decays: list[float], base: float) -> None:
    keys = [decay_key(network, decay) for decay in decays]
    assert base_runs(keys) == [decay_key(network, base)]


def test_needs_choose_one_run_or_all_decays_of_the_four_networks() -> None:
    vgg = [decay_key("vgg", decay) for decay in (0.1, 1e-4)]
    others = [decay_key("grok", 1.0), RunKey("mlp", {"labels": "true"}), RunKey("lm", kind="other")]
    assert base_runs([*vgg, *others]) == [vgg[1]]
    assert decay_sweeps([*vgg, *others]) == vgg
    assert base_runs_of("lm")([*vgg, *others]) == []


def test_every_network_is_measured_by_itself() -> None:
    verdict = judged(RULE, at_decay("vgg", 1e-4, run(2)) | at_decay("lm", 0.1, run(1)))
    assert words(verdict) == {"vgg": "holds", "lm": "fails"}
    assert verdict.networks[0].experiment == "yunis2024/vgg"
    assert RULE.measure.__doc__ == "Count matrices; two are enough."


def test_a_collapsed_seed_cannot_tell_and_is_named() -> None:
    verdict = judged(RULE, at_decay("lm", 0.1, {**seeds(run(2)), 1: run(2, loss=(1.0, 0.95))}))
    assert [seed.met for seed in only(verdict).seeds] == [True, None, True]
    assert verdict.remarks == (
        "lm, decay 0.1, seed 1 collapsed: training loss 0.95, a constant predictor's is 1",
    )


def test_the_nearest_decay_stands_in_and_is_named() -> None:
    verdict = judged(RULE, at_decay("lm", 0, run(2)) | at_decay("lm", 1, run(1)))
    assert words(verdict) == {"lm": "holds"}
    assert verdict.remarks == ("lm, decay 0: the nearest declared to decay 0.1",)


def test_sweeps_leave_collapsed_runs_out_with_their_reason() -> None:
    good, dead = training_run(), training_run({"w": flat(10, [10, 10])}, loss=(1.0, 0.97))
    runs = Runs(
        at_decay("vgg", 0.1, {0: dead, 1: dead})
        | at_decay("vgg", 0, {0: good, 1: good})
        | at_decay("vgg", 0.001, {0: good, 1: dead})
        | at_decay("lm", 10, {0: good})
    )
    first, second, transformer = sweeps(runs)
    assert ([*first.runs], [*second.runs]) == ([0.0, 0.001], [0.0])
    assert first.left_out == (
        "vgg, decay 0.1, seed 0 collapsed: training loss 0.97, a constant predictor's is 1",
    )
    assert len(second.left_out) == 2
    assert first.base == decay_key("vgg", 0)  # nearer to 0.0001 than 0.001 is
    assert (transformer.base, transformer.seed) == (decay_key("lm", 10), 0)


def test_overlaps_of_a_zero_matrix_are_unknown_while_it_is_zero() -> None:
    spectra = {"u": flat(4, [4, 4, 0]), "v": flat(4, [0, 4, 4]), "w": flat(4, [4, 4, 4])}
    ends = [("u", "v"), ("u", "w"), ("v", "w"), ("w", "elsewhere")]
    ds = training_run(spectra, [PairCourse(*pair, course([0.1, 0.2, 0.3])) for pair in ends])
    selected = overlaps(ds)
    known = np.array([[False, True, False], [True, True, False], [False, True, True], [True] * 3])
    np.testing.assert_array_equal(~np.isnan(selected["alignment"].isel(i=0)), known.T)
    np.testing.assert_array_equal(~np.isnan(selected["alignment_background"]), known.T)
    a = selected.rankscope.mean_alignment().transpose("step", "pair")
    np.testing.assert_allclose(a, np.where(known, [0.1, 0.2, 0.3], np.nan).T)
    alive = overlaps(ds.isel(step=[1]))
    np.testing.assert_array_equal(alive["alignment"], ds["alignment"].isel(step=[1]))


def test_whole_matrices_and_pairs_without_other_taps() -> None:
    pairs = [
        PairCourse("u", "w", course([0.1, 0.2]), kind="conv"),
        PairCourse("u", "w", course([0.1, 0.2]), kind="tap", label="tap 0,1"),
    ]
    ds = training_run(
        {"u": flat(4, [4, 4]), "u.0": flat(2, [2, 2]), "w": flat(4, [4, 4])},
        pairs,
        parts={"u.0": "u"},
    )
    assert with_values(ds, 1)["matrix"].to_numpy().tolist() == ["u", "w"]
    assert neighbours(ds)["pair"].to_numpy().tolist() == ["u > w"]


def test_the_full_loss_is_the_training_loss_unless_stored() -> None:
    ds = training_run(loss=(1.0, 0.1))
    assert with_full_loss(ds)["full_loss"].to_numpy().tolist() == [1.0, 0.1]
    stored = ds.assign(full_loss=("step", [3.0, 2.0]))
    assert with_full_loss(stored)["full_loss"].to_numpy().tolist() == [3.0, 2.0]
