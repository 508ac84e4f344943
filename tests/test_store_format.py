"""The format of a run: checksums, files cut by matrix, compaction, runs of earlier versions."""

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from known_run import CHUNK, append, check, create, write
from rankscope import store
from rankscope.store import Variable, Writer, compaction, stored_run
from rankscope.store.check import check_run, stored_runs
from rankscope.store.creation import read_contents
from rankscope.store.layout import Layout

SCHEMA_1 = Path(__file__).with_name("data") / "run_of_schema_1.zip"


@pytest.fixture
def old_run(tmp_path: Path) -> Path:
    """A run of 20 steps that rankscope 0.1.0 wrote with known_run.py."""
    with zipfile.ZipFile(SCHEMA_1) as archive:
        archive.extractall(tmp_path)
    return tmp_path / "run"


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_every_flipped_byte_of_a_chunk_is_noticed(tmp_path: Path) -> None:
    with create(tmp_path / "run") as writer:
        write(writer, range(3))
    loss = tmp_path / "run" / "loss" / "c.0"
    for place in range(loss.stat().st_size):
        flip(loss, place)
        with pytest.raises(ValueError, match=r"run is damaged: 'loss'.*\(loss/c\.0: .*\); restore"):
            store.open(tmp_path / "run")["loss"].load()
        flip(loss, place)
    assert check(store.open(tmp_path / "run")) == 3


def test_every_flipped_byte_of_the_root_is_noticed(tmp_path: Path) -> None:
    with create(tmp_path / "run") as writer:
        write(writer, range(3))
    root = tmp_path / "run" / "zarr.json"
    for place in range(5, root.stat().st_size, 101):
        flip(root, place)
        with pytest.raises(ValueError, match="run is not a run, or damaged"):
            store.open(tmp_path / "run")
        with pytest.raises(ValueError, match="run is not a run, or damaged"):
            Writer.resume(tmp_path / "run")
        flip(root, place)


def test_plain_zarr_compares_the_checksums_too(tmp_path: Path) -> None:
    with create(tmp_path / "run") as writer:
        write(writer, range(3))
    flip(tmp_path / "run" / "loss" / "c.0", 10)
    with pytest.raises(ValueError, match="checksum"):
        xr.open_zarr(tmp_path / "run", chunks=None)["loss"].load()


def remove(run: Path) -> None:
    (run / "step" / "c.0").unlink()


def swap(run: Path) -> None:
    """Swap scalars of the same size: each has a checksum that is right."""
    os.replace(run / "loss" / "c.0", run / "kept")
    shutil.copy(run / "late" / "c.0", run / "loss" / "c.0")


def roll_back(run: Path) -> None:
    """Put the first of the two files of a variable in the place of the second."""
    files = sorted((run / "change_singular_values").glob("c.*"))
    shutil.copy(files[0], files[1])


@pytest.mark.parametrize(
    ("accident", "message"),
    [(remove, "it is missing"), (swap, "it holds the chunk 'late 0'"), (roll_back, "it holds")],
)
def test_chunks_that_are_absent_or_elsewhere(
    tmp_path: Path, accident: Callable[[Path], None], message: str
) -> None:
    with create(tmp_path / "run") as writer:
        write(writer, range(20))
        accident(tmp_path / "run")
        with pytest.raises(ValueError, match=message):
            store.open(tmp_path / "run").load()
    (line,) = check_run(tmp_path / "run").damage
    assert message in line


def test_a_chunk_from_before_the_last_commit_is_noticed(tmp_path: Path) -> None:
    with create(tmp_path / "run") as writer:
        append(writer, 0)
        shutil.copy(tmp_path / "run" / "loss" / "c.0", tmp_path / "earlier")
        append(writer, 1)
    shutil.copy(tmp_path / "earlier", tmp_path / "run" / "loss" / "c.0")
    with pytest.raises(ValueError, match="it holds 1 rows where 2 were written"):
        store.open(tmp_path / "run")["loss"].load()


