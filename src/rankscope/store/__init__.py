"""Store of runs: one run is one Zarr v3 group, written snapshot by snapshot, always readable."""

from rankscope.store.layout import Variable
from rankscope.store.reader import is_run, open
from rankscope.store.writer import Writer

__all__ = ["Variable", "Writer", "is_run", "open"]
