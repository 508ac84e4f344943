"""A process that trains until it is killed, forked from a server that has imported everything.

Each life of a run resumes it at some step. A snapshot says which step and which life it is of: its
spectra, its scalars and its every-step scalars are `mark(step, life)`.
"""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
import xarray as xr
from torch import nn

import rankscope as rs

SIZE = 4
LIVES = 2**11


def mark(step: np.ndarray, life: np.ndarray) -> np.ndarray:
    """Return numbers that float32 holds exactly."""
    return step + 1 + life / LIVES


def train(path: str, start: int, life: int, beside: str) -> None:
    """Train from `start` on, and print what is acknowledged."""
    model = nn.Sequential(nn.Linear(SIZE, SIZE), nn.Linear(SIZE, SIZE))
    tracker = rs.Tracker(
        model, path, schedule=1, resume=True, strict=True, every_step=("loss",), beside=beside
    )
    for step in range(start, start + 10**6):
        number = float(mark(np.float64(step), np.float64(life)))
        with torch.no_grad():
            for layer in model:
                layer.weight.copy_(torch.eye(SIZE) * number)
        tracker.observe(step, loss=number, life=life)
        committed = -1 if tracker.committed is None else tracker.committed
        os.write(1, f"committed {committed}\n".encode())


def serve() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                train(**json.loads(line))
            finally:
                os._exit(1)
        os.write(1, f"born {child}\n".encode())
        _, status = os.waitpid(child, 0)
        os.write(1, f"dead {status}\n".encode())


@contextmanager
def server() -> Iterator[subprocess.Popen]:
    """A server that starts one life for each line of JSON."""
    paths = [str(Path(rs.__file__).parents[1]), str(Path(__file__).parents[1])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "tracker.lives"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.stdin.close()


def check(dataset: xr.Dataset) -> dict[int, int]:
    """Assert that the run is one that a writer committed; return the life of each step."""
    steps, life = dataset["step"].to_numpy(), np.zeros(0)
    if len(steps):
        life = dataset["life"].to_numpy()
        assert steps.tolist() == list(range(len(steps)))
        assert (np.diff(life) >= 0).all()
        expected = mark(steps, life)
        np.testing.assert_array_equal(dataset["loss"], expected)
        spectra = dataset["singular_values"].to_numpy()
        np.testing.assert_array_equal(
            spectra, np.broadcast_to(expected[:, None, None], spectra.shape)
        )
        change = expected - expected[0]
        spectra = dataset["change_singular_values"].to_numpy()
        np.testing.assert_array_equal(
            spectra, np.broadcast_to(change[:, None, None], spectra.shape)
        )
    every = dataset["train_step"].to_numpy()
    assert every.tolist() == list(range(len(every))) and len(every) >= len(steps)
    rest = dataset["loss_every_step"].to_numpy() - 1 - every
    assert ((rest >= 0) & (rest < 1) & (np.diff(rest, prepend=0) >= 0)).all()
    return dict(zip(steps.tolist(), life.astype(int).tolist(), strict=True))


def all_lives(path: Path) -> dict[int, set[int]]:
    """Return the lives of each step in the run at `path` and in all that it has dropped."""
    lives: dict[int, set[int]] = defaultdict(set)
    for run in (path, *sorted((path / "dropped").glob("[0-9]*"))):
        for step, life in check(rs.open(run).load()).items():
            lives[step].add(life)
    return lives


if __name__ == "__main__":
    assert rs.Tracker  # imported here, not again in every life
    serve()
