import re
from importlib.metadata import version
from pathlib import Path

import pytest

from rankscope.cli import main

ANSI = re.compile(r"\x1b\[[\d;]*m")


class Ran:
    """What `rankscope *arguments` printed, without colours, and its exit code."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
    ) -> None:
        monkeypatch.setattr("sys.argv", ["rankscope", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        self.code = ended.value.code
        self.out, self.err = ANSI.sub("", printed.out), ANSI.sub("", printed.err)


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ran = Ran(monkeypatch, capsys, "--version")
    assert (ran.code, ran.out, ran.err) == (0, f"rankscope {version('rankscope')}\n", "")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_is_a_guide(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    ran = Ran(monkeypatch, capsys, *arguments)
    assert "rankscope demo" in ran.out and "tracker.observe(step, loss=loss)" in ran.out
    assert ran.err == ""
    if arguments:
        assert ran.code == 0


def test_the_options_of_the_demo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options are promises: a new one is added here on purpose or not at all."""
    ran = Ran(monkeypatch, capsys, "demo", "--help")
    assert ran.code == 0
    assert re.findall(r"--[\w-]+", ran.out) == ["--out", "--steps", "--seed", "--help"]


def test_a_mistake_is_one_sentence_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    thesis = tmp_path / "run" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.write_text("years of work")
    ran = Ran(monkeypatch, capsys, "demo", "--out", str(tmp_path))
    assert (ran.code, ran.out) == (2, "")
    run = tmp_path / "run"
    assert ran.err == (
        f"rankscope: {run} is not an earlier demo's; choose another folder with --out\n"
    )
    assert thesis.read_text() == "years of work"
