"""The arrows of the design: which part of the package may import which."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "rankscope"

MAY_IMPORT = {
    "matrices": set(),
    "metrics": set(),
    "store": set(),
    "provenance": set(),
    "registration": set(),
    "pairs": {"matrices"},
    "spectra": {"matrices"},
    "theory": {"matrices", "spectra"},
    "overlaps": {"matrices", "pairs", "spectra"},
    "accessor": {"metrics", "overlaps"},
    "interventions": {"matrices", "spectra"},
    "snapshot": {"matrices", "pairs", "spectra", "overlaps", "store"},
    "tracker": {"matrices", "pairs", "spectra", "snapshot", "store", "provenance"},
    "figures": {"metrics", "accessor", "store", "overlaps"},
}
MAY_IMPORT["lab"] = set(MAY_IMPORT)
MAY_IMPORT["cli"] = set(MAY_IMPORT)
MAY_IMPORT["__main__"] = {"cli"}


def module_name(path: Path) -> str:
    names = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(names).removesuffix(".__init__")


MODULES = {module_name(path): path for path in PACKAGE.rglob("*.py")}


def parts() -> list[str]:
    names = {p.stem if p.is_file() else p.name for p in PACKAGE.iterdir()}
    return sorted(names - {"__init__", "__pycache__", "py"})


def files_of(part: str) -> list[Path]:
    folder = PACKAGE / part
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [PACKAGE / f"{part}.py"]


def imports(path: Path) -> Iterator[str]:
    """Yield every module that a file imports, inside functions too, but not for types only.

    What the package itself imports for types are the names that it imports when they are used.
    """
    tree = ast.parse(path.read_text())
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if path != PACKAGE / "__init__.py"
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            submodules = {f"{node.module}.{alias.name}" for alias in node.names} & MODULES.keys()
            yield from submodules
            if len(submodules) < len(node.names):
                yield node.module


@pytest.mark.parametrize("part", [p for p in parts() if p != "py.typed"])
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


@pytest.mark.parametrize("part", ["spectra", "overlaps", "metrics", "theory"])
def test_tensor_layers_know_no_modules_files_or_plots(part: str) -> None:
    for path in files_of(part):
        used = set(imports(path))
        assert not used & {"torch.nn", "pathlib", "matplotlib", "zarr", "xarray"}, path


def test_store_knows_no_torch() -> None:
    for path in files_of("store"):
        assert not any(name.split(".")[0] == "torch" for name in imports(path)), path


def test_nothing_but_the_command_line_knows_the_committed_results() -> None:
    for path in (PACKAGE / "lab").rglob("*.py"):
        if path.parent.name != "results":
            assert not any(name.startswith("rankscope.lab.results") for name in imports(path)), path


def test_every_file_has_one_subject() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert len(path.read_text().splitlines()) <= 400, path
        assert path.stem not in {"utils", "helpers", "common", "misc"}, path
