"""Loggers of other libraries: what they wrote is read back from their own files."""

import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import trackio
import wandb
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from trackio.sqlite_storage import SQLiteStorage
from wandb.proto.wandb_internal_pb2 import Record

import rankscope as rs
from rankscope.sinks import digest, replay
from sinks.runs import known_run


def expected(path: Path, name: str) -> list[float]:
    """Return a scalar at each snapshot, from the finished run."""
    run = rs.open(path)
    return [digest(run.isel(step=slice(row + 1))).scalars[name] for row in range(3)]


def test_tensorboard(tmp_path: Path) -> None:
    sink = rs.sinks.TensorBoard(tmp_path / "logs", matrices="b")
    known_run(tmp_path / "run", sinks=sink)
    events = EventAccumulator(str(tmp_path / "logs")).Reload()
    tags = events.Tags()
    assert len(tags["scalars"]) == 4 * (3 + 2) + 4  # roll-ups, two kinds, and the matrix b
    for name in ("stable_rank/mean", "normalized_effective_rank/lowest"):
        scalars = events.Scalars(f"rankscope/{name}")
        assert [scalar.step for scalar in scalars] == [0, 1, 2]
        values = [scalar.value for scalar in scalars]
        assert values == pytest.approx(expected(tmp_path / "run", name))
    assert [image.step for image in events.Images("rankscope/spectra")] == [0, 1, 2]
    (text,) = (tag for tag in tags["tensors"] if tag.startswith("rankscope/extremes"))
    table = events.Tensors(text)[-1].tensor_proto.string_val[0].decode()
    assert "| stable_rank/lowest | b | 2 |" in table


def test_a_writer_of_the_training_is_used(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    known_run(tmp_path / "run")
    with SummaryWriter(str(tmp_path / "logs")) as writer:
        writer.add_scalar("loss", 1.0, 0)
        replay(tmp_path / "run", rs.sinks.TensorBoard(writer))
    tags = EventAccumulator(str(tmp_path / "logs")).Reload().Tags()["scalars"]
    assert {"loss", "rankscope/stable_rank/mean"} <= set(tags)


@pytest.fixture
def wandb_run(tmp_path: Path) -> Iterator["wandb.Run"]:
    settings = wandb.Settings(silent=True, console="off", x_disable_stats=True)
    run = wandb.init(mode="offline", dir=str(tmp_path), project="test", settings=settings)
    yield run
    run.finish()


def test_wandb(tmp_path: Path, wandb_run: "wandb.Run") -> None:
    known_run(tmp_path / "run", sinks=rs.sinks.WandB())
    wandb_run.log({"loss": 1.0})
    wandb_run.finish()
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    records = finished_records(file)
    rows = [
        {"/".join(item.nested_key) or item.key: item.value_json for item in record.history.item}
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]
    ours = [row for row in rows if "rankscope/step" in row]
    assert [int(row["rankscope/step"]) for row in ours] == [0, 1, 2]
    means = [float(row["rankscope/stable_rank/mean"]) for row in ours]
    assert means == pytest.approx(expected(tmp_path / "run", "stable_rank/mean"))
    assert ours[-1]["rankscope/stable_rank/lowest_of"] == '"b"'
    assert sum('"loss"' in str(row) or "loss" in row for row in rows) == 1
    axes = [r.metric.step_metric for r in records if r.WhichOneof("record_type") == "metric"]
    assert "rankscope/step" in axes
    assert len(list(tmp_path.glob("wandb/offline-run-*/files/media/images/rankscope/*.png"))) == 3


def finished_records(file: Path) -> list[Record]:
    """Return wandb's records once its own process has written the last one."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        records = [Record.FromString(data) for data in leveldb_records(file.read_bytes())]
        if records and records[-1].WhichOneof("record_type") == "exit":
            return records
        time.sleep(0.05)
    raise TimeoutError(f"wandb has not finished {file}")


def leveldb_records(data: bytes) -> Iterator[bytes]:
    """Yield the records of wandb's file: LevelDB's log format after a header of 7 bytes."""
    position, parts = 7, b""
    while position + 7 <= len(data):
        room = 32768 - position % 32768
        if room < 7:
            position += room
            continue
        length, kind = struct.unpack("<HB", data[position + 4 : position + 7])
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


@pytest.fixture
def trackio_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make trackio write here; it reads its environment variable only when it is imported."""
    folder = tmp_path / "trackio"
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "trackio":
            for constant, value in (("TRACKIO_DIR", folder), ("MEDIA_DIR", folder / "media")):
                if hasattr(module, constant):
                    monkeypatch.setattr(module, constant, value)
    return folder


def test_trackio(tmp_path: Path, trackio_folder: Path) -> None:
    trackio.init("test", name="first", embed=False, auto_log_gpu=False, auto_log_cpu=False)
    known_run(tmp_path / "run", sinks=rs.sinks.Trackio())
    trackio.finish()
    rows = SQLiteStorage.get_logs("test", "first")
    assert [row["step"] for row in rows] == [0, 1, 2]
    means = [row["rankscope/stable_rank/mean"] for row in rows]
    assert means == pytest.approx(expected(tmp_path / "run", "stable_rank/mean"))
    assert rows[-1]["rankscope/stable_rank/lowest_of"] == "b"
    (path,) = trackio_folder.rglob(rows[-1]["rankscope/spectra"]["file_path"])
    assert np.asarray(Image.open(path)).shape[2] in (3, 4)


@pytest.mark.parametrize(
    ("sink", "advice"),
    [(rs.sinks.WandB, r"call wandb.init\(\) first"), (rs.sinks.Trackio, r"call trackio.init\(")],
)
def test_a_logger_that_is_not_set_up_is_told_once(tmp_path: Path, sink: type, advice: str) -> None:
    with pytest.warns(RuntimeWarning, match=advice) as caught:
        known_run(tmp_path / "run", sinks=sink())
    assert len(caught) == 1


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rankscope.sinks.wandb", raising=False)
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'rankscope\[wandb\]'"):
        _ = rs.sinks.WandB
