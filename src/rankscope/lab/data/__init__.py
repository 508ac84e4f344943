"""Data sets: each is a frozen dataclass with `build()`."""
