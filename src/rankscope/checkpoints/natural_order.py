"""Natural order of names: layer 2 comes before layer 10."""

import re

NUMBER = re.compile(r"([0-9]+)")


def natural_order(name: str) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts names as people count, such as "layers.2" before "layers.10"."""
    parts = NUMBER.split(name)
    return tuple((int(part) if part.isdecimal() else 0, part) for part in parts)
