"""Tools of a checkout that run, and compact again, what an archive holds."""

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from rankscope.lab.archive.compaction import BITS, CoarseTails, Compaction, Leading, Thinned, Way
from rankscope.lab.running.identity import declaration

TOOLS = Path(__file__).parents[2] / "tools"


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FINE, COARSE = Compaction(), Compaction(bits={**BITS, "singular_values": 7})


@pytest.mark.parametrize(
    ("how", "former", "shorter"),
    [
        (COARSE, FINE, True),
        (FINE, COARSE, False),
        (CoarseTails(COARSE, {"singular_values": 4}), FINE, True),
        (FINE, CoarseTails(FINE, {"singular_values": 4}), False),
        (FINE, Leading(FINE, {"singular_values": 4}), False),
        (FINE, Thinned(FINE, ("singular_values",)), False),
        (replace(FINE, ends=()), replace(FINE, ends=("alignment",)), False),
    ],
)
def test_what_is_stored_can_only_get_shorter(how: Way, former: Way, shorter: bool) -> None:
    assert tool("compact_again").is_shorter(how, declaration(former)) == shorter
