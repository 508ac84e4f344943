"""Natural order of names: layer 2 comes before layer 10."""

import re
from collections.abc import Iterable
from typing import Any

NUMBER = re.compile(r"([0-9]+)")


def natural_order(name: str) -> tuple[tuple[int, str], ...]:
    """Return a key that sorts names as people count, such as "layers.2" before "layers.10"."""
    parts = NUMBER.split(name)
    return tuple((int(part) if part.isdecimal() else 0, part) for part in parts)


def numbered_in_order(names: Iterable[str]) -> list[str]:
    """Return names as they come, but numbered modules by number: layer 2 before layer 10.

    A safetensors file lists its names by their letters, a state dict in the order of the model.
    """
    keys: dict[str, list[tuple[int, int]]] = {}
    root: dict[str | None, tuple[int, Any]] = {}
    for name in names:
        key, siblings = keys.setdefault(name, []), root
        for part in name.split("."):
            numbered = part.isdecimal()
            place, _ = siblings.setdefault(None if numbered else part, (len(siblings), {}))
            key.append((place, int(part) if numbered else 0))
            _, siblings = siblings.setdefault(part, (len(siblings), {}))
    return sorted(keys, key=keys.__getitem__)
