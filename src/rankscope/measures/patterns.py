"""Patterns on the names of modules."""

import difflib
import re
from collections.abc import Collection, Sequence


def names_matching(
    patterns: str | Sequence[str], names: Collection[str], *, measure: str, kind: str
) -> list[str]:
    """Return the names that patterns match, each once; * stands for anything but a dot.

    measure, kind: what to call them if a pattern matches none, which raises ValueError.
    """
    chosen: dict[str, None] = {}
    for pattern in (patterns,) if isinstance(patterns, str) else patterns:
        expression = re.compile(re.escape(pattern).replace(r"\*", r"[^.]*"))
        matching = [name for name in names if expression.fullmatch(name)]
        if not matching:
            close = difflib.get_close_matches(pattern, list(names), n=3, cutoff=0.4)
            hint = f", close: {', '.join(map(repr, close))}" if close else ""
            raise ValueError(
                f"{measure}: pattern {pattern!r} matches no {kind}{hint}; names are those of "
                "model.named_modules(), and * stands for anything but a dot"
            )
        chosen |= dict.fromkeys(matching)
    return list(chosen)
