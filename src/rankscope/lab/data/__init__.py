"""Data of the experiments: each a frozen config with `build()`."""

from rankscope.lab.data.text import StandardLibraryText, Text

__all__ = ["StandardLibraryText", "Text"]
