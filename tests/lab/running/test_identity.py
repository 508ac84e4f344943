import json
import math
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field, make_dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.lab.running.identity import changes, declaration, identity


class Kind(Enum):
    FLOW = "flow"
    DESCENT = "descent"


@dataclass(frozen=True)
class Teacher:
    scale: float = 1.0
    sizes: tuple[int, ...] = (50, 10)


@dataclass(frozen=True)
class Simulation:
    teacher: Teacher = Teacher()
    log10_alpha: float = -8.0
    kind: Kind = Kind.FLOW
    limits: dict = field(default_factory=lambda: {"until": math.inf})
    loss: object = math.hypot
    label: str | None = None
    verbose: bool = field(default=False, compare=False)


BASE = Simulation()


def test_the_whole_declaration_is_plain_json() -> None:
    plain = declaration(BASE)
    assert (
        json.loads(json.dumps(plain, allow_nan=False))
        == plain
        == {
            "class": "Simulation",
            "teacher": {"class": "Teacher", "scale": 1.0, "sizes": [50, 10]},
            "log10_alpha": -8.0,
            "kind": {"enum": "Kind.FLOW"},
            "limits": {"mapping": {"until": {"float": "inf"}}},
            "loss": {"function": "hypot"},
            "label": None,
        }
    )


VARIANTS = {
    "base": BASE,
    "nested": replace(BASE, teacher=Teacher(scale=2.0)),
    "order": replace(BASE, teacher=Teacher(sizes=(10, 50))),
    "alpha": replace(BASE, log10_alpha=-16.0),
    "enum": replace(BASE, kind=Kind.DESCENT),
    "name of an enum": replace(BASE, kind="Kind.FLOW"),
    "infinity": replace(BASE, limits={"until": -math.inf}),
    "its name": replace(BASE, limits={"until": "inf"}),
    "function": replace(BASE, loss=math.dist),
    "text": replace(BASE, label=""),
    "a path": replace(BASE, label=Path("a")),
    "a path's name": replace(BASE, label="a"),
    "other class": Teacher(),
}


@dataclass(frozen=True)
class Grown(Teacher):
    width: int | None = field(default=None, metadata={"later": True})


def test_a_field_that_was_added_later_counts_once_it_is_set() -> None:
    before = make_dataclass("Grown", [("scale", float, 1.0), ("sizes", tuple, (50, 10))])
    assert identity(Grown(), 0) == identity(before(), 0)
    assert declaration(Grown(width=3)) == {**declaration(Grown()), "width": 3}
    assert identity(Grown(width=0), 0) != identity(Grown(), 0)


def test_every_field_counts_and_so_does_the_seed() -> None:
    found = Counter(identity(run, seed) for run in VARIANTS.values() for seed in (0, 1))
    assert max(found.values()) == 1 and len(found) == 2 * len(VARIANTS)


def test_what_does_not_matter() -> None:
    assert identity(replace(BASE, verbose=True), 0) == identity(BASE, 0)
    assert identity(replace(BASE, limits={"b": 1, "a": 2}), 0) == identity(
        replace(BASE, limits={"a": 2, "b": 1}), 0
    )


def test_the_same_in_another_process() -> None:
    Simple = make_dataclass("Simple", [("x", float), ("y", str)], frozen=True)
    script = (
        "from dataclasses import make_dataclass;"
        "from rankscope.lab.running.identity import identity;"
        "Simple = make_dataclass('Simple', ['x', 'y'], frozen=True);"
        "print(identity(Simple(0.1, 'ü'), 3))"
    )
    command = [sys.executable, "-c", script]
    there = subprocess.run(command, capture_output=True, text=True, check=True)
    assert there.stdout.strip() == identity(Simple(0.1, "ü"), 3)


@settings(max_examples=25, deadline=None)
@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_numbers_are_told_apart_to_the_last_bit(a: float, b: float) -> None:
    same = identity(Teacher(a), 0) == identity(Teacher(b), 0)
    assert same == (a.hex() == b.hex())


@pytest.mark.parametrize("value", [lambda x: x, {1, 2}, {1: 2}, partial(math.hypot, 1), object()])
def test_what_has_no_lasting_name_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="cannot be part of a run's declaration; use numbers"):
        declaration(Simulation(label=value))


def test_changes_are_named_where_they_are() -> None:
    after = replace(BASE, teacher=Teacher(scale=2.0), limits={"until": 3, "most": 1})
    assert changes(declaration(BASE), declaration(after)) == [
        "teacher.scale: 1.0 -> 2.0",
        'limits.mapping.until.float: "inf" -> absent',
        "limits.mapping.until: absent -> 3",
        "limits.mapping.most: absent -> 1",
    ]
    assert changes(declaration(BASE), declaration(BASE)) == []
    assert changes(None, {"class": "A"}) == ["declaration: null -> absent", 'class: absent -> "A"']
