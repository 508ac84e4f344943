"""Environment variables last as long as they are wanted."""

import os

import pytest

from rankscope.environment import environment

NEW, OLD = "RANKSCOPE_TEST_NEW", "RANKSCOPE_TEST_OLD"


def test_variables_are_restored_or_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OLD, "before")
    with (
        pytest.raises(ZeroDivisionError),
        environment({NEW: "1", OLD: "2"}),
    ):
        assert (os.environ[NEW], os.environ[OLD]) == ("1", "2")
        raise ZeroDivisionError
    assert NEW not in os.environ and os.environ[OLD] == "before"
