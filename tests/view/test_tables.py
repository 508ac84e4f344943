"""Metrics that are computed while answers wait for them."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rankscope.view.library import Library
from rankscope.view.quantities import quantities
from rankscope.view.table import Table
from view.viewed_runs import write


@pytest.mark.parametrize(("parts", "seconds"), [(0, (3.0, 6.0)), (1, (1.8, 2.9)), (None, (0, 1.8))])
def test_an_answer_waits_longer_while_nothing_is_known(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    parts: int | None,
    seconds: tuple[float, float],
) -> None:
    work, go_on = Table.work, threading.Event()

    def halting(table: Table, metrics: list[str], wanted: np.ndarray | None) -> Iterator[None]:
        for number, _ in enumerate(work(table, metrics, wanted)):
            yield
            if number + 1 == parts:
                go_on.wait(10)

    def held(table: Table, metrics: list[str], wanted: np.ndarray | None) -> Iterator[None]:
        go_on.wait(10)
        yield from work(table, metrics, wanted)

    monkeypatch.setattr(Table, "work", held if parts == 0 else halting)
    write(tmp_path / "run", range(40))
    library = Library([tmp_path])
    (key,) = library.search().places
    opened = library.open(key)
    quantity = quantities(opened.ds, opened.along)[0]
    began = time.monotonic()
    known = library.tables.values(opened, quantity, np.arange(40), patience=3.0)
    waited = time.monotonic() - began
    go_on.set()
    library.close()
    assert seconds[0] <= waited <= seconds[1]
    assert (known.done > 0, known.done == 1) == (parts != 0, parts is None)