def test_every_committed_chunk_is_a_file(tmp_path: Path) -> None:
    """Also those of a scalar before it first came, and those that hold nothing but the fill."""
    variables = {"x": Variable(("step",), np.float64)}
    with Writer.create(tmp_path / "run", coords={}, variables=variables) as writer:
        writer.extend("step", np.arange(9000), {})
        writer.append(9000, {}, scalars={"late": 1.0})
    for name in ("x", "late"):
        assert sorted(p.name for p in (tmp_path / "run" / name).glob("c.*")) == [
            "c.0",
            "c.1",
            "c.2",
        ]
    assert np.flatnonzero(~np.isnan(store.open(tmp_path / "run")["late"])).tolist() == [9000]


def wide(path: Path, steps: int) -> np.ndarray:
    """Write a run of many matrices, in files of several chunks, and return its values."""
    values = np.random.default_rng(0).random((steps, 50, 3000), np.float32)
    coords = {name: ((name,), np.arange(n)) for name, n in (("matrix", 50), ("k", 3000))}
    with Writer.create(
        path,
        coords=coords,
        variables={"x": Variable(("step", "matrix", "k"))},
        chunk_steps=CHUNK,
    ) as writer:
        for step in range(steps):
            writer.append(step, {"x": values[step]})
            if step == steps // 2:
                assert len(list((path / "x").glob("c.*"))) == step // CHUNK + 1
    return values


def test_selections_are_those_of_numpy(tmp_path: Path) -> None:
    values = wide(tmp_path / "run", 10)
    opened = store.open(tmp_path / "run")["x"]
    selections = [
        (3,),
        (-1,),
        (slice(None), 17),
        (slice(2, 9, 3), slice(45, 5, -4), slice(None, 100)),
        ([7, 1, 1], [49, 0], [5, 2999, 6]),
        (slice(None), 13, 2),
        (9, 49, 2999),
        (slice(4, 4),),
    ]
    for selection in selections:
        expected = values
        for axis, key in reversed(list(enumerate(selection))):
            expected = expected[(slice(None),) * axis + (key,)]
        np.testing.assert_array_equal(opened[selection], expected)
    np.testing.assert_array_equal(xr.open_zarr(tmp_path / "run", chunks=None)["x"], values)


def test_one_matrix_over_time_reads_its_own_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide(tmp_path / "run", 8)
    read = 0
    original = stored_run.StoredArray.chunk

    def counted(array: stored_run.StoredArray, index: tuple[int, ...]) -> np.ndarray:
        nonlocal read
        chunk = original(array, index)
        read += chunk.nbytes
        return chunk

    monkeypatch.setattr(stored_run.StoredArray, "chunk", counted)
    ds = store.open(tmp_path / "run")
    read = 0
    ds["x"][:, 20].load()
    assert read <= ds["x"].nbytes / 4
    read = 0
    ds["x"][5].load()
    assert read <= 0.6 * ds["x"].nbytes


def test_closing_compacts_and_the_next_row_undoes_it(tmp_path: Path) -> None:
    path = tmp_path / "run"
    values = wide(path, 10)
    assert [file.name for file in (path / "x").glob("*.*.*")] == ["0.0.0"]
    with Writer.resume(path) as writer:
        writer.set_attrs({"seed": 1})
        assert (path / "x" / "0.0.0").exists()  # attributes need no rows
        early = store.open(path)
        writer.append(10, {"x": values[0]})
        assert sorted(file.name for file in (path / "x").glob("*.*.*")) == [
            "c.0.0.0",
            "c.1.0.0",
            "c.2.0.0",
        ]
        np.testing.assert_array_equal(early["x"], values)  # from the files that came since
        late = store.open(path)
    np.testing.assert_array_equal(late["x"], [*values, values[0]])
    for consolidated in (True, False):
        plain = xr.open_zarr(path, chunks=None, consolidated=consolidated)
        np.testing.assert_array_equal(plain["x"], [*values, values[0]])
    assert check_run(path).damage == []


