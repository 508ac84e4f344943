"""Damage of every kind to checkpoints: one sentence, nothing executed, no hang, bounded memory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoints.mutants import KINDS

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("count", [120, pytest.param(15_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_damage_costs_a_sentence(tmp_path: Path, kind: str, count: int) -> None:
    """A child reads all mutants of one format; its audit hook and limits end it on a breach."""
    (tmp_path / "files").mkdir()
    script = TESTS / "checkpoints" / "mutants.py"
    ran = subprocess.run(
        [sys.executable, script, kind, str(count), tmp_path / "files"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    outcomes = json.loads(ran.stdout)
    peak = outcomes.pop("peak")
    assert sum(outcomes.values()) == count
    assert outcomes["refused"] > count / 10
    assert peak < 2e9
