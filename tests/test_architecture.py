"""The arrows of the design: which part of the package may import which."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "rankscope"

MAY_IMPORT = {
    "matrices": set(),
    "metrics": set(),
    "store": set(),
    "provenance": set(),
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


def parts() -> list[str]:
    names = {p.stem if p.is_file() else p.name for p in PACKAGE.iterdir()}
    return sorted(names - {"__init__", "__pycache__", "py"})


def files_of(part: str) -> list[Path]:
    folder = PACKAGE / part
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [PACKAGE / f"{part}.py"]


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield node.module
            if node.module == "rankscope":
                yield from (f"rankscope.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("part", [p for p in parts() if p != "py.typed"])
def test_imports_point_one_way(part: str) -> None:
    for path in files_of(part):
        used = {name.split(".")[1] for name in imports(path) if name.startswith("rankscope.")}
        wrong = used - MAY_IMPORT[part] - {part, "__version__"}
        assert not wrong, f"{path.name} imports {wrong}"


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
