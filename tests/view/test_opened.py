"""Runs that are open in the viewer."""

import gc
import weakref

from rankscope.view.discovery import find_runs
from rankscope.view.opened import ArrayCache, Opened
from view.browsing import RESULTS


def test_values_of_an_archive_stay_in_memory_within_the_bound_of_the_cache() -> None:
    folder = RESULTS / "yunis2024/grok/grok/decay-1"
    place = next(iter(find_runs([folder]).places.values()))
    values = {}
    for most_bytes in (0, 2**30):
        cache = ArrayCache(most_bytes)
        opened = Opened(place, cache)
        values[most_bytes] = weakref.ref(cache.get(opened, "singular_values").to_numpy())
        gc.collect()
        assert (values[most_bytes]() is None) == (most_bytes == 0)
