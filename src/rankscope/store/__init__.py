"""One run, one Zarr v3 group: written snapshot by snapshot, readable at every moment."""

from rankscope.store.layout import Variable
from rankscope.store.reader import open
from rankscope.store.writer import Writer

__all__ = ["Variable", "Writer", "open"]
