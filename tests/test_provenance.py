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


def test_no_commit_outside_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    assert origin(CPU)["commit"] == ""


def test_a_copy_can_be_told_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_COMMIT", "5eed")
    monkeypatch.chdir(tmp_path)
    assert origin(CPU)["commit"] == "5eed"


def test_no_commit_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(ROOT)
    assert origin(CPU)["commit"] == ""


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
