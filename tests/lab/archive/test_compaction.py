"""What is kept of a run: where it is the run itself, how near it is, how small it is."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from rankscope.lab.papers.yunis2024.claims.networks import CLAIMS

from lab.papers.yunis2024.closed_form_runs import PairCourse, course, flat, seeds, training_run
from rankscope.lab.archive.compaction import (
    LIMIT,
    Compaction,
    compact,
    compaction_of,
    is_results,
    kept_path,
    rounded,
)
from rankscope.metrics import normalized_effective_rank
from rankscope.store.archive import packed

STEPS = 8


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
    hnp.arrays(np.float32, 20, elements=st.floats(-(2.0**90), 2.0**90, width=32)),
    st.integers(3, 20),
)
def test_rounding_is_near_and_keeps_the_order(values: np.ndarray, bits: int) -> None:
    short = rounded(values, bits)
    assert short.dtype == values.dtype
    assert (np.abs(short - values) <= 2.0 ** -(bits + 1) * np.abs(values)).all()
    normal = np.abs(values) >= np.finfo(np.float32).tiny
    assert (short.view(np.uint32) % (1 << (23 - bits)) == 0)[normal].all()
    assert (np.diff(rounded(np.sort(values), bits)) >= 0).all()
    assert (rounded(short, bits) == short).all()


def test_rounding_leaves_what_is_no_number_alone() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 0.0, 1e-300, 1 + 2**-5])
    short = rounded(values, 3)
    np.testing.assert_array_equal(short[:4], values[:4])
    assert short[4] == pytest.approx(1e-300, rel=2**-4) and short[5] == 1


def test_a_collapsed_network_keeps_its_flat_spectrum() -> None:
    """Its values lie below the smallest normal number, and it reads as of high rank."""
    values = np.linspace(3e-43, 5e-43, 64, dtype=np.float32)[::-1]
    assert 0 < values.max() < np.finfo(np.float32).tiny
    np.testing.assert_array_equal(rounded(values, 8), values)
    assert float(normalized_effective_rank(rounded(values, 8).astype(np.float64))) > 0.95


def test_every_snapshot_is_kept_of_spectra_and_losses() -> None:
    ds = run(coverage="14 matrices", seed=1)
    small = compact(ds, Compaction())
    assert small.sizes == ds.sizes and small["singular_values"].dtype == np.float32
    np.testing.assert_allclose(small["singular_values"], ds["singular_values"], rtol=2**-10)
    xr.testing.assert_equal(small["top_loss"], ds["top_loss"])
    assert "tracker_copy_seconds" not in small and "coverage" not in small.attrs
    assert small.attrs["compaction"]["ends"] == [] and small.attrs["seed"] == 1


def test_what_is_kept_at_both_ends_is_absent_between() -> None:
    ds = run()
    found = compact(ds, Compaction(ends=("singular_values",)))
    np.testing.assert_allclose(
        found["singular_values"][[0, -1]], ds["singular_values"][[0, -1]], rtol=2**-10
    )
    assert found["singular_values"][1:-1].isnull().all()
    assert found["alignment"][1:-1].notnull().any()


def test_of_parts_only_the_largest_value_is_kept() -> None:
    spectra = {"a": flat(4, [4, 4]), "a.0": flat(2, [2, 2])}
    ds = training_run(spectra, parts={"a.0": "a"})
    whole, part = compact(ds, Compaction())["singular_values"].to_numpy().transpose(1, 0, 2)
    assert (whole == 1).all()
    assert (part[:, 0] == 1).all() and np.isnan(part[:, 1:]).all()


def test_what_has_no_snapshots_is_rounded(tmp_path: Path) -> None:
    ds = xr.Dataset({"z": (("time", "p"), np.array([[1.001, 2.0]]))})
    np.testing.assert_array_equal(compact(ds, Compaction(bits={"z": 3}))["z"], [[1, 2]])
    assert kept_path(tmp_path, "a/b", "c/d", 3) == tmp_path / "a/b/c/d/seed-3.zarr.zip"


def test_results_are_told_from_runs_by_their_ledger(tmp_path: Path) -> None:
    assert not is_results(tmp_path)
    (tmp_path / "ledger.json").write_text("{}")
    assert is_results(tmp_path)


def test_overlaps_where_they_are_read() -> None:
    ds = run()
    found = compact(ds, Compaction())
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
        found["alignment"].where(known, 0), ds["alignment"].where(known, 0), rtol=2**-10
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
    kept = {name: seeds(compact(of[0], Compaction())) for name, of in whole.items()}
    for key in ("Y1", "Y2", "Y3", "Y3b", "Y6", "Y7", "Y11"):
        before, after = CLAIMS[key](whole), CLAIMS[key](kept)
        assert after.holds == before.holds
        for one, two in zip(before.networks, after.networks, strict=True):
            assert [seed.met for seed in two.seeds] == [seed.met for seed in one.seeds]
            assert two.value == (one.value and pytest.approx(one.value, rel=1e-3)), key


# Snapshots, widths of matrices, pairs, other taps, and runs of all seeds.
SHAPES = {
    "yunis2024/vgg": (169, (27, 64, 128, 128, *[256] * 3, *[512] * 6, 10), 13, 96, 15),
    "yunis2024/unet": (105, (9, 64, 128, *[256] * 7, *[512] * 6), 16, 57, 12),
    "yunis2024/lstm": (55, (40, 40, *[256] * 8, *[512] * 6, 29), 96, 0, 12),
    "yunis2024/lm": (15, (*[768] * 50,), 193, 0, 12),
}


def noisy(widths: Iterable[int], snapshots: int) -> list[np.ndarray]:
    """Spectra that grow and shrink, with 0.2% of noise at every snapshot.

    Chosen so that a VGG run takes 0.66 MB: real ones take 0.1 to 0.94, in the mean 0.58.
    """
    rng, time = np.random.default_rng(0), np.linspace(0, 1, snapshots)[:, None]
    place = [np.linspace(0, 1, width) for width in widths]
    smooth = [(1 - 0.97 * x) * np.exp(time * (1.5 - 3 * x) * rng.uniform(0.3, 1)) for x in place]
    noise = [np.exp(2e-3 * rng.standard_normal(each.shape)) for each in smooth]
    return [np.sort(a * b)[:, ::-1] for a, b in zip(smooth, noise, strict=True)]


@pytest.mark.parametrize("name", SHAPES)
def test_all_seeds_of_the_papers_size_are_small(name: str) -> None:
    snapshots, widths, pairs, taps, runs = SHAPES[name]
    rng = np.random.default_rng(0)
    spectra = {f"w{number}": each for number, each in enumerate(noisy(widths, snapshots))}
    found = [
        PairCourse("a", "b", rng.random((snapshots, 100)), kind=kind, label=str(number))
        for number, kind in enumerate(["conv"] * pairs + ["tap"] * taps)
    ]
    ds = training_run(spectra, found, shown_pair="a > b [0]")
    ds = ds.assign({each: ds[each].astype(np.float32) for each in ds if "alignment" in str(each)})
    assert len(packed(compact(ds, compaction_of(name)))) * runs < LIMIT


def test_all_seeds_of_vision_transformers_are_small() -> None:
    """36 snapshots of both products of 48 heads; of matrices both ends.

    These spectra are smooth: half a byte a value. Narrow networks at scale small took one; if wide
    ones do too, `results keep` refuses them, and this needs fewer bits.
    """
    changes = np.stack(noisy([256] * 96, 36), axis=1).astype(np.float32)
    ds = training_run({f"w{n}": each for n, each in enumerate(noisy([512] * 38, 36))})
    ds["product_change_singular_values"] = (("step", "product", "k_product"), changes)
    assert len(packed(compact(ds, compaction_of("boix2023/vit-cifar10")))) * 12 < LIMIT
