"""A run whose every number follows from the step; a process that writes it until it is killed."""

from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import xarray as xr

from rankscope.store import Variable, Writer

MATRICES, LONGEST, CHUNK = 7, 40, 4
NAMES = [f"läyer.{row}" for row in range(MATRICES)]
COORDS = {
    "matrix": (("matrix",), np.array(NAMES, object)),
    "m": (("matrix",), np.arange(MATRICES)),
    "kind": (("matrix",), np.array(["embedding", *["linear"] * (MATRICES - 2), ""], object)),
    "k": (("k",), np.arange(1, LONGEST + 1)),
}
FLAGS = {"flag_values": [0, 1, 2], "flag_meanings": "ok zero failed"}
VARIABLES = {
    "singular_values": Variable(("step", "matrix", "k")),
    "change_singular_values": Variable(("step", "matrix", "k"), np.float64),
    "status": Variable(("step", "matrix"), np.int8, fill=2, attrs=FLAGS),
    "note": Variable(("step", "matrix"), str),
    "every": Variable(("train_step",), np.float64),
}
LATE = 10  # the step at which the scalar `late` appears


def create(path: Path, **options: object) -> Writer:
    return Writer.create(path, coords=COORDS, variables=VARIABLES, chunk_steps=CHUNK, **options)


def spectra(step: int) -> np.ndarray:
    """Return padded spectra of another length for each matrix."""
    values = np.full((MATRICES, LONGEST), np.nan)
    for row in range(MATRICES):
        values[row, : 5 * row + 5] = step + row / 8
    return values


def append(writer: Writer, step: int) -> None:
    values = {
        "singular_values": spectra(step),
        "change_singular_values": spectra(-step),
        "status": np.full(MATRICES, step % 3),
    }
    late = {"late": 3.0 * step} if step >= LATE else {}
    writer.append(step, values, scalars={"loss": step / 2, **late})


def extend(writer: Writer, step: int) -> None:
    """Commit the scalars of ten training steps, those of one snapshot."""
    rows = 10 * step + np.arange(10)
    writer.extend("train_step", rows, {"every": rows / 4})


def write(writer: Writer, steps: range) -> None:
    for step in steps:
        append(writer, step)
        extend(writer, step)


def write_until_killed(path: Path, acknowledge: Connection) -> None:
    writer = Writer.resume(path) if path.exists() else create(path)
    step = len(writer.steps)
    for behind in range(len(writer.positions("train_step")) // 10, step):
        extend(writer, behind)  # killed between the two commits
    while True:
        append(writer, step)
        acknowledge.send(step)
        extend(writer, step)
        step += 1


def check(dataset: xr.Dataset) -> int:
    """Assert that every number of the run is right, and return the number of snapshots."""
    steps = range(dataset.sizes["step"])
    assert dataset.indexes["step"].tolist() == list(steps)
    for name, sign in (("singular_values", 1), ("change_singular_values", -1)):
        expected = np.array([spectra(sign * step) for step in steps])
        np.testing.assert_array_equal(dataset[name], expected.reshape(-1, MATRICES, LONGEST))
    assert (dataset["status"] == dataset["step"] % 3).all()
    assert (dataset["note"] == "").all()
    if steps:
        np.testing.assert_array_equal(dataset["loss"], dataset["step"] / 2)
    if len(steps) > LATE:
        late = dataset["late"].to_numpy()
        assert np.isnan(late[:LATE]).all()
        np.testing.assert_array_equal(late[LATE:], 3.0 * np.arange(LATE, len(steps)))
    rows = dataset.sizes["train_step"]
    assert dataset.indexes["train_step"].tolist() == list(range(rows))
    np.testing.assert_array_equal(dataset["every"], np.arange(rows) / 4)
    assert rows in (10 * len(steps), 10 * len(steps) - 10)
    return len(steps)
