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
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    width: int,
    piped: bool,
    content: Table = CONTENT,
    *,
    title: str = "a table",
    least: tuple[str, ...] = TITLES[:7],
) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    if not piped:
        monkeypatch.setattr("rich.console.Console.is_terminal", True)
    print_table(content, title=title, least=least)
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
    *text, last = text.rstrip("\n").split("\n")
    assert last.removeprefix("no room for: ") == ", ".join(TITLES[: 9 - columns]) or columns == 9
    text = "\n".join(text)
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


@pytest.mark.parametrize(("width", "shown"), [(200, "kind norm rank"), (44, "rank"), (38, "")])
def test_a_name_stays_whole_if_two_columns_less_make_room(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    width: int,
    shown: str,
) -> None:
    rows = tuple((f"transformer.layers.{i}.attention.q", "linear", 1e-9, 0.5) for i in range(2))
    content = Table(("matrix", "kind", "norm", "rank"), rows)
    text = printed(monkeypatch, capsys, width, False, content, least=("kind", "norm"))
    head = next(line for line in text.split("\n") if "matrix" in line)
    names = [line.split()[0] for line in text.split("\n") if "attention.q" in line]
    if shown:
        assert head.split() == ["matrix", *shown.split()]
        assert names == [row[0] for row in rows]
    else:
        assert names == ["attention.q"] * 2


def test_numbers_are_aligned_at_their_points_and_nan_is_a_dash(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    values: tuple[float | str, ...] = (12.5, 0.25, float("nan"), 1000.0)
    counts = (">64", "3", "12", "-")
    rows = tuple(zip("abcd", values, counts, strict=True))
    content = Table(("matrix", "x", "count"), rows)
    lines = printed(monkeypatch, capsys, 80, True, content).split("\n")
    assert [line.rstrip() for line in lines if line[1:2] in set("abcd") and line[2] == " "] == [
        " a         12.5   >64",
        " b          0.25    3",
        " c          -      12",
        " d       1000       -",
    ]


def test_a_long_title_is_not_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    title = f"{'folder/' * 20}[model].safetensors"
    content = Table(("matrix", "x"), (("a", 1.0),))
    assert printed(monkeypatch, capsys, 60, False, content, title=title).startswith(f"{title}\n")
