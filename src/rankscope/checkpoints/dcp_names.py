"""Names of a distributed checkpoint: which tensors are weights, and how their model calls them."""

from collections.abc import Mapping, Sequence
from typing import Any

from rankscope.checkpoints.torch_files import OTHERS, WEIGHTS

Keys = tuple[str, ...]


def key_paths(file: str, fqns: Sequence[str], plan: Any) -> tuple[dict[str, Keys], list[str]]:
    """Return the keys of nested dicts that lead to each tensor, and sentences on false ones.

    The planner joins the keys by dots to the name in the file. Without its mapping only the first
    part of a name can be told from the model's own names, and only if it is a known one.
    """
    listed = plan if isinstance(plan, dict) else {}
    paths: dict[str, Keys] = {}
    lies: list[str] = []
    for fqn in fqns:
        path = listed.get(fqn)
        keys = tuple(map(str, path)) if isinstance(path, tuple) else ()
        if keys and ".".join(keys) != fqn:
            lies.append(f"{file} is damaged: its plan has {fqn[:80]!r} under another name")
            keys = ()
        first, _, rest = fqn.partition(".")
        paths[fqn] = keys or ((first, rest) if rest and first in OTHERS else (fqn,))
    return paths, lies


def weight_names(paths: Mapping[str, Keys]) -> dict[str, str]:
    """Return the names of the weights by their names in the file, without their container's.

    The weights of several models, such as a generator's and its critic's, keep their whole names.
    """
    containers = {fqn: container for fqn, keys in paths.items() if (container := _container(keys))}
    for key in WEIGHTS:
        inner = {fqn: keys for fqn, keys in containers.items() if keys[-1] == key}
        if inner:
            return _without_container(inner)
    return _without_container(
        {fqn: keys[:-1] for fqn, keys in paths.items() if not set(keys[:-1]) & set(OTHERS)}
    )


def _container(keys: Keys) -> Keys:
    """Return the keys down to a dict of weights, such as ("app", "model"); () if there is none."""
    for depth, key in enumerate(keys[:-1]):
        if key in OTHERS:
            return ()
        if key in WEIGHTS:
            return keys[: depth + 1]
    return ()


def _without_container(containers: Mapping[str, Keys]) -> dict[str, str]:
    only = set(containers.values())
    prefix = "".join(f"{key}." for key in only.pop()) if len(only) == 1 else ""
    return {fqn: fqn.removeprefix(prefix) for fqn in containers}
