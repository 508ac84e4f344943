"""The identity of a run: its declaration as plain JSON, and a hash of that with the seed."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import sha256
from pathlib import PurePath
from typing import Any

Json = Any


def declaration(value: object) -> Json:
    """Return a declared value as plain JSON; different values give different JSON.

    Dataclasses carry their class's name without its module, so moving a file changes nothing.
    Fields that take no part in comparisons are left out. So are fields at their default that were
    added later, with metadata {"later": True}: runs from before keep their identity. Functions and
    classes go by name.
    """
    if is_dataclass(value) and not isinstance(value, type):
        entries = {
            f.name: declaration(getattr(value, f.name))
            for f in fields(value)
            if f.compare and not ("later" in f.metadata and getattr(value, f.name) == f.default)
        }
        return {"class": type(value).__qualname__, **entries}
    if isinstance(value, Enum):
        return {"enum": f"{type(value).__qualname__}.{value.name}"}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, PurePath):
        return {"path": value.as_posix()}
    if isinstance(value, tuple | list):
        return [declaration(item) for item in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {"mapping": {name: declaration(item) for name, item in value.items()}}
    name = getattr(value, "__qualname__", "<")
    if callable(value) and "<" not in name:
        return {"function": name}
    raise ValueError(
        f"{value!r} cannot be part of a run's declaration; use numbers, strings, tuples, enums, "
        "named functions and frozen dataclasses of these"
    )


def identity(run: object, seed: int) -> str:
    """Hexadecimal SHA-256 of declaration and seed; the same in every process and version."""
    return identity_of(declaration(run), seed)


def identity_of(declared: Json, seed: int) -> str:
    """The identity of a run whose declaration is `declared`."""
    canonical = json.dumps(
        {"declaration": declared, "seed": seed},
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
    )
    return sha256(canonical.encode()).hexdigest()


def changes(before: Json, after: Json) -> list[str]:
    """Return the differences between two declarations: "optimizer.rate: 0.1 -> 0.2"."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    return [
        f"{name or 'declaration'}: {old.get(name, 'absent')} -> {new.get(name, 'absent')}"
        for name in dict.fromkeys([*old, *new])
        if old.get(name, "absent") != new.get(name, "absent")
    ]


def _leaves(value: Json, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the entries of nested objects under dotted names, as JSON text."""
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from _leaves(entry, f"{name}.{key}" if name else key)
    else:
        yield name, json.dumps(value)
