"""What is kept of a run: where it is the run itself, how near it is, how small it is."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lab.claims.training_runs import PairCourse, course, flat, seeds, training_run
from rankscope.lab.claims.networks import CLAIMS
from rankscope.lab.results.archive import write_archive
from rankscope.lab.results.compaction import (
    LIMIT,
    Compaction,
    compact,
    compaction_of,
    open_kept,
    rounded,
    spread,
)

STEPS = 8
STRIDE = Compaction(stride=3)
KEPT = [0, 3, 6, 7]  # every third, and the last
STEP_NUMBERS = [0, 1, 2, 4, 8, 20, 40, 100]


def run(**attrs: object) -> xr.Dataset:
    rng = np.random.default_rng(0)
    spectra = {"a": np.sort(rng.random((STEPS, 12)))[:, ::-1], "b": flat(8, range(1, STEPS + 1))}
    diagonals = [rng.random((STEPS, 60)) for _ in range(3)]
    pairs = [
        PairCourse("a", "b", diagonals[0]),
        PairCourse("a", "b", diagonals[1], kind="tap", label="tap 0,0"),
        PairCourse("b", "c", diagonals[2]),
    ]
    scalars = {"top_loss": rng.random(STEPS), "tracker_copy_seconds": rng.random(STEPS)}
    return training_run(spectra, pairs, scalars=scalars, shown_pair="b > c", **attrs)


@given(
    hnp.arrays(
        np.float32, 20, elements=st.floats(-(2.0**90), 2.0**90, width=32, allow_subnormal=False)
    ),
    st.integers(3, 20),
)
def test_rounding_is_near_and_keeps_the_order(values: np.ndarray, bits: int) -> None:
    short = rounded(values, bits)
    assert short.dtype == values.dtype
    assert (np.abs(short - values) <= 2.0 ** -(bits + 1) * np.abs(values)).all()
    assert (short.view(np.uint32) % (1 << (23 - bits)) == 0).all()
    assert (np.diff(rounded(np.sort(values), bits)) >= 0).all()
    assert (rounded(short, bits) == short).all()


def test_rounding_leaves_what_is_no_number_alone() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 0.0, 1e-300, 1 + 2**-5])
    short = rounded(values, 3)
    np.testing.assert_array_equal(short[:4], values[:4])
    assert short[4] == pytest.approx(1e-300, rel=2**-4) and short[5] == 1


def test_losses_stay_and_spectra_are_thinned() -> None:
    ds = run(coverage="14 matrices", seed=1)
    small = compact(ds, STRIDE)
    assert small["kept_step"].to_numpy().tolist() == KEPT
    assert small["singular_values"].dims == ("kept_step", "matrix", "k")
    xr.testing.assert_equal(small["top_loss"], ds["top_loss"])
    assert "tracker_copy_seconds" not in small and "coverage" not in small.attrs
    assert small.attrs["compaction"]["stride"] == 3 and small.attrs["seed"] == 1


def test_between_two_kept_snapshots_is_a_straight_line() -> None:
    ds = run(steps=STEP_NUMBERS)
    found = spread(compact(ds, STRIDE))
    assert found.sizes == ds.sizes and found["singular_values"].dims == ds["singular_values"].dims
    np.testing.assert_array_equal(found["step"], STEP_NUMBERS)
    for name in ("singular_values", "alignment_background"):
        whole, there = ds[name].to_numpy(), found[name].to_numpy()
        assert there.dtype == whole.dtype
        np.testing.assert_allclose(there[KEPT, 0], whole[KEPT, 0], rtol=2**-12)
    times, values = np.array(STEP_NUMBERS)[KEPT], ds["singular_values"].to_numpy()[KEPT, 0, 2]
    expected = np.interp(STEP_NUMBERS, times, values)
    np.testing.assert_allclose(found["singular_values"][:, 0, 2], expected, rtol=2**-11)


def test_what_is_kept_at_both_ends_is_absent_between() -> None:
    ds = run()
    found = spread(compact(ds, Compaction(stride=3, ends=("singular_values",))))
    np.testing.assert_allclose(
        found["singular_values"][[0, -1]], ds["singular_values"][[0, -1]], rtol=2**-12
    )
    assert found["singular_values"][1:-1].isnull().all()
    assert found["alignment"][1:-1].notnull().any()


def test_overlaps_where_they_are_read() -> None:
    ds = run()
    found = spread(compact(ds, Compaction()))
    for name in ("alignment", "alignment_normalized"):
        near, tap, shown = (found[name].isel(pair=place) for place in range(3))
        there = [each.notnull().to_numpy() for each in (near, tap, shown)]
        assert there[0][:, :10].all() and not there[0][:-1, 10:].any()
        assert there[1][-1, :10].all() and not there[1][:-1].any()
        deep = name == "alignment"
        assert there[2][:, :60].all() if deep else not there[2][:, 10:].any()
        assert all(each[-1, 10:60].all() == deep for each in there)
    known = found["alignment"].notnull()
    np.testing.assert_allclose(
        found["alignment"].where(known, 0), ds["alignment"].where(known, 0), rtol=2**-12
    )


def sweep(network: str, decays: tuple[str, ...]) -> dict[str, dict[int, xr.Dataset]]:
    good = course([0.1, 0.1, 0.3, 0.3, 0.3, 0.2, 0.2, 0.2], R=64, rest=0.1)
    runs = {}
    for place, decay in enumerate(decays):
        spectra = {name: flat(20, np.linspace(20, 9 - place, STEPS).round()) for name in "ab"}
        taps = [PairCourse("a", "b", 0.5 * good, kind="tap", label=f"tap 0,{n}") for n in (0, 1)]
        pairs = [PairCourse("a", "b", good, kind="conv"), *taps]
        losses = {"full_loss": [1.0] * STEPS, "bottom_loss": [2.0] * STEPS}
        top = [1 + 1 / (place + 2)] * (STEPS - 1) + [1.9]
        scalars = {**losses, "top_loss": top}
        found = training_run(spectra, pairs, scalars=scalars, shown_pair="a > b")
        runs[f"{network}/decay-{decay}"] = seeds(found)
    return runs


def test_claims_say_the_same_of_kept_runs() -> None:
    """Those that look at whole courses, at both ends, at losses, and at other taps."""
    whole = sweep("vgg", ("0", "0.0001", "0.1"))
    kept = {name: seeds(spread(compact(of[0], Compaction(stride=2)))) for name, of in whole.items()}
    for key in ("Y1", "Y2", "Y3", "Y3b", "Y6", "Y7", "Y11"):
        before, after = CLAIMS[key](whole), CLAIMS[key](kept)
        assert after.holds == before.holds
        for one, two in zip(before.networks, after.networks, strict=True):
            assert [seed.met for seed in two.seeds] == [seed.met for seed in one.seeds]
            assert two.value == (one.value and pytest.approx(one.value, rel=1e-3)), key


# Snapshots, widths of matrices, pairs, other taps, and runs of all seeds.
SHAPES = {
    "yunis2024/vgg": (169, (27, 64, 128, 128, *[256] * 3, *[512] * 6, 10), 13, 96, 15),
    "yunis2024/lm": (15, (*[768] * 50,), 207, 0, 12),
}


@pytest.mark.parametrize("name", SHAPES)
def test_all_seeds_of_the_papers_size_are_small(name: str, tmp_path) -> None:
    """Spectra of random matrices that grow and shrink, with noise at every snapshot."""
    snapshots, widths, pairs, taps, runs = SHAPES[name]
    rng = np.random.default_rng(0)
    time = np.linspace(0, 1, snapshots)[:, None]
    spectra = {
        f"w{number}": (1 - np.linspace(0, 0.98, width)) * np.exp(time * rng.standard_normal())
        + 0.01 * np.sort(rng.standard_normal((snapshots, width)))[:, ::-1]
        for number, width in enumerate(widths)
    }
    kinds = ["conv"] * pairs + ["tap"] * taps
    found = [
        PairCourse("a", "b", rng.random((snapshots, 100)), kind=kind, label=str(number))
        for number, kind in enumerate(kinds)
    ]
    ds = training_run(spectra, found, shown_pair="a > b [0]")
    ds["alignment"] = ds["alignment"].astype(np.float32)
    ds["alignment_normalized"] = ds["alignment_normalized"].astype(np.float32)
    path = tmp_path / "seed-0.zarr.zip"
    write_archive(compact(ds, compaction_of(name)), path)
    assert path.stat().st_size * runs < LIMIT
    assert open_kept(path).sizes["step"] == snapshots
