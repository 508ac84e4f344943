"""The example of the how-to page runs as an experiment outside the package."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rankscope.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "own-experiment.md"


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len([line for line in example.splitlines() if line]) <= 45
    (tmp_path / "small_start.py").write_text(example)
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(app, ["run", "small_start.py", "--seed", "0", "--jobs", "1"])
    assert ran.exit_code == 0, ran.output
    folder = tmp_path / "runs/mine/small-start/small"
    (verdict,) = json.loads((folder / "verdicts.json").read_text())["verdicts"]
    assert [n["verdict"] for n in verdict["networks"]] == ["holds so far"]
    assert (folder / "figures/spectrum.png").exists()
