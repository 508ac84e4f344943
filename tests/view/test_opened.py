"""Runs that are open in the viewer."""

import gc
import weakref

from rankscope.view.discovery import find_runs
from rankscope.view.opened import Kept, Opened
from view.browsing import RESULTS


def test_values_of_an_archive_stay_in_memory_only_as_long_as_they_are_kept() -> None:
    folder = RESULTS / "yunis2024/grok/grok/decay-1"
    place = next(iter(find_runs([folder]).places.values()))
    values = {}
    for most_bytes in (0, 2**30):
        kept = Kept(most_bytes)
        opened = Opened(place, kept)
        values[most_bytes] = weakref.ref(kept.get(opened, "singular_values").to_numpy())
        gc.collect()
        assert (values[most_bytes]() is None) == (most_bytes == 0)
