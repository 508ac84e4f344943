"""Tools of a checkout that run, and compact again, what an archive holds."""

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from lab.toy_study import SLOW, experiment
from rankscope.lab.archive.archived_files import archive_path
from rankscope.lab.archive.compaction import BITS, CoarseTails, Compaction, Leading, Thinned, Way
from rankscope.lab.running.identity import declaration

TOOLS = Path(__file__).parents[2] / "tools"


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_is_due_is_what_the_archive_lacks(tmp_path: Path) -> None:
    declared, archive, out = experiment("paper"), tmp_path / "results", tmp_path / "runs"
    due = tool("run_due").due
    (slow,) = (key for key in declared.runs if key.variant == SLOW.variant)
    for seed in (0, 1, 7):  # 7 is not declared, and the archive has one of its two runs
        file = archive_path(archive, slow, seed)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    places = [(run.key.network, run.seed) for run in due(declared, archive, out)]
    assert sorted(places) == [*(("fast", seed) for seed in (0, 1, 2, 7)), ("slow", 2)]
    assert [run.seed for run in due(declared, archive, out, seeds=(1,))] == [1]
    assert [run.seed for run in due(declared, archive, out, seeds=(9,))] == [9, 9]
    assert all(out in run.path.parents for run in due(declared, archive, out))
    assert len(due(declared, tmp_path / "none", out)) == 2 * len(declared.seeds)


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
