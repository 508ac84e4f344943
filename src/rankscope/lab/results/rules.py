"""results/rules.json: a hash of each claim's decision rule, and the reason of every change.

A rule is the code that a verdict follows from: the module of the claim's function and what that
imports from the laboratory. Comments, docstrings and layout do not count.
"""

import ast
import inspect
import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache, partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from rankscope.lab.experiment import Claim
from rankscope.lab.findings import write_json

RULES = "rules.json"
LABORATORY = "rankscope.lab."
NO_RULE = {"rankscope.lab.experiment"}  # types alone

# Place -> claim -> hash; a place is a paper judged as a whole, or an experiment.
Hashes = Mapping[str, Mapping[str, str]]


def rule_hash(claim: Claim) -> str:
    """Hexadecimal SHA-256 of the code that the claim's verdict follows from."""
    function, given = claim, ""
    while isinstance(function, partial):
        given += repr((function.args, sorted(function.keywords.items())))
        function = function.func
    modules = sorted(_closure(function.__module__))
    parts = [
        function.__qualname__,
        given,
        *(f"{name} {_normalised(_source(name))}" for name in modules),
    ]
    return sha256("\n".join(parts).encode()).hexdigest()


def _closure(module: str) -> set[str]:
    """The module and those of the laboratory that it imports, directly or not."""
    found, open_ends = set[str](), [module]
    while open_ends:
        name = open_ends.pop()
        if name not in found:
            found.add(name)
            imported = _imports(_source(name))
            open_ends += [n for n in imported if n.startswith(LABORATORY) and n in sys.modules]
    return found - NO_RULE


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


def changed_rules(results: Path, now: Hashes) -> list[str]:
    """Which claims have another rule than when they were judged: "Y3 (yunis2024)"."""
    before = read_rules(results)["claims"]
    return [
        f"{claim} ({place})"
        for place, claims in before.items()
        for claim, entry in claims.items()
        if now.get(place, {}).get(claim) != entry["sha256"]
    ]


def write_rules(results: Path, now: Hashes, *, reason: str | None = None) -> None:
    """Keep the hashes, with the day since which each is what it is, and why some changed."""
    today = datetime.now(UTC).date().isoformat()
    stored, changed = read_rules(results), changed_rules(results, now)
    history = list(stored["history"])
    if changed:
        assert reason, "a changed rule needs a reason"
        history.append({"date": today, "reason": reason, "claims": changed})
    claims = {
        place: {
            claim: _entry(stored["claims"].get(place, {}).get(claim), digest, today)
            for claim, digest in of_place.items()
        }
        for place, of_place in now.items()
    }
    write_json({"claims": claims, "history": history}, results / RULES)


def _entry(before: Mapping[str, str] | None, digest: str, today: str) -> Mapping[str, str]:
    return before if before and before["sha256"] == digest else {"sha256": digest, "since": today}


def read_rules(results: Path) -> dict[str, Any]:
    """What is kept; nothing if no verdict was."""
    path = results / RULES
    if not path.exists():
        return {"claims": {}, "history": []}
    stored: dict[str, Any] = json.loads(path.read_text())
    return stored
