"""Choice of matrices by patterns on their names, and hints for names that match none."""

import difflib
import fnmatch
from collections.abc import Collection, Iterable

Patterns = str | Iterable[str]
MOST_NAMES = 4  # listed in a message


def included(
    names: Collection[str],
    matrices: Collection[str],
    patterns: Patterns,
    parts: Collection[str],
) -> set[str]:
    """Return the matrices that patterns match, and the vectors that are named in full."""
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    named = {name for name in names if name in patterns}
    others = [pattern for pattern in patterns if pattern not in named]
    return named | matching(matrices, others, parts)


def matching(names: Collection[str], patterns: Patterns, parts: Collection[str]) -> set[str]:
    """Return the names that patterns match; ValueError if one matches none.

    parts: names of parts of matrices that are not wanted.
    """
    matched: set[str] = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        hits = fnmatch.filter(names, pattern)
        if not hits and (other := fnmatch.filter(parts, pattern)):
            raise ValueError(
                f"pattern {pattern!r} matches only parts, such as {other[0]!r}; name whole "
                "matrices, or read the parts with rankscope.views(..., parts=True)"
            )
        if not hits:
            hint = close(pattern, names) or f"; {_there_are(names)}"
            raise ValueError(f"pattern {pattern!r} matches no matrix{hint}")
        matched.update(hits)
    return matched


def _there_are(names: Collection[str]) -> str:
    """Return "there are" and the names, or the first ones of many."""
    first = [repr(name) for name in names][:MOST_NAMES]
    if not first:
        return "there is none"
    if len(names) > MOST_NAMES:
        return f"there are {', '.join(first)} ..."
    *others, last = first
    return f"there are {', '.join(others)} and {last}" if others else f"there is only {last}"


def close(name: str, names: Iterable[str]) -> str:
    """Return ", close: " and the names most like `name`; empty if there are none."""
    names_like_it = difflib.get_close_matches(name, list(names), n=3, cutoff=0.4)
    return f", close: {', '.join(map(repr, names_like_it))}" if names_like_it else ""
