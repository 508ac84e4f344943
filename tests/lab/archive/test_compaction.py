"""The archived form of a run: which values it has, how exact and how small it is."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lab.papers.yunis2024.closed_form_runs import (
    Entries,
    PairCourse,
    at_decay,
    course,
    flat,
    judged,
    seeds,
    training_run,
)
from rankscope.lab.archive.archived_files import archive_path, is_archive
from rankscope.lab.archive.compaction import (
    FEW_SPECTRA,
    CoarseTails,
    Compaction,
    Leading,
    Thinned,
    Way,
    chosen,
    compact,
    rounded,
)
from rankscope.lab.papers.yunis2024 import CLAIMS, vgg
from rankscope.lab.running.run_key import RunKey
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


def test_spectra_and_losses_have_every_snapshot() -> None:
    ds = run(coverage="14 matrices", seed=1)
    small = compact(ds, Compaction())
    assert small.sizes == ds.sizes and small["singular_values"].dtype == np.float32
    np.testing.assert_allclose(small["singular_values"], ds["singular_values"], rtol=2**-10)
    xr.testing.assert_equal(small["top_loss"], ds["top_loss"])
    assert "tracker_copy_seconds" not in small and "coverage" not in small.attrs
    assert small.attrs["compaction"]["ends"] == [] and small.attrs["seed"] == 1


def test_variables_of_both_ends_are_absent_between() -> None:
    ds = run()
    small = compact(ds, Compaction(ends=("singular_values",)))
    np.testing.assert_allclose(
        small["singular_values"][[0, -1]], ds["singular_values"][[0, -1]], rtol=2**-10
    )
    assert small["singular_values"][1:-1].isnull().all()
    assert small["alignment"][1:-1].notnull().any()


def test_variables_that_nobody_reads_are_absent() -> None:
    ds = run()
    small = compact(ds, Compaction(absent=("alignment", "singular_values")))
    kept = {str(name) for name in ds} - {"alignment", "singular_values", "tracker_copy_seconds"}
    assert {str(name) for name in small} == kept
    assert small.attrs["compaction"]["absent"] == ["alignment", "singular_values"]
    assert "absent" not in compact(ds, Compaction()).attrs["compaction"]  # as files say already


def test_leading_values_alone_of_some_spectra() -> None:
    ds = run()
    small = compact(ds, Leading(Compaction(), {"singular_values": 2}))
    np.testing.assert_allclose(
        small["singular_values"][..., :2], ds["singular_values"][..., :2], rtol=2**-10
    )
    assert small["singular_values"][..., 2:].isnull().all()
    assert small["alignment"][..., 5].notnull().any()
    assert small.attrs["compaction"]["values"] == {"mapping": {"singular_values": 2}}


def test_small_values_of_some_spectra_have_few_digits_between_both_ends() -> None:
    ds = run()
    small = compact(ds, CoarseTails(Compaction(), {"singular_values": 4}, bits=2))
    before, after = (d["singular_values"].transpose("step", "matrix", "k") for d in (ds, small))
    np.testing.assert_allclose(after[..., :4], before[..., :4], rtol=2**-10)
    np.testing.assert_allclose(after[[0, -1]], before[[0, -1]], rtol=2**-10)
    np.testing.assert_allclose(after, before, rtol=2**-3)
    assert (np.diff(after[..., :8]) <= 0).all()
    mantissas = np.frexp(after[1:-1, :, 4:].to_numpy())[0]
    free = after[1:-1, :, 4:].to_numpy() < after[1:-1, :, 3:4].to_numpy()  # others are cut there
    assert free.any() and (mantissas[free] * 8 % 1 == 0).all()
    assert small.attrs["compaction"]["leading"] == {"mapping": {"singular_values": 4}}
    xr.testing.assert_equal(
        compact(ds, CoarseTails(Compaction(), {"singular_values": 99}))["singular_values"],
        compact(ds, Compaction())["singular_values"],
    )


def test_thinned_spectra_stand_at_a_few_snapshots_and_losses_at_all() -> None:
    ds = run()
    small = compact(ds, replace(FEW_SPECTRA, most=4))
    places = chosen(STEPS, 4)
    for name in FEW_SPECTRA.variables:
        stored = small[name].notnull().any([dim for dim in small[name].dims if dim != "step"])
        assert np.flatnonzero(stored).tolist() == places.tolist(), name
    at_places = {"step": places}
    np.testing.assert_allclose(
        small["singular_values"][at_places], ds["singular_values"][at_places], rtol=2**-10
    )
    xr.testing.assert_equal(small["top_loss"], ds["top_loss"])
    shown = small["alignment"].transpose("pair", "step", "i")[2].notnull().to_numpy()
    assert shown[:, :10].all()
    assert np.flatnonzero(shown[:, 59]).tolist() == places.tolist()


def test_overlaps_of_a_zero_matrix_are_left_out_where_no_spectrum_can_tell() -> None:
    zeros = np.ones((STEPS, 12), np.float32)
    zeros[2:5] = 0.0
    pair = PairCourse("a", "b", np.full((STEPS, 12), 0.3))
    ds = training_run({"a": zeros, "b": np.ones((STEPS, 12))}, [pair])
    small = compact(ds, Thinned(Compaction(), ("singular_values",), most=2))
    stored = small["alignment"].isel(pair=0).notnull().any("i")
    assert np.flatnonzero(~stored).tolist() == [2, 3, 4]


@given(st.integers(1, 500), st.integers(2, 60))
def test_chosen_snapshots_have_both_ends(count: int, most: int) -> None:
    places = chosen(count, most)
    assert places[0] == 0 and places[-1] == count - 1
    assert len(places) <= max(most, 4) and (np.diff(places) > 0).all()


def test_grains_make_small_values_zero() -> None:
    z = np.array([[0.3, 1e-5], [-1e-5, np.nan], [1.0, 2.0]])
    ds = xr.Dataset({"z": (("time", "p"), z)})
    how = Thinned(Compaction({}), ("z",), most=2, grains={"z": 1 / 8})
    small = compact(ds, how)["z"].to_numpy()
    np.testing.assert_array_equal(small, [[0.25, 0.0], [np.nan, np.nan], [1.0, 2.0]])


def test_compacting_again_gives_the_same_as_compacting_once() -> None:
    ds = run()
    how = replace(FEW_SPECTRA, most=4)
    xr.testing.assert_equal(compact(compact(ds, Compaction()), how), compact(ds, how))


def test_parts_have_only_their_largest_value() -> None:
    spectra = {"a": flat(4, [4, 4]), "a.0": flat(2, [2, 2])}
    ds = training_run(spectra, parts={"a.0": "a"})
    whole, part = compact(ds, Compaction())["singular_values"].to_numpy().transpose(1, 0, 2)
    assert (whole == 1).all()
    assert (part[:, 0] == 1).all() and np.isnan(part[:, 1:]).all()


def test_runs_without_snapshots_are_rounded() -> None:
    ds = xr.Dataset({"z": (("time", "p"), np.array([[1.001, 2.0]]))})
    np.testing.assert_array_equal(compact(ds, Compaction(bits={"z": 3}))["z"], [[1, 2]])


def test_an_archive_is_recognised_by_its_files(tmp_path: Path) -> None:
    path = archive_path(tmp_path, RunKey("c", {"d": 1}, experiment="a/b"), 3)
    assert path == tmp_path / "a/b/c/d-1/seed-3.zarr.zip" and not is_archive(tmp_path)
    path.parent.mkdir(parents=True)
    path.touch()
    assert is_archive(tmp_path)


def test_overlaps_where_they_are_read() -> None:
    ds = run()
    small = compact(ds, Compaction())
    for name in ("alignment", "alignment_normalized"):
        stored = small[name].notnull().transpose("pair", "step", "i").to_numpy()
        near, tap, shown = stored
        assert near[:, :10].all() and not near[:-1, 10:].any()
        assert tap[-1, :10].all() and not tap[:-1].any()
        deep = name == "alignment"
        assert shown[:, :60].all() if deep else not shown[:, 10:].any()
        assert (stored[:, -1, 10:60].all(1) == deep).all()
    known = small["alignment"].notnull()
    np.testing.assert_allclose(
        small["alignment"].where(known, 0), ds["alignment"].where(known, 0), rtol=2**-10
    )


def sweep(decays: tuple[float, ...]) -> Entries:
    good = course([0.1, 0.1, 0.3, 0.3, 0.3, 0.2, 0.2, 0.2], R=64, rest=0.1)
    taps = [PairCourse("a", "b", 0.5 * good, kind="tap", label=f"tap 0,{n}") for n in (0, 1)]
    pairs = [PairCourse("a", "b", good, kind="conv"), *taps]
    runs: Entries = {}
    for place, decay in enumerate(decays):
        spectra = {name: flat(20, np.linspace(20, 9 - place, STEPS).round()) for name in "ab"}
        top = [1 + 1 / (place + 2)] * (STEPS - 1) + [1.9]
        scalars = {"full_loss": [1.0] * STEPS, "bottom_loss": [2.0] * STEPS, "top_loss": top}
        ds = training_run(spectra, pairs, scalars=scalars, shown_pair="a > b")
        runs |= at_decay("vgg", decay, seeds(ds))
    return runs


@pytest.mark.parametrize("key", ["Y1", "Y2", "Y3", "Y3b", "Y6", "Y7", "Y11"])
@pytest.mark.parametrize("how", [Compaction(), replace(FEW_SPECTRA, most=4)])
def test_claims_have_the_same_outcome_on_archived_runs(key: str, how: Way) -> None:
    """These read whole courses, both ends, losses, and other taps."""
    (rule,) = [rule for rule in CLAIMS if rule.claim == key]
    whole = sweep((0.0, 0.0001, 0.1))
    archived = {run: seeds(compact(by_seed[0], how)) for run, by_seed in whole.items()}
    for one, two in zip(judged(rule, whole).networks, judged(rule, archived).networks, strict=True):
        assert two.word == one.word
        for before, after in zip(one.seeds, two.seeds, strict=True):
            assert after.met == before.met
            assert after.value == (before.value and pytest.approx(before.value, rel=1e-3))


def noisy(widths: Iterable[int], snapshots: int) -> list[np.ndarray]:
    """Spectra that grow and shrink, with 0.2% of noise at every snapshot."""
    rng, time = np.random.default_rng(0), np.linspace(0, 1, snapshots)[:, None]
    place = [np.linspace(0, 1, width) for width in widths]
    smooth = [(1 - 0.97 * x) * np.exp(time * (1.5 - 3 * x) * rng.uniform(0.3, 1)) for x in place]
    return [
        np.sort(values * np.exp(2e-3 * rng.standard_normal(values.shape)))[:, ::-1]
        for values in smooth
    ]


def test_a_vgg_of_the_papers_size_takes_less_than_a_third_of_a_megabyte() -> None:
    """Real ones take 0.08 to 0.28 MB."""
    rng, snapshots = np.random.default_rng(0), 169
    widths = (27, 64, 128, 128, *[256] * 3, *[512] * 6, 10)
    spectra = {f"w{number}": values for number, values in enumerate(noisy(widths, snapshots))}
    courses = [
        PairCourse("a", "b", rng.random((snapshots, 100)), kind=kind, label=str(number))
        for number, kind in enumerate(["conv"] * 13 + ["tap"] * 96)
    ]
    ds = training_run(spectra, courses, shown_pair="a > b [0]")
    ds = ds.assign({name: ds[name].astype(np.float32) for name in ds if "alignment" in str(name)})
    assert len(packed(compact(ds, vgg.experiment("paper").compaction))) < 1e6 / 3
