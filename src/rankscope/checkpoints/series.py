"""Series of checkpoints: the files or folders of one training run, in the order of their steps."""

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankscope.checkpoints.dcp import METADATA
from rankscope.checkpoints.folders import SHARD, WEIGHTS, weights_in

# The words before a number that counts steps, and what may stand around them.
STEP = re.compile(
    r"(?P<before>.*?)(?P<number>\d+)(?P<after>(?:[-_.]?(?:k|steps?|iters?|epochs?|ckpt|model|pt))*)",
    re.IGNORECASE,
)
# Words before a number that counts the parts of one checkpoint.
PARTS = re.compile(r"(.*[-_.])?(rank|consolidated|shard|part)[-_.]?", re.IGNORECASE)
MOST = 100_000  # checkpoints of a series


@dataclass(frozen=True)
class Member:
    """One checkpoint of a series.

    step: the number in its name; its position if the names have none.
    """

    step: int
    path: str


def series_in(folder: Path, *, pattern: str | None = None) -> tuple[list[Member], list[str]]:
    """Return the checkpoints of a folder by step, and sentences on those that are left out.

    A folder that is a checkpoint itself is one member. pattern: such as "checkpoint-*".
    """
    names = sorted(entry.name for entry in os.scandir(folder))
    if pattern is None and (METADATA in names or _is_checkpoint(names)):
        member = Member(number_in(folder.name) or 0, str(folder))
        return [member], list(_series_beside(folder, names))
    candidates, notes = _candidates(folder, names, pattern)
    series = _by_style(candidates)
    if not series:
        raise _no_series(folder, candidates, pattern)
    _refuse_parts(folder, candidates)
    chosen = candidates
    if pattern is None:
        chosen = _largest(folder, series)
        left = sorted(set(candidates) - set(chosen))
        notes += [f"{name} is not part of the series and is left out" for name in left[:20]]
    members, twice = in_order(folder / name for name in chosen if _match(name))
    return members, [*notes, *twice]


def _candidates(
    folder: Path, names: Sequence[str], pattern: str | None
) -> tuple[list[str], list[str]]:
    """Return the names that could be checkpoints, and a sentence on those that are not shown."""
    visible = [name for name in names if not name.startswith(".")]
    chosen = [name for name in visible if pattern is None or fnmatch.fnmatch(name, pattern)]
    candidates = [name for name in chosen if _could_be(folder / name)]
    shown = [name for name in candidates if name.isprintable()]
    hidden = len(candidates) - len(shown)
    note = f"{hidden} files of {folder} have names that no terminal should show, and are left out"
    return shown, [note] if hidden else []


def _by_style(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the names that have a number of steps, by what stands around it."""
    series: dict[str, list[str]] = {}
    for name in names:
        if (match := _match(name)) is not None:
            before = re.sub(r"\d+", "#", match["before"])  # epoch=3-step=200
            series.setdefault(f"{before}*{match['after']}", []).append(name)
    return series


def _no_series(folder: Path, candidates: Sequence[str], pattern: str | None) -> ValueError:
    """Return the refusal of a folder in which nothing has a number of steps."""
    if candidates and pattern is None:
        shown = ", ".join(name[:80] for name in candidates[:4])
        return ValueError(
            f"{str(folder)!r} is neither one checkpoint nor a series of steps; pass one of what "
            f"it holds: {shown}{' and more' if len(candidates) > 4 else ''}"
        )
    return ValueError(
        f"{str(folder)!r} holds no checkpoint that is known"
        + (f" among those that match {pattern!r}" if pattern else "")
        + "; pass a file, a folder with model.safetensors, or one with checkpoints such as "
        "step1000 or checkpoint-500"
    )


def _refuse_parts(folder: Path, names: Sequence[str]) -> None:
    """Raise ValueError if the numbers count the parts of one checkpoint."""
    parts = [name for name in names if (match := _match(name)) and PARTS.fullmatch(match["before"])]
    if len(parts) > 1:
        raise ValueError(
            f"{str(folder)!r} holds parts of one checkpoint, such as {parts[0]} and {parts[1]}, "
            "which are no series and are not joined; save it whole, or as a distributed checkpoint"
        )


def _largest(folder: Path, series: Mapping[str, list[str]]) -> list[str]:
    """Return the names of the longest series; ValueError if two are as long."""
    largest = max(series.values(), key=len)
    if sum(len(names) == len(largest) for names in series.values()) > 1:
        shown = ", ".join(map(repr, sorted(series)[:4]))
        raise ValueError(f"{str(folder)!r} holds several series: {shown}; choose one by --pattern")
    return largest


def _series_beside(folder: Path, names: Sequence[str]) -> Iterator[str]:
    """Yield a sentence on checkpoints of the training that a final model ended."""
    steps = [name for name in names if name.startswith("checkpoint-") and (folder / name).is_dir()]
    if steps:
        yield (
            f"{folder} is scanned as one model; --pattern 'checkpoint-*' scans the series of "
            f"{len(steps)} within it"
        )


def in_order(paths: Iterable[Path]) -> tuple[list[Member], list[str]]:
    """Return members by the number in their names; of two with one number, the first."""
    members: dict[int, Member] = {}
    problems: list[str] = []
    for path in sorted(paths, key=lambda path: path.name):
        step = number_in(path.name)
        step = len(members) if step is None else step
        if step in members:
            problems.append(
                f"{Path(members[step].path).name} and {path.name} are both of step {step}; the "
                "second is left out"
            )
            continue
        members[step] = Member(step, str(path))
    if len(members) > MOST:
        raise ValueError(f"a series has at most {MOST} checkpoints, got {len(members)}")
    return [members[step] for step in sorted(members)], problems


def given_in_order(paths: Sequence[str]) -> list[Member]:
    """Return members for paths that a user lists: by number if all differ, else as listed."""
    numbers = [number_in(re.split(r"[/@]", path.rstrip("/"))[-1]) for path in paths]
    if len(paths) > 1 and None not in numbers and len(set(numbers)) == len(paths):
        pairs = zip(numbers, paths, strict=True)
        return sorted((Member(n or 0, path) for n, path in pairs), key=lambda m: m.step)
    if len(paths) == 1:
        return [Member(numbers[0] or 0, paths[0])]
    return [Member(position, path) for position, path in enumerate(paths)]


def number_in(name: str) -> int | None:
    """Return the number of steps that a name such as step1000 or epoch_0100.pt has, or None."""
    match = _match(name)
    if match is None or len(match["number"]) > 15:
        return None
    thousands = match["after"].lower().startswith("k")
    return int(match["number"]) * (1000 if thousands else 1)


def _match(name: str) -> re.Match[str] | None:
    stem = name
    for end in WEIGHTS:
        stem = stem.removesuffix(end)
    return None if SHARD.fullmatch(name) else STEP.fullmatch(stem)


def _is_checkpoint(names: list[str]) -> bool:
    """Tell whether files of these names are one checkpoint, and not a series of one."""
    files = weights_in(names)
    return len(files) > 1 or (len(files) == 1 and _match(files[0]) is None)


def _could_be(path: Path) -> bool:
    return path.name.endswith(WEIGHTS) or path.is_dir()
