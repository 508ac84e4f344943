"""What `pip install` receives: the package, its type marker and its assets, nothing else."""

import tarfile
import tomllib
import zipfile
from pathlib import Path, PurePosixPath

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SUFFIXES = {".py", ".pyi", ".typed", ".css", ".html", ".js", ".json", ".svg", ".txt", ".woff2"}
DOCUMENTS = {
    "CHANGELOG.md",
    "CITATION.cff",
    "LICENSE",
    "PKG-INFO",
    "README.md",
    "SECURITY.md",
    "pyproject.toml",
    ".gitignore",  # hatchling needs it to build a wheel from the sdist
}
LARGEST = 3 * 2**19  # bytes of an archive; the laboratory and the page take most of it


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return Path(next(iter(WheelBuilder(str(ROOT)).build(directory=str(folder)))))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    return Path(next(iter(SdistBuilder(str(ROOT)).build(directory=str(folder)))))


def wheel_files(wheel: Path) -> list[PurePosixPath]:
    with zipfile.ZipFile(wheel) as archive:
        return [PurePosixPath(name) for name in archive.namelist()]


def sdist_files(sdist: Path) -> list[PurePosixPath]:
    with tarfile.open(sdist) as archive:
        names = [PurePosixPath(member.name) for member in archive if member.isfile()]
    return [PurePosixPath(*name.parts[1:]) for name in names]


def sources() -> set[PurePosixPath]:
    """Every file of the package, as a wheel names it."""
    folder = ROOT / "src"
    return {
        PurePosixPath(path.relative_to(folder).as_posix())
        for path in (folder / "rankscope").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    files = wheel_files(wheel)
    package = {file for file in files if not file.parts[0].endswith(".dist-info")}
    assert package == sources()
    assert {file.suffix for file in package} <= SUFFIXES
    assert PurePosixPath("rankscope/py.typed") in package
    assert any(file.parts[-2:] == ("licenses", "LICENSE") for file in files)


def test_sdist_holds_sources_and_documents_only(sdist: Path) -> None:
    files = sdist_files(sdist)
    package = {file.relative_to("src") for file in files if file.parts[0] == "src"}
    assert package == sources()
    assert {str(file) for file in files if file.parts[0] != "src"} == DOCUMENTS


def test_archives_are_small(wheel: Path, sdist: Path) -> None:
    assert wheel.stat().st_size < LARGEST
    assert sdist.stat().st_size < LARGEST


def test_command_line_is_installed(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        entry_points = next(
            name for name in archive.namelist() if name.endswith("entry_points.txt")
        )
        assert b"rankscope = rankscope.cli:main" in archive.read(entry_points)


@pytest.mark.parametrize(("package", "unsafe"), [("torch", "2.9.1"), ("numcodecs", "0.16.5")])
def test_versions_that_execute_files_are_excluded(package: str, unsafe: str) -> None:
    requirements = [Requirement(text) for text in PROJECT["dependencies"]]
    allowed = next(item.specifier for item in requirements if item.name == package)
    assert not allowed.contains(unsafe)


def test_classifiers_name_the_supported_pythons() -> None:
    supported = SpecifierSet(PROJECT["requires-python"])
    prefix = "Programming Language :: Python :: 3."
    minors = [int(text.removeprefix(prefix)) for text in PROJECT["classifiers"] if prefix in text]
    assert minors == [11, 12, 13]
    assert all(supported.contains(f"3.{minor}") for minor in minors)


def test_extras_refer_to_existing_extras() -> None:
    extras = PROJECT["optional-dependencies"]
    requirements = [Requirement(text) for texts in extras.values() for text in texts]
    named = {name for item in requirements if item.name == "rankscope" for name in item.extras}
    assert named <= set(extras)
