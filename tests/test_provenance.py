import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from rankscope.provenance import origin

ROOT = Path(__file__).parents[1]
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def no_repository_but_the_one_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("GIT_DIR", "GIT_WORK_TREE", "RANKSCOPE_COMMIT"):
        monkeypatch.delenv(variable, raising=False)


def test_plain_strings() -> None:
    attrs = origin(CPU)
    assert all(isinstance(value, str) for value in attrs.values())
    assert attrs["torch"] == torch.__version__ and attrs["device"].startswith("cpu (")


def test_the_version_of_the_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert origin(CPU)["rankscope"] == version("rankscope")
    monkeypatch.setattr(sys, "path", [])
    assert origin(CPU)["rankscope"] == "not installed"


@pytest.mark.parametrize(
    ("settings", "commit"),
    [({}, ""), ({"PATH": ""}, ""), ({"RANKSCOPE_COMMIT": "5eed"}, "5eed")],
    ids=["outside a repository", "without git", "a copy that is told its commit"],
)
def test_no_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], commit: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for variable, value in settings.items():
        monkeypatch.setenv(variable, value)
    assert origin(CPU)["commit"] == commit


def test_the_commit_of_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("git is not installed")
    if head.returncode:
        pytest.skip("not a checkout")
    assert re.fullmatch(rf"({head.stdout.strip()})(-dirty)?", origin(CPU)["commit"])
    assert re.fullmatch(r"[0-9a-f]{40}", head.stdout.strip())
