"""Damage of every kind to checkpoints: one sentence, nothing executed, no hang, bounded memory."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from checkpoints.mutants import KINDS, Guard

TESTS = Path(__file__).parents[1]
EACH = [pytest.param([kind], 15_000, marks=pytest.mark.slow, id=kind) for kind in KINDS]


@pytest.mark.parametrize(("kinds", "count"), [pytest.param(KINDS, 40, id="sample"), *EACH])
def test_damage_costs_a_sentence(tmp_path: Path, kinds: list[str], count: int) -> None:
    """A child gives all mutants to the commands; its audit hook and limits end it on a breach."""
    lines = outcomes(kinds, count, tmp_path)
    assert [line["kind"] for line in lines] == list(kinds)
    for line in lines:
        assert sum(line["outcomes"].values()) == count
        assert line["outcomes"]["refused"] > count / 20
        assert line["outcomes"]["series partial"] > count / 50


@pytest.mark.slow
def test_large_forgeries_take_neither_hours_nor_memory(tmp_path: Path) -> None:
    (line,) = outcomes(["large"], 0, tmp_path)
    assert line["outcomes"] == {"refused": 9}


def test_the_guard_forbids_what_a_reader_does_not_need(tmp_path: Path) -> None:
    guard = Guard(tmp_path)
    (tmp_path / "link").symlink_to("/etc/passwd")
    allowed = [("open", (tmp_path / "x", "r", os.O_RDONLY)), ("os.scandir", (str(tmp_path),))]
    forbidden = [
        ("open", ("/etc/passwd", None, os.O_RDONLY | os.O_NONBLOCK)),
        ("open", (tmp_path / "link", None, os.O_RDONLY)),
        ("open", (os.fsencode(tmp_path.parent), None, os.O_RDONLY)),
        ("open", (tmp_path / "x", "w", os.O_WRONLY | os.O_CREAT)),
        ("os.listdir", ("/etc",)),
        ("os.system", (b"true",)),
        ("import", ("os", None, None, None, None)),
        ("os.remove", (tmp_path / "x", -1)),
    ]
    assert [guard.forbids(*event) for event in allowed] == [False] * 2
    assert [guard.forbids(*event) for event in forbidden] == [True] * 8


def outcomes(kinds: Sequence[str], count: int, folder: Path) -> list[dict[str, Any]]:
    """Return what the child prints of each kind, within bounds of time and memory."""
    script = TESTS / "checkpoints" / "mutants.py"
    ran = subprocess.run(
        [sys.executable, script, ",".join(kinds), str(count), folder],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    lines: list[dict[str, Any]] = [json.loads(line) for line in ran.stdout.splitlines()]
    assert all(line["peak"] < 1e9 and line["slowest"] < 10 for line in lines), lines
    return lines
