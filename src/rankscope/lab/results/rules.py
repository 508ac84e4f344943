"""results/rules.json: a hash of each claim's decision rule, and the reason of every change.

A rule is the code that a verdict follows from: the module of the claim's function and what that
imports from the laboratory. Comments, docstrings and layout do not count. The code that draws a
figure is hashed in the same way.
"""

import ast
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from rankscope.lab.findings import read_json, write_json

RULES = "rules.json"
RULE = ("rankscope.lab.",)
DRAWING = (*RULE, "rankscope.figures.")
NO_RULE = {"rankscope.lab.experiment"}  # types alone

# Subject -> claim -> hash; a subject is a paper judged as a whole, or an experiment.
Hashes = Mapping[str, Mapping[str, str]]
ClaimKey = tuple[str, str]  # subject, claim


def code_hash(function: Callable[..., Any], *, of: tuple[str, ...] = RULE) -> str:
    """Hexadecimal SHA-256 of the code that a claim's verdict or a figure follows from.

    of: the packages whose modules count.
    """
    given = ""
    while isinstance(function, partial):
        given += repr((function.args, sorted(function.keywords.items())))
        function = function.func
    modules = sorted(_closure(function.__module__, of))
    parts = [
        function.__qualname__,
        given,
        *(f"{name} {_normalised(_source(name))}" for name in modules),
    ]
    return sha256("\n".join(parts).encode()).hexdigest()


def _closure(module: str, packages: tuple[str, ...]) -> set[str]:
    """The module and those of the packages that it imports, directly or not."""
    found, open_ends = set[str](), [module]
    while open_ends:
        name = open_ends.pop()
        if name not in found:
            found.add(name)
            homes = map(_home, _imports(_source(name)))
            open_ends += [home for home in homes if home.startswith(packages)]
    return found - NO_RULE


def _home(name: str) -> str:
    """The module of that name, or that of the function or class; "" of packages and all else."""
    if name in sys.modules:
        return "" if hasattr(sys.modules[name], "__path__") else name
    package, _, attribute = name.rpartition(".")
    return getattr(getattr(sys.modules.get(package), attribute, None), "__module__", None) or ""


@cache
def _imports(source: str) -> list[str]:
    """Every name that is imported: `a` and `a.b` of `from a import b`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            found += [f"{node.module}", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return found


@cache
def _normalised(source: str) -> str:
    """The code without comments, layout and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            node.body = node.body[1:]
    return _dump(tree)


def _dump(node: object) -> str:
    """As `ast.dump`, whose form and empty fields differ between versions of Python."""
    if isinstance(node, list):
        return f"[{','.join(map(_dump, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    filled = [(name, each) for name, each in ast.iter_fields(node) if each not in (None, [])]
    return f"{type(node).__name__}({','.join(f'{name}={_dump(each)}' for name, each in filled)})"


def _source(module: str) -> str:
    """Of a module that a claim has imported."""
    return inspect.getsource(import_module(module))


def changed_rules(results: Path, now: Hashes) -> list[ClaimKey]:
    """Which claims have another rule than when they were judged."""
    return [
        (subject, claim)
        for subject, claims in read_rules(results)["claims"].items()
        for claim, entry in claims.items()
        if now.get(subject, {}).get(claim) != entry["sha256"]
    ]


def write_rules(
    results: Path, now: Hashes, *, reason: str = "", replaced: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Keep the hashes, with the day since which each is what it is.

    reason: why verdicts are `replaced`, which are kept beside it.
    """
    today, stored = datetime.now(UTC).date().isoformat(), read_rules(results)
    history = list(stored["history"])
    if replaced:
        assert reason, "a changed rule needs a reason"
        history.append({"date": today, "reason": reason, "replaced": list(replaced)})
    claims = {
        subject: {
            claim: _entry(stored["claims"].get(subject, {}).get(claim), sha256, today)
            for claim, sha256 in of_place.items()
        }
        for subject, of_place in now.items()
    }
    write_json({"claims": claims, "history": history}, results / RULES)


def _entry(before: Mapping[str, str] | None, sha256: str, today: str) -> Mapping[str, str]:
    return before if before and before["sha256"] == sha256 else {"sha256": sha256, "since": today}


def read_rules(results: Path) -> dict[str, Any]:
    """What is kept; nothing if no verdict was."""
    path = results / RULES
    return read_json(path) if path.exists() else {"claims": {}, "history": []}
