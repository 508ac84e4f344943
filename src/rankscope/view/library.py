"""The runs under the given folders: found again now and then, a few of them open."""

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankscope.view.discovery import Place, Search, find_runs
from rankscope.view.opened import ArrayCache, Opened
from rankscope.view.summary import damaged_summary, summary
from rankscope.view.tables import Tables

MOST_OPEN = 64  # all runs of one comparison
SEARCH_SECONDS = 2.0  # between two searches of the folders, at least
SHARE = 10  # a search of t seconds is followed by SHARE t seconds without


class Unknown(LookupError):
    """No run has this key."""


class Library:
    """All that the viewer knows; threads share it."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = list(folders)
        self.tables = Tables()
        self._array_cache = ArrayCache()
        self._lock = threading.RLock()
        self._search = Search({}, 0)
        self._searched, self._pause = float("-inf"), 0.0
        self._opened: OrderedDict[str, Opened] = OrderedDict()
        self._summaries: dict[str, tuple[tuple[str, str], dict[str, Any]]] = {}
        self._listed: object = None
        self._versions: dict[str, str] = {}
        self.list_version, self.version = 0, 0

    def search(self) -> Search:
        """Return what lies in the folders, looked up again if the last time is long ago."""
        with self._lock:
            began = time.monotonic()
            if began - self._searched >= self._pause:
                self._search = find_runs(self.folders)
                self._searched = time.monotonic()
                self._pause = max(SEARCH_SECONDS, SHARE * (self._searched - began))
                listed = {
                    key: (place.state, not place.commit)
                    for key, place in self._search.places.items()
                }
                if listed != self._listed:
                    self._listed = listed
                    self.list_version += 1
                    self.version += 1
                for key in self._opened.keys() - listed.keys():
                    del self._opened[key]
                    self.tables.forget(key)
            return self._search

    def place(self, key: str) -> Place:
        """Return where a run lies; Unknown if there is none of that key."""
        place = self._search.places.get(key) or self.search().places.get(key)
        if place is None:
            raise Unknown("there is no such run here; reload the list of runs")
        return place

    def open(self, key: str) -> Opened:
        """Return the run as it is now; ValueError if it is damaged."""
        place = self.place(key)
        commit = place.commit
        with self._lock:
            opened = self._opened.get(key)
            if opened is None or opened.commit != commit:
                opened = Opened(place, self._array_cache)
                self._opened[key] = opened
            self._opened.move_to_end(key)
            while len(self._opened) > MOST_OPEN:
                self._opened.popitem(last=False)
            return opened

    def versions(self, keys: Sequence[str]) -> dict[str, str | None]:
        """Return the commit of each run; None if it is gone."""
        places = self.search().places
        commits = {key: places[key].commit if key in places else "" for key in keys}
        with self._lock:
            for key, commit in commits.items():
                if self._versions.get(key, commit) != commit:
                    self.version += 1
                self._versions[key] = commit
        return {key: commit or None for key, commit in commits.items()}

    def summaries(self) -> list[dict[str, Any]]:
        """Return a row for each run; those that have not changed are not read again."""
        rows = []
        for key, place in self.search().places.items():
            state, commit = place.state, place.commit
            known = self._summaries.get(key)
            if known is None or known[0] != (state, commit):
                try:
                    row = summary(place)
                except Exception as damage:  # the others are listed in any case
                    row = damaged_summary(place, damage)
                known = self._summaries[key] = ((state, commit), row)
            rows.append(known[1])
        return rows

    def close(self) -> None:
        """End the thread that computes metrics."""
        self.tables.close()
