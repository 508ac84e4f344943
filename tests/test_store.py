"""Xarray reads what was written; a user's mistake is answered with a sentence."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from known_run import (
    COORDS,
    FLAGS,
    LONGEST,
    MATRICES,
    NAMES,
    VARIABLES,
    append,
    check,
    create,
    spectra,
    write,
)
from rankscope import store
from rankscope.store import Variable, Writer
from rankscope.store.check import stored_runs
from rankscope.store.metadata import sealed


@pytest.mark.parametrize("steps", [0, 1, 15, 16, 17, 40])
def test_plain_xarray_reads_what_was_appended(tmp_path: Path, steps: int) -> None:
    with create(tmp_path / "run", attrs={"seed": 3, "tree": {"a": [1, None]}}) as writer:
        write(writer, range(steps))
    for dataset in (xr.open_zarr(tmp_path / "run"), store.open(tmp_path / "run")):
        assert check(dataset) == steps
        assert dataset["singular_values"].dims == ("step", "matrix", "k")
        assert dataset["singular_values"].dtype == np.float32
        assert dataset["status"].dtype == np.int8
        assert dataset["status"].attrs == FLAGS
        assert dataset["matrix"].to_numpy().tolist() == NAMES
        assert dataset["kind"].sel(matrix=NAMES[0]) == "embedding"
        assert set(dataset.coords) == {"step", "train_step", *COORDS}
        assert dataset.attrs["tree"] == {"a": [1, None]}
        assert dataset.attrs["rankscope_schema"] == 2


def test_readers_that_ignore_consolidated_metadata_see_the_same_a_little_later(
    tmp_path: Path,
) -> None:
    with create(tmp_path / "run") as writer:
        for step in range(40):
            write(writer, range(step, step + 1))
            seen = check(xr.open_zarr(tmp_path / "run", consolidated=False))
            assert step - 15 <= seen <= step + 1
    whole = xr.open_zarr(tmp_path / "run", consolidated=False)
    xr.testing.assert_identical(whole.load(), store.open(tmp_path / "run").load())


def test_a_dataset_opened_earlier_keeps_its_length(tmp_path: Path) -> None:
    with create(tmp_path / "run") as writer:
        write(writer, range(1))
        early = store.open(tmp_path / "run")
        write(writer, range(1, 30))
        assert check(early) == 1
        assert check(store.open(tmp_path / "run")) == 30


def test_values_by_label_are_padded(tmp_path: Path) -> None:
    with create(tmp_path / "run") as writer:
        values = {name: row[~np.isnan(row)] for name, row in zip(NAMES, spectra(0), strict=True)}
        writer.append(0, {"singular_values": values, "note": {NAMES[2]: "new"}})
        writer.append(1, {"singular_values": {NAMES[2]: [1.0]}})
        writer.append(2, {"singular_values": np.ones((2, 4))})
        writer.append(3, {"singular_values": {NAMES[2]: [1e300]}})  # more than float32 can hold
    ds = store.open(tmp_path / "run")
    first, second, third, fourth = ds["singular_values"].to_numpy()
    np.testing.assert_array_equal(first, spectra(0))
    assert np.argwhere(~np.isnan(second)).tolist() == [[2, 0]]
    assert np.isnan(third[2:]).all() and np.isnan(third[:, 4:]).all()
    assert (third[:2, :4] == 1).all()
    assert fourth[2, 0] == np.inf
    assert np.argwhere(ds["note"].to_numpy() == "new").tolist() == [[0, 2]]


def test_scalars_come_late_and_stay_away(tmp_path: Path) -> None:
    with create(tmp_path / "run") as writer:
        for step in range(20):
            writer.append(step, {}, scalars={"loss": step / 2} if step != 18 else {"accuracy": 1.0})
    dataset = store.open(tmp_path / "run")
    loss = np.where(np.arange(20) == 18, np.nan, np.arange(20) / 2)
    np.testing.assert_array_equal(dataset["loss"], loss)
    assert np.flatnonzero(~np.isnan(dataset["accuracy"])).tolist() == [18]
    assert (dataset["status"] == 2).all()  # the fill


def test_scalars_may_lie_along_a_new_axis(tmp_path: Path) -> None:
    with create(tmp_path / "run") as writer:
        append(writer, 0)
        writer.extend("batch", np.arange(5000), {"every_loss": np.arange(5000) / 3})
        append(writer, 1)
        writer.extend("batch", [5000, 5007], {"every_loss": [1, 2], "late": [3.0, 4.0]})
        writer.extend("batch", [], {})
    dataset = store.open(tmp_path / "run")
    assert dataset.sizes["step"] == 2
    assert dataset.indexes["batch"].tolist() == [*range(5001), 5007]
    np.testing.assert_array_equal(dataset["every_loss"], [*np.arange(5000) / 3, 1, 2])
    assert np.isnan(dataset["late"][:5000]).all()
    assert dataset["late"][5000:].to_numpy().tolist() == [3, 4]


def test_time_may_be_the_axis(tmp_path: Path) -> None:
    variables = {"time": Variable(("time",), float), "z": Variable(("time", "i"), np.float64)}
    coords = {"i": (("i",), np.arange(2))}
    with Writer.create(tmp_path / "run", coords=coords, variables=variables) as writer:
        writer.extend("time", [0.0, 0.5, 0.75], {"z": [[1, 2], [3, 4], [5, 6]]})
        writer.append(1e-3 + 0.75, {"z": [7, 1e300]}, along="time")
    dataset = store.open(tmp_path / "run")
    assert dataset.indexes["time"].tolist() == [0.0, 0.5, 0.75, 0.751]
    assert dataset["z"].to_numpy().tolist() == [[1, 2], [3, 4], [5, 6], [7, 1e300]]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "bool", "str"])
def test_every_type_comes_back(tmp_path: Path, dtype: str) -> None:
    values = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    coords = {"k": (("k",), np.arange(3))}
    variables = {"x": Variable(("step", "k"), dtype)}
    with Writer.create(tmp_path / "run", coords=coords, variables=variables) as writer:
        writer.extend("step", [1, 2], {"x": values})
    stored = store.open(tmp_path / "run")["x"]
    assert stored.to_numpy().tolist() == values.tolist()
    if dtype != "str":
        assert stored.dtype == dtype


def test_dimensions_of_size_zero(tmp_path: Path) -> None:
    coords = {**COORDS, "pair": (("pair",), np.array([], object))}
    variables = {**VARIABLES, "alignment": Variable(("step", "pair", "k"))}
    with Writer.create(tmp_path / "run", coords=coords, variables=variables) as writer:
        writer.append(0, {"alignment": np.zeros((0, LONGEST))})
    with Writer.resume(tmp_path / "run") as writer:
        writer.append(1, {})
    assert store.open(tmp_path / "run")["alignment"].load().shape == (2, 0, LONGEST)


@pytest.mark.parametrize("committed", [0, 5, 16, 20])
def test_resume_goes_on(tmp_path: Path, committed: int) -> None:
    with create(tmp_path / "run", attrs={"seed": 1, "device": "cpu"}) as writer:
        write(writer, range(committed))
    with Writer.resume(
        tmp_path / "run",
        coords=COORDS,
        variables=VARIABLES,
        attrs={"seed": 1, "device": "cuda"},
        durable=True,
    ) as writer:
        assert writer.steps.tolist() == list(range(committed))
        write(writer, range(committed, committed + 20))
    dataset = store.open(tmp_path / "run")
    assert check(dataset) == committed + 20
    assert dataset.attrs["device"] == "cpu"
    assert dataset.attrs["resumed"] == [{"device": "cuda"}]


@pytest.mark.parametrize("before", [0, 7, 16, 17, 39, 40, 1000])
def test_rewind_replaces_rows_of_every_axis(tmp_path: Path, before: int) -> None:
    steps = min(before, 40)
    with create(tmp_path / "run") as writer:
        write(writer, range(40))
        writer.rewind(before)
        assert writer.steps.tolist() == list(range(steps))
        assert check(store.open(tmp_path / "run")) == 40  # until a new row is committed
        writer.append(steps, {"singular_values": spectra(steps)})
        assert store.open(tmp_path / "run").sizes["step"] == steps + 1
        for step in range(steps + 1, steps + 3):
            writer.append(step, {"singular_values": spectra(step)})
        writer.extend("train_step", [500], {"every": [2.0]})
    dataset = store.open(tmp_path / "run")
    expected = [spectra(step) for step in range(steps + 3)]
    np.testing.assert_array_equal(dataset["singular_values"], expected)
    assert (dataset["status"][steps:] == 2).all()  # the dropped rows left nothing
    assert np.flatnonzero(~np.isnan(dataset["loss"])).tolist() == list(range(steps))
    assert dataset.indexes["train_step"].tolist() == [*range(min(before, 400)), 500]


def test_attributes_can_be_added(tmp_path: Path) -> None:
    with create(tmp_path / "run", attrs={"seed": 1}) as writer:
        append(writer, 0)
        writer.set_attrs({"wall_seconds": 2.5, "seed": 2})
        append(writer, 1)
        assert writer.attrs == {"seed": 2, "wall_seconds": 2.5}
    attrs = store.open(tmp_path / "run").attrs
    assert (attrs["seed"], attrs["wall_seconds"]) == (2, 2.5)


def bad_append(*args: object, **options: object) -> Callable[[Writer], None]:
    return lambda writer: writer.append(*args, **options)  # type: ignore[arg-type]


MISTAKES = {
    "has no variable 'spectra'": bad_append(9, {"spectra": np.zeros(3)}),
    rf"expected rows of shape \(1, {MATRICES}, {LONGEST}\)": bad_append(
        9, {"singular_values": np.zeros((MATRICES, LONGEST + 1))}
    ),
    "expected rows of shape": bad_append(9, {"singular_values": np.zeros(3)}),
    "no matrix 'tail'": bad_append(9, {"singular_values": {"tail": np.zeros(2)}}),
    r"must be int64 and increase: got \[3\] after \[3\]": bad_append(3, {}),
    r"got \[2\] after \[3\]; steps must increase over the whole run": bad_append(2, {}),
    r"got \[4.5\]": bad_append(4.5, {}),
    "'m' is the name of a stored": bad_append(9, {}, scalars={"m": 1.0}),
    "'k' is the name of a stored": bad_append(9, {}, scalars={"k": 1.0}),
    "'step' is the name": bad_append(9, {}, scalars={"step": 1.0}),
    "'status' is the name": bad_append(9, {}, scalars={"status": 1.0}),
    "'note' is the name": bad_append(9, {"note": {}}, scalars={"note": 1.0}),
    "'every' is the name": bad_append(9, {}, scalars={"every": 1.0}),
    "'eval/loss' cannot name": bad_append(9, {}, scalars={"eval/loss": 1.0}),
    r"'a\\\\b' cannot name": bad_append(9, {}, scalars={"a\\b": 1.0}),
    r"'a\\n' cannot name": bad_append(9, {}, scalars={"a\n": 1.0}),
    r"'\\udc80' cannot name": bad_append(9, {}, scalars={"\udc80": 1.0}),
    "'x{400}' cannot name": bad_append(9, {}, scalars={"x" * 400: 1.0}),
    "'dropped' cannot name": bad_append(9, {}, scalars={"dropped": 1.0}),
    "'matrix' names a coordinate that does not grow": lambda writer: writer.extend(
        "matrix", [9], {}
    ),
    "must be plain JSON": lambda writer: writer.set_attrs({"a": object()}),
    "not JSON compliant": lambda writer: writer.set_attrs({"a": float("nan")}),
    "the store's own": lambda writer: writer.set_attrs({"coordinates": "m"}),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_named_and_change_nothing(tmp_path: Path, message: str) -> None:
    with create(tmp_path / "run") as writer:
        append(writer, 3)
        before = (tmp_path / "run" / "zarr.json").read_bytes()
        with pytest.raises(ValueError, match=message):
            MISTAKES[message](writer)
        assert (tmp_path / "run" / "zarr.json").read_bytes() == before
        append(writer, 4)


def test_a_used_path_is_refused(tmp_path: Path) -> None:
    with create(tmp_path / "run") as writer:
        append(writer, 0)
    with pytest.raises(ValueError, match="already holds a run of 1 snapshot, up to step 0; pass"):
        create(tmp_path / "run")
    (tmp_path / "other").mkdir()
    create(tmp_path / "other").close()  # an empty folder is free
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.txt").touch()
    with pytest.raises(ValueError, match="exists and is not a run"):
        create(tmp_path / "thesis")
    assert sorted(os.listdir(tmp_path)) == ["other", "run", "thesis"]  # no lock, no pieces


def test_what_is_not_a_run_is_neither_opened_nor_resumed(tmp_path: Path) -> None:
    xr.Dataset({"x": ("t", [1.0])}).to_zarr(tmp_path / "zarr", zarr_format=3, consolidated=False)
    (tmp_path / "file").touch()
    for name in ("nothing", "file", "", "zarr", "file/below"):
        with pytest.raises(ValueError, match=r"not a run"):
            store.open(tmp_path / name)
        with pytest.raises(ValueError, match=r"no run to resume|not a run"):
            Writer.resume(tmp_path / name)


def test_the_folder_of_an_array_is_no_run(tmp_path: Path) -> None:
    with create(tmp_path / "run") as writer:
        write(writer, range(3))
    assert store.is_run(tmp_path / "run")
    folders = [path for path in (tmp_path / "run").iterdir() if path.is_dir()]
    assert folders and not any(map(store.is_run, folders))
    (tmp_path / "run" / "zarr.json").unlink()
    assert store.is_run(tmp_path / "run")
    assert list(stored_runs(tmp_path)) == [tmp_path / "run"]


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    create(tmp_path / "run").close()
    root = tmp_path / "run" / "zarr.json"
    contents = json.loads(root.read_text())
    del contents["consolidated_metadata"]["checksum"]
    contents["attributes"]["rankscope_schema"] = 3
    root.write_bytes(sealed(contents))
    with pytest.raises(ValueError, match=r"schema 3.*update rankscope"):
        store.open(tmp_path / "run")
    with pytest.raises(ValueError, match=r"schema 3.*update rankscope"):
        Writer.resume(tmp_path / "run")


def test_resume_refuses_another_model(tmp_path: Path) -> None:
    create(tmp_path / "run").close()
    names = (("matrix",), np.array(NAMES[::-1], object))
    longer = (("matrix",), np.array([*NAMES, "more"], object))
    double = {**VARIABLES, "singular_values": Variable(("step", "matrix", "k"), np.float64)}
    extra = {**VARIABLES, "change": Variable(("step", "matrix", "k"))}
    fewer = {"singular_values": VARIABLES["singular_values"]}
    for options in (
        {"coords": {**COORDS, "matrix": names}},
        {"coords": {**COORDS, "matrix": longer}},
        {"coords": {**COORDS, "colour": names}},
        {"variables": double},
        {"variables": extra},
        {"variables": fewer},
    ):
        with pytest.raises(ValueError, match="resume with what the run was created with"):
            Writer.resume(tmp_path / "run", **options)  # type: ignore[arg-type]
    with Writer.resume(
        tmp_path / "run",
        variables={**VARIABLES, "loss": Variable(("train_step",), np.float64)},
    ) as writer:
        writer.extend("train_step", [0], {"loss": [1.0]})  # scalars may come later


@pytest.mark.parametrize(
    ("coords", "variables"),
    [
        ({**COORDS, "n": (("matrix",), np.arange(2))}, VARIABLES),
        ({**COORDS, "n": (("step",), np.arange(2))}, VARIABLES),
        (COORDS, {**VARIABLES, "alignment": Variable(("step", "pair"))}),
        (COORDS, {**VARIABLES, "m": Variable(("step", "matrix"))}),
    ],
)
def test_create_refuses_what_does_not_fit(
    tmp_path: Path, coords: dict[str, tuple[tuple[str], np.ndarray]], variables: dict[str, Variable]
) -> None:
    with pytest.raises(ValueError, match="coordinate"):
        Writer.create(tmp_path / "run", coords=coords, variables=variables)
    assert not list(tmp_path.iterdir())
