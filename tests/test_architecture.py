"""The arrows of the design: which part of the package may import which."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "rankscope"

MAY_IMPORT = {
    "extras": set(),
    "environment": set(),
    "ray_connection": {"environment"},
    "checkpoints": {"extras"},
    "matrices": {"checkpoints"},
    "noise": set(),
    "metrics": {"noise"},
    "store": set(),
    "provenance": set(),
    "xarray_hook": set(),
    "plain_names": set(),
    "pairs": {"matrices"},
    "spectra": {"environment", "matrices"},
    "theory": {"matrices", "spectra"},
    "overlaps": {"pairs", "spectra"},
    "leading_spectra": {"metrics"},
    "accessor": {"leading_spectra", "metrics"},
    "gates": {"accessor", "store"},
    "integrations": {"extras", "gates", "store", "tracker"},
    "interventions": {"matrices", "metrics", "spectra"},
    "snapshot": {"matrices", "pairs", "spectra", "overlaps", "store"},
    "verification": {"matrices", "pairs"},
    "measures": {"checkpoints", "matrices", "metrics", "spectra", "snapshot", "store"},
    "tracker": {
        "checkpoints",
        "matrices",
        "pairs",
        "verification",
        "spectra",
        "snapshot",
        "measures",
        "store",
        "provenance",
    },
    "tables": {"matrices", "metrics", "spectra", "store"},
    "lora": {"matrices", "spectra", "metrics", "noise", "checkpoints"},
    "scanning": {
        "checkpoints",
        "extras",
        "lora",
        "matrices",
        "metrics",
        "spectra",
        "snapshot",
        "store",
        "provenance",
        "ray_connection",
    },
    "sinks": {"accessor", "extras", "figures", "store"},
    "figures": {"plain_names"},
}
MAY_IMPORT["lab"] = set(MAY_IMPORT)
# Of the laboratory the viewer reads verdicts, for one view.
MAY_IMPORT["view"] = {
    "extras",
    "metrics",
    "leading_spectra",
    "accessor",
    "plain_names",
    "store",
    "lab",
}
MAY_IMPORT["lab"].add("view")  # reports open on the viewer's drawing
MAY_IMPORT["cli"] = set(MAY_IMPORT)
MAY_IMPORT["__main__"] = {"cli"}


def module_name(path: Path) -> str:
    names = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(names).removesuffix(".__init__")


MODULES = {module_name(path): path for path in PACKAGE.rglob("*.py")}


PARTS = sorted({name.split(".")[1] for name in MODULES if "." in name})


def files_of(part: str) -> list[Path]:
    return [path for name, path in MODULES.items() if [part] == name.split(".")[1:2]]


def imports(path: Path) -> Iterator[str]:
    """Yield every module that a file imports, inside functions too; the package by its stub."""
    stub = path.with_suffix(".pyi")
    for node in ast.walk(ast.parse(path.read_text() + (stub.read_text() if stub.exists() else ""))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            submodules = {f"{node.module}.{alias.name}" for alias in node.names} & MODULES.keys()
            yield from submodules
            if len(submodules) < len(node.names):
                yield node.module


@pytest.mark.parametrize("part", PARTS)
def test_imports_point_one_way(part: str) -> None:
    for path in files_of(part):
        used = {name.split(".")[1] for name in imports(path) if name.startswith("rankscope.")}
        wrong = used - MAY_IMPORT[part] - {part}
        assert not wrong, f"{path.name} imports {wrong}"


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {name: MODULES.keys() & set(imports(path)) for name, path in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' <- '.join(error.args[1])}")


NO_MODULES_FILES_OR_PLOTS = {"torch.nn", "pathlib", "matplotlib", "zarr", "xarray"}
FORBIDDEN = {
    **dict.fromkeys(["spectra", "overlaps", "metrics", "theory"], NO_MODULES_FILES_OR_PLOTS),
    "store": {"torch"},
}


@pytest.mark.parametrize("part", FORBIDDEN)
def test_layers_know_no_foreign_libraries(part: str) -> None:
    for path in files_of(part):
        libraries = {*imports(path), *(name.split(".")[0] for name in imports(path))}
        assert not libraries & FORBIDDEN[part], path


def test_every_file_has_one_subject() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path
        assert path.stem not in {"utils", "helpers", "common", "misc"}, path
