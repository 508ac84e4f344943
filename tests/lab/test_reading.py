"""Which run is whose, and when one counts as collapsed."""

import math

import numpy as np
import pytest

from lab.claims.training_runs import PairCourse, course, flat, seeds, training_run
from rankscope.lab import reading


def shrunk(*factors: float, parts: dict[str, str] | None = None, **options):
    """Matrices w0, w1, ... that end at so much of their initial norm; w<n> starts at 10^n."""
    spectra = {
        f"w{n}": np.array([[1.0, 1.0], [factor, factor]]) * 10.0**n
        for n, factor in enumerate(factors)
    }
    return training_run(spectra, parts=parts, **options)


@pytest.mark.parametrize(("last", "collapsed"), [(0.949, False), (0.951, True), (0.95, True)])
def test_a_loss_near_a_constant_predictors(last: float, collapsed: bool) -> None:
    """In units of the constant predictor's loss, which is not 1 here."""
    run = training_run(loss=(9.0, 2 * last), constant_loss=2.0)
    assert bool(reading.collapsed(run)) is collapsed
    assert not reading.diverged(run)


@pytest.mark.parametrize(("share", "collapsed"), [(0.0101, False), (0.0099, True), (0.0, True)])
def test_norms_that_fell_to_a_hundredth(share: float, collapsed: bool) -> None:
    assert bool(reading.collapsed(shrunk(share, share, share))) is collapsed


def test_the_medians_are_compared_and_not_the_shares() -> None:
    # medians 10 and 0.2, a ratio of 0.02; the shares are 0.2, 0.001 and 0.002
    assert reading.collapsed(shrunk(0.2, 0.001, 0.002)) == ""
    # medians 10 and 0.09, though two of three keep more than a hundredth
    assert reading.collapsed(shrunk(0.09, 0.02, 0.0001)) != ""
    norm = math.sqrt(2)
    assert reading.collapsed(shrunk(0.001)) == f"median norm fell from {norm:.2g} to 0.0014"


def test_parts_of_matrices_are_not_counted() -> None:
    parts = {"w1": "w0", "w2": "w0"}
    assert reading.collapsed(shrunk(1.0, 0.001, 0.001, parts=parts)) == ""
    assert reading.collapsed(shrunk(0.001, 1.0, 1.0, parts=parts)) != ""


def test_a_matrix_that_was_always_zero_did_not_fall() -> None:
    assert reading.collapsed(training_run({"w": flat(4, [0, 0])})) == ""


@pytest.mark.parametrize(
    ("loss", "attrs", "why"),
    [
        (0.1, {"diverged_at": 7}, "diverged at step 7"),
        (0.1, {"diverged_at": 0}, "diverged at step 0"),
        (math.nan, {}, "diverged: training loss nan at the end"),
        (math.inf, {}, "diverged: training loss inf at the end"),
    ],
)
def test_runs_that_diverged_are_left_out_as_such(loss: float, attrs: dict, why: str) -> None:
    run = training_run(loss=(1.0, loss), **attrs)
    assert reading.diverged(run) == reading.collapsed(run) == why


def test_a_run_that_learns_is_neither() -> None:
    assert reading.collapsed(training_run()) == reading.diverged(training_run()) == ""


def test_names_have_a_network_and_a_variant() -> None:
    assert reading.network("vgg/decay-0.001") == "vgg"
    assert reading.variant("vgg/decay-0.001") == "decay-0.001"
    assert (reading.network("vgg"), reading.variant("vgg")) == ("vgg", "")


def test_decays_ascend_as_numbers_and_are_one_networks() -> None:
    names = ["lm/decay-10", "lm/decay-0", "lm/decay-1e-05", "lm/other", "lmx/decay-3"]
    results = {name: seeds(training_run(scale=name), 1) for name in names}
    found = reading.decays(results, "lm")
    assert [*found] == [0.0, 1e-5, 10.0]
    assert found[10.0][0].attrs["scale"] == "lm/decay-10"
    assert reading.decays(results, "vgg") == {}


@pytest.mark.parametrize(
    ("network", "there", "base"),
    [
        ("vgg", ["0", "0.0001", "0.1"], 1e-4),
        ("vgg", ["0.001", "0", "0.1"], 0.0),  # nearer to 0.0001 than 0.001 is
        ("lm", ["0", "0.1", "10"], 0.1),
        ("lm", ["10", "1"], 1.0),
        ("unet", ["0.1", "0"], 0.0),
    ],
)
def test_the_base_decay_or_the_nearest(network: str, there: list[str], base: float) -> None:
    results = {f"{network}/decay-{decay}": seeds(training_run(at=decay), 1) for decay in there}
    assert reading.base_decay(results, network) == base
    assert float(reading.base(results, network)[0].attrs["at"]) == base


def test_overlaps_of_a_zero_matrix_are_unknown_while_it_is_zero() -> None:
    spectra = {"u": flat(4, [4, 4, 0]), "v": flat(4, [0, 4, 4]), "w": flat(4, [4, 4, 4])}
    ends = [("u", "v"), ("u", "w"), ("v", "w"), ("w", "elsewhere")]
    run = training_run(spectra, [PairCourse(*each, course([0.1, 0.2, 0.3])) for each in ends])
    found = reading.overlaps(run)
    known = np.array([[False, True, False], [True, True, False], [False, True, True], [True] * 3])
    np.testing.assert_array_equal(~np.isnan(found["alignment"].isel(i=0)), known.T)
    np.testing.assert_array_equal(~np.isnan(found["alignment_background"]), known.T)
    a = found.rankscope.mean_alignment().transpose("step", "pair")
    np.testing.assert_allclose(a, np.where(known, [0.1, 0.2, 0.3], np.nan).T)
    alive = reading.overlaps(run.isel(step=[1]))
    np.testing.assert_array_equal(alive["alignment"], run["alignment"].isel(step=[1]))


def test_whole_matrices_and_pairs_without_other_taps() -> None:
    pairs = [
        PairCourse("u", "w", course([0.1, 0.2]), kind="conv"),
        PairCourse("u", "w", course([0.1, 0.2]), kind="tap", label="tap 0,1"),
    ]
    run = training_run(
        {"u": flat(4, [4, 4]), "u.0": flat(2, [2, 2]), "w": flat(4, [4, 4])},
        pairs,
        parts={"u.0": "u"},
    )
    assert reading.whole(run)["matrix"].to_numpy().tolist() == ["u", "w"]
    assert reading.neighbours(run)["pair"].to_numpy().tolist() == ["u > w"]
