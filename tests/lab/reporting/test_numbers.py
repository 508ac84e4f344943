import pytest

from rankscope.lab.reporting.numbers import cell_text, duration, number, span


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "?"), (40, "40 s"), (360, "6 min"), (10800, "3 h"), (89, "89 s")]
)
def test_durations_are_rounded(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_numbers_and_ranges() -> None:
    assert (number(None), number(3), number(0.12345)) == ("-", "3", "0.123")
    assert span(None) == "-" and span((0.1, 0.30001)) == "0.1 to 0.3" and span((0.5, 0.5)) == "0.5"
    assert cell_text(False) == "no"
