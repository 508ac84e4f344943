"""A disk cache of arrays that take long to make: decoded once, then memory-mapped."""

import json
import os
import shutil
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np

VERSION = 1  # raise this when the arrays under a name change
# If threads start together, one decodes and the others wait. Reentrant, because making arrays may
# need other cached arrays.
MAKING = threading.RLock()


def folder() -> Path:
    """$RANKSCOPE_CACHE, or `rankscope` in the user's cache folder ($XDG_CACHE_HOME, ~/.cache)."""
    own = os.environ.get("RANKSCOPE_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rankscope"


def cached(
    name: str, sources: Sequence[Path], make: Callable[[], Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Return the arrays of `make()`, read-only, from the cache if possible.

    An entry is valid while name, size and time of every source stay the same. A partial entry is
    never used. If the folder cannot be written, this warns, and the arrays are made anew each time.
    """
    place = folder() / f"{name}-{_key(name, sources)}"
    arrays = _load(place)
    if arrays:
        return arrays
    with MAKING:
        return _load(place) or _made(place, make)


def _made(place: Path, make: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    arrays = make()
    try:
        with folder_at_once(place) as building:
            for key, array in arrays.items():
                np.save(building / f"{key}.npy", array, allow_pickle=False)
    except OSError as error:
        warnings.warn(
            f"the cache {place} cannot be written ({error}), so the data are decoded anew for each "
            "run; set RANKSCOPE_CACHE to a folder with space",
            stacklevel=3,
        )
    # Read back, so that the first use sees the same arrays as all later ones.
    return _load(place) or {key: _read_only(array) for key, array in arrays.items()}


def _key(name: str, sources: Sequence[Path]) -> str:
    stats = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sources]
    return sha256(json.dumps([VERSION, name, stats]).encode()).hexdigest()[:16]


def _load(place: Path) -> dict[str, np.ndarray]:
    """Read an entry; return {} if there is none, or if a file of it is damaged."""
    try:
        return {
            path.stem: np.load(path, mmap_mode="r", allow_pickle=False)
            for path in sorted(place.glob("*.npy"))
        }
    except FileNotFoundError:  # another process deleted a damaged entry
        return {}
    except (ValueError, EOFError):
        shutil.rmtree(place, ignore_errors=True)
        return {}


@contextmanager
def folder_at_once(place: Path) -> Iterator[Path]:
    """Yield a new sibling folder that becomes `place`; of several processes, one wins."""
    place.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    try:
        yield building
        os.rename(building, place)
    except OSError:
        if not place.is_dir():  # else another process was first, with the same content
            raise
    finally:  # also after Ctrl-C; does nothing after a rename
        shutil.rmtree(building, ignore_errors=True)


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view
