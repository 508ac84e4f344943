import errno
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from rankscope.lab.data import cache
from rankscope.lab.data.cache import cached


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").write_text("first")
    return tmp_path / "source"


class Maker:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> dict[str, np.ndarray]:
        self.calls += 1
        return {"a": np.arange(6).reshape(2, 3), "b": np.array([1.5])}


def test_made_once_and_read_only(source: Path) -> None:
    make = Maker()
    first, second = cached("set", [source], make), cached("set", [source], make)
    assert make.calls == 1
    for arrays in (first, second):
        assert list(arrays) == ["a", "b"]
        assert np.array_equal(arrays["a"], [[0, 1, 2], [3, 4, 5]]) and arrays["b"][0] == 1.5
        with pytest.raises(ValueError, match="read-only"):
            arrays["a"][0, 0] = 9


def test_another_source_or_name_is_made_anew(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Maker()
    cached("set", [source], make)
    cached("other", [source], make)
    assert make.calls == 2
    source.write_text("longer")
    cached("set", [source], make)
    assert make.calls == 3
    os.utime(source, ns=(1, 1))  # the same size, another time
    cached("set", [source], make)
    assert make.calls == 4
    monkeypatch.setattr(cache, "VERSION", cache.VERSION + 1)
    cached("set", [source], make)
    assert make.calls == 5


def test_half_a_cache_is_never_used(source: Path, own_cache: Path) -> None:
    def fails() -> dict[str, np.ndarray]:
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        cached("set", [source], fails)
    make = Maker()
    cached("set", [source], make)
    (entry,) = own_cache.iterdir()
    damaged = entry / "a.npy"
    damaged.write_bytes(damaged.read_bytes()[:-8])
    assert cached("set", [source], make)["a"][1, 2] == 5
    assert make.calls == 2
    assert [path.name for path in own_cache.iterdir()] == [entry.name]


def test_whoever_is_first_wins(source: Path, own_cache: Path) -> None:
    """Another process finishes while this one is still decoding."""

    def slow() -> dict[str, np.ndarray]:
        cached("set", [source], Maker())
        return {"a": np.zeros((2, 3), int), "b": np.zeros(1)}

    assert cached("set", [source], slow)["a"][1, 2] == 5
    assert len(list(own_cache.iterdir())) == 1  # and nothing half made is left


def test_threads_that_start_together_decode_once(source: Path) -> None:
    start, make = threading.Barrier(4), Maker()

    def slow() -> dict[str, np.ndarray]:
        time.sleep(0.2)
        return make()

    def ask(_: int) -> int:
        start.wait()
        return int(cached("set", [source], slow)["a"][1, 2])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [5] * 4
    assert make.calls == 1


def test_what_is_interrupted_leaves_nothing(
    source: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cache.np, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cached("set", [source], Maker())
    assert list(own_cache.iterdir()) == []


def test_a_whole_cache_that_cannot_be_read_now_is_kept(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    make = Maker()
    cached("set", [source], make)
    with monkeypatch.context() as patch:
        patch.setattr(cache.np, "load", full)
        with pytest.raises(OSError, match="Too many open files"):
            cached("set", [source], make)
    assert cached("set", [source], make)["a"][1, 2] == 5 and make.calls == 1


def test_folder_that_cannot_be_written_only_warns(source: Path, own_cache: Path) -> None:
    own_cache.write_text("a file where the folder should be")
    make = Maker()
    for _ in range(2):
        with pytest.warns(UserWarning, match="cannot be written .* set RANKSCOPE_CACHE"):
            arrays = cached("set", [source], make)
        with pytest.raises(ValueError, match="read-only"):
            arrays["b"][0] = 9
    assert make.calls == 2


def test_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.folder() == tmp_path / "cache"
    monkeypatch.delenv("RANKSCOPE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "rankscope"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.folder() == Path.home() / ".cache" / "rankscope"
