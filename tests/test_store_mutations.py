"""Damage of every kind: what is then read is what was written, or one sentence says otherwise."""

import contextlib
import os
import random
import resource
import shutil
import signal
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr

from known_run import NAMES, create, spectra, write
from rankscope import store
from rankscope.lab.training.checkpoint import Checkpoint
from rankscope.store.archive import packed
from rankscope.tracker import Every
from rankscope.tracker.reference import InitialWeights

STEPS = 40
SECONDS = 10  # for one reading
MEMORY = 1e9


def mutated(data: bytes, moment: random.Random) -> bytes:
    """Return `data` with one accident."""
    place = moment.randrange(max(1, len(data)))
    size = moment.choice([1, 2, 16, 512])
    kind = moment.randrange(7)
    if kind == 0 and data:  # one bit
        return data[:place] + bytes([data[place] ^ 1 << moment.randrange(8)]) + data[place + 1 :]
    if kind == 1 and data:  # one byte
        return data[:place] + moment.randbytes(1) + data[place + 1 :]
    if kind == 2:  # the end is missing
        return data[:place]
    if kind == 3:  # a part was never written
        return data[:place] + bytes(len(data[place : place + size])) + data[place + size :]
    if kind == 4:  # a part is missing
        return data[:place] + data[place + size :]
    if kind == 5:  # a part is there twice
        return data[: place + size] + data[place:]
    return data + moment.randbytes(size)


def mutate_folder(folder: Path, moment: random.Random) -> Callable[[], None]:
    """Damage one file, or swap two; return what undoes it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path, other = moment.choice(files), moment.choice(files)
    data, others = path.read_bytes(), other.read_bytes()
    kind = moment.randrange(8)
    if kind == 0:
        path.unlink()
    elif kind == 1:
        path.write_bytes(others)
    elif kind == 2:
        path.write_bytes(others)
        other.write_bytes(data)
    else:
        path.write_bytes(mutated(data, moment))

    def undo() -> None:
        path.write_bytes(data)
        other.write_bytes(others)

    return undo


def mutate_archive(data: bytes, moment: random.Random) -> bytes:
    """Damage the zip, or swap or drop files and zip again."""
    if moment.randrange(3):
        return mutated(data, moment)
    with zipfile.ZipFile(BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    one, other = moment.choice(sorted(files)), moment.choice(sorted(files))
    files[one], files[other] = files[other], files[one]
    if moment.randrange(2):
        del files[one]
    again = BytesIO()
    with zipfile.ZipFile(again, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return again.getvalue()


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass
class Trial:
    """Everything that is stored, undamaged, and ways to damage and read it."""

    folder: Path
    whole: xr.Dataset
    archive: bytes
    weights: dict[str, torch.Tensor]

    @classmethod
    def at(cls, folder: Path) -> "Trial":
        (folder / "lone").mkdir()
        with create(folder / "closed", attrs={"seed": 3}) as writer:
            write(writer, range(STEPS - 3))
            notes = {"singular_values": spectra(STEPS), "note": {NAMES[1]: "größer"}}
            writer.append(STEPS, notes)
            shutil.copytree(folder / "closed", folder / "live")  # as a killed writer leaves it
        whole = store.open(folder / "closed").load()
        weights = {"weight": torch.linspace(0, 1, 12).reshape(3, 4), "half": torch.ones(5).half()}
        InitialWeights(folder / "lone").save(weights, durable=False)
        Checkpoint(folder / "training").save(7, *cls.training())
        return cls(folder, whole, packed(whole), weights)

    @staticmethod
    def training() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        model = torch.nn.Linear(3, 2)
        with torch.no_grad():
            model.weight.fill_(0.5)
            model.bias.fill_(0.25)
        return model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def run(self, kind: str, moment: random.Random) -> str:
        """Damage one thing, read it, undo the damage; return the outcome."""
        if kind in ("closed", "live"):
            undo = mutate_folder(self.folder / kind, moment)
            try:
                return self._outcome(lambda: self._same(store.open(self.folder / kind).load()))
            finally:
                undo()
        if kind == "archive":
            path = self.folder / "run.zarr.zip"
            path.write_bytes(mutate_archive(self.archive, moment))
            return self._outcome(lambda: self._same(store.open(path)))
        path, read = {
            "reference": (self.folder / "lone" / "reference.safetensors", self._same_weights),
            "checkpoint": (self.folder / "training.checkpoint", self._same_training),
        }[kind]
        data = path.read_bytes()
        path.write_bytes(mutated(data, moment))
        try:
            return self._outcome(read)
        finally:
            path.write_bytes(data)

    def _outcome(self, read: Callable[[], None]) -> str:
        with time_limit(SECONDS):
            try:
                read()
            except ValueError as refusal:
                sentence = str(refusal)
                assert "\n" not in sentence and "damaged" in sentence or "not a run" in sentence
                return "refused"
        return "equal"

    def _same(self, ds: xr.Dataset) -> None:
        xr.testing.assert_identical(ds, self.whole)

    def _same_weights(self) -> None:
        weights = InitialWeights(self.folder / "lone").load()
        assert weights is not None and weights.keys() == self.weights.keys()
        for name, weight in weights.items():
            assert weight.dtype == self.weights[name].dtype
            assert torch.equal(weight, self.weights[name])

    def _same_training(self) -> None:
        model, optimizer = self.training()
        with torch.no_grad():
            model.weight.zero_()
        checkpoint = Checkpoint(self.folder / "training")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            step = checkpoint.load(model, optimizer, snapshots=Every(1), stored=[7])
        if step == 0:
            assert not model.weight.any()
            raise ValueError(str(caught[0].message))
        assert step == 7 and torch.equal(model.weight, torch.full((2, 3), 0.5))
        assert optimizer.param_groups[0]["momentum"] == 0.9


KINDS = ("closed", "live", "archive", "reference", "checkpoint")


@pytest.mark.parametrize("count", [150, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_damage_is_read_in_silence(tmp_path: Path, count: int) -> None:
    trial = Trial.at(tmp_path)
    moment = random.Random(count)
    outcomes: Counter[tuple[str, str]] = Counter()
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        outcomes[kind, trial.run(kind, moment)] += 1
    print(dict(sorted(outcomes.items())))
    for kind in KINDS:
        assert trial.run(kind, random.Random(0)) in ("equal", "refused")
        assert outcomes[kind, "refused"] > outcomes[kind, "equal"] / 4
    xr.testing.assert_identical(store.open(tmp_path / "closed").load(), trial.whole)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < MEMORY + 1.5e9
    assert np.isfinite(trial.whole["loss"][0])
    assert os.path.exists(tmp_path / "live")