@pytest.mark.parametrize("change", [compaction.compact, compaction.expand])
def test_any_step_of_compaction_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[..., object]
) -> None:
    path = tmp_path / "run"
    with create(path) as writer:
        write(writer, range(30))
        if change is compaction.compact:
            shutil.copytree(path, tmp_path / "before")
    if change is compaction.expand:
        shutil.copytree(path, tmp_path / "before")
    replace, calls = os.replace, 0
    failing = 0

    def fail(source: Path, target: Path) -> None:
        nonlocal calls
        calls += 1
        if calls > failing:
            raise OSError(28, "No space left on device")
        replace(source, target)

    while True:
        shutil.rmtree(path)
        shutil.copytree(tmp_path / "before", path)
        contents = read_contents(path)
        calls = 0
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", fail)
            try:
                change(path, contents, durable=False)
            except OSError:
                pass
            else:
                break
        assert check(store.open(path)) == 30
        with Writer.resume(path) as writer:
            append(writer, 30)
        assert store.open(path).sizes["step"] == 31
        failing += 1
    assert failing > 2
    assert check(store.open(path)) == 30


def test_a_run_of_an_earlier_version_is_read_and_resumed(old_run: Path) -> None:
    assert check(store.open(old_run)) == 20
    with Writer.resume(old_run) as writer:
        write(writer, range(20, 45))
    dataset = store.open(old_run)
    assert check(dataset) == 45
    assert dataset.attrs["rankscope_schema"] == 1
    xr.testing.assert_identical(
        xr.open_zarr(old_run, chunks=None).load().drop_attrs(), dataset.load().drop_attrs()
    )


def test_the_check_says_where_there_are_no_checksums(old_run: Path) -> None:
    report = check_run(old_run)
    assert report.damage == []
    assert "no checksums" in "".join(report.lines())
    (old_run / "step" / "c.0").unlink()
    assert check_run(old_run).damage == ["'step' is damaged (step/c.0): it is missing"]


def test_the_check_names_steps_and_reads_the_rest(tmp_path: Path) -> None:
    with create(tmp_path / "a" / "run") as writer:
        write(writer, range(40))
        live = tmp_path / "b" / "run"
        shutil.copytree(tmp_path / "a" / "run", live)
    flip(live / "change_singular_values" / "c.1.0.0", 40)
    (live / "kind" / "c.0").unlink()
    whole, damaged = map(check_run, stored_runs(tmp_path))
    assert whole.damage == [] and whole.chunks == damaged.chunks + 2
    rows = Layout.of(Variable(("step", "matrix", "k"), float), {"matrix": 7, "k": 40}, CHUNK)
    steps = f"step {rows.chunk_rows} to {2 * rows.chunk_rows - 1}"
    assert damaged.damage == [
        "'kind' of matrix läyer.0 to läyer.6 is damaged (kind/c.0): it is missing",
        f"'change_singular_values' of {steps} is damaged "
        "(change_singular_values/c.1.0.0): checksum differs",
    ]


def test_runs_become_netcdf(tmp_path: Path) -> None:
    with create(tmp_path / "run", attrs={"seed": 3, "device": "cpu"}) as writer:
        write(writer, range(3))
    store.open(tmp_path / "run").to_netcdf(tmp_path / "run.nc", engine="scipy")
    with xr.open_dataset(tmp_path / "run.nc", engine="scipy") as again:
        assert check(again) == 3
        assert again["matrix"].to_numpy().tolist()[0] == "läyer.0"
        assert json.loads(again.attrs["append_axes"]) == ["step", "train_step"]


def test_home_is_expanded_and_urls_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with create(Path("~/run")) as writer:
        write(writer, range(2))
    Writer.resume("~/run").close()
    assert check(store.open("~/run")) == 2
    for url in ("s3://bucket/run", Path("gs://bucket/run")):
        with pytest.raises(ValueError, match=r"is a URL, and runs are written to local folders"):
            create(url)  # type: ignore[arg-type]
    assert sorted(os.listdir(tmp_path)) == ["run"]


def test_runs_at_a_url_are_read(tmp_path: Path) -> None:
    with create(tmp_path / "run") as writer:
        write(writer, range(2))
    assert check(store.open(f"file://{tmp_path}/run")) == 2
    with pytest.raises(ValueError, match="is not a run"):
        store.open(f"file://{tmp_path}/none")
    with pytest.raises(ValueError, match="cannot be opened"):
        store.open("nonsense://bucket/run")
