"""Tables of the commands at every width: numbers stay whole."""

import re

import pytest

from rankscope.cli.tables import at_dots, print_table
from rankscope.lab.judging.verdict import Table

NAME = "model.layers.10.self_attn.q_proj.of.a.deep.model"
NUMBERS = tuple(0.12345 + number for number in range(9))
TITLES = tuple(f"number {number}" for number in range(9))
CONTENT = Table(
    ("matrix", *TITLES, "stands out"), ((NAME, *NUMBERS, "one direction holds all of it"),)
)


def printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, piped: bool
) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    if not piped:
        monkeypatch.setattr("rich.console.Console.is_terminal", True)
    print_table(CONTENT, title="a table", least=TITLES[:7])
    return re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)


def test_a_pipe_gets_all_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(monkeypatch, capsys, 40, piped=True)
    assert any(
        NAME in line and "one direction holds all of it" in line for line in text.split("\n")
    )
    assert all(f"{number:.4g}" in text for number in NUMBERS)


@pytest.mark.parametrize(("width", "columns"), [(60, 2), (80, 5), (100, 7), (400, 9)])
def test_a_narrow_terminal_does_without_columns(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    width: int,
    columns: int,
) -> None:
    text = printed(monkeypatch, capsys, width, piped=False)
    assert "\u2026" not in text and max(map(len, text.split("\n"))) <= width
    shown = [f"{number:.4g}" in text.split() for number in NUMBERS]
    assert shown == [False] * (9 - sum(shown)) + [True] * sum(shown)
    assert sum(shown) == columns
    body = text.split("\u2500")[-1].split("\n")[1:]
    names = "".join(line.split()[0] for line in body if line[1:2].strip())
    assert names == NAME


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("transformer.h.0.attn.c_attn", ["transformer.h.0.", "attn.c_attn"]),
        ("wte", ["wte"]),
        (f"{'x' * 40}.weight", [f"{'x' * 40}.", "weight"]),
    ],
)
def test_names_break_at_dots(name: str, lines: list[str]) -> None:
    assert at_dots(name).split("\n") == lines


def test_a_terminal_too_narrow_for_the_last_columns_cuts_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(monkeypatch, capsys, 20, piped=False)
    assert all(f"{number:.4g}" in text.split() for number in NUMBERS[7:])
