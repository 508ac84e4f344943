"""JSON of unknown origin: bounded in size, without duplicate keys."""

import json
from typing import Any

from rankscope.checkpoints.files import File, read_bytes

# Python's objects take up to 25 times the memory of the text they are read from.
MOST_BYTES = 2**24


def read_json(file: File, offset: int = 0, count: int | None = None) -> dict[str, Any]:
    """Return the JSON object in a file, or in `count` bytes of it."""
    count = file.size - offset if count is None else count
    if count > MOST_BYTES:
        raise ValueError(
            f"{file.name} is damaged: its JSON has {count} bytes, more than the {MOST_BYTES} that "
            "are read"
        )
    data = read_bytes(file, offset, count)
    try:
        content = json.loads(data.decode(), object_pairs_hook=_without_duplicates)
    except _Duplicate as duplicate:
        raise ValueError(f"{file.name} is damaged: {duplicate} is listed twice") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{file.name} is damaged and cannot be read: it holds no JSON") from None
    if not isinstance(content, dict):
        raise ValueError(f"{file.name} is damaged: expected a JSON object")
    return content


class _Duplicate(Exception):
    pass


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise _Duplicate(repr(key[:80]))
        content[key] = value
    return content
