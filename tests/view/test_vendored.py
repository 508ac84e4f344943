"""The libraries of the page: unchanged, licensed, and nothing else is loaded."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

STATIC = Path(__file__).parents[2] / "src/rankscope/view/static"
VENDOR = STATIC / "vendor"
LIBRARIES: list[dict[str, Any]] = json.loads((VENDOR / "vendor.json").read_text())
OURS = {"index.js", "vendor.json", "LICENSES.txt"}
IMPORT = re.compile(
    r"""(?:^|;)(?:import\s*(?:[\w*{}\s,]+?from\s*)?|export\s*\{[^}]*\}\s*from\s*)"([^"]+)\"""",
    re.MULTILINE,
)


def modules() -> list[Path]:
    return sorted(STATIC.rglob("*.js"))


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library["file"])
def test_libraries_are_those_of_the_package_index_but_for_paths(library: dict[str, Any]) -> None:
    content = (VENDOR / library["file"]).read_bytes()
    for name, path in library["imports"].items():
        assert path.encode() in content
        content = content.replace(path.encode(), name.encode())
    assert hashlib.sha256(content).hexdigest() == library["sha256"]


def test_every_vendored_file_is_listed_with_version_and_licence() -> None:
    files = {path.name for path in VENDOR.iterdir()} - OURS
    listed = {library["file"] for library in LIBRARIES}
    assert files == {name for name in listed if not name.startswith("../")}
    licences = (VENDOR / "LICENSES.txt").read_text()
    for library in LIBRARIES:
        assert re.fullmatch(r"\d+\.\d+\.\d+", library["version"])
        assert library["license"] in {"MIT", "Apache-2.0", "OFL-1.1"}
        assert library["package_integrity"].startswith("sha512-")
        assert library["package"] in licences or "Inter" in licences
    assert (STATIC / "font/inter.woff2").exists()


@pytest.mark.parametrize("module", modules(), ids=lambda path: path.relative_to(STATIC).as_posix())
def test_modules_import_only_their_neighbours(module: Path) -> None:
    for target in IMPORT.findall(module.read_text()):
        assert target.startswith("."), f"{target} is not relative"
        assert (module.parent / target).resolve().is_relative_to(STATIC)
        assert (module.parent / target).exists(), target


def test_imports_are_recognised() -> None:
    text = 'import{a}from"./a.js";import "./b.js";\nexport { c } from "./c.js";\nconst x = "d.js";'
    assert IMPORT.findall(text) == ["./a.js", "./b.js", "./c.js"]


def test_the_page_needs_nothing_that_its_policy_forbids() -> None:
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<style|style=|<script(?![^>]*\bsrc=)|\bon\w+=", page)
    for path in [*modules(), *STATIC.rglob("*.css"), STATIC / "index.html"]:
        if path.parent != VENDOR:
            text = path.read_text()
            assert not re.search(r"\beval\(|new Function|innerHTML|insertAdjacentHTML", text), path
            addresses = set(re.findall(r"https?://[\w.]+", text))
            assert addresses <= {"http://www.w3.org"}, path


def test_files_of_the_page_have_one_subject() -> None:
    for path in [*modules(), *STATIC.rglob("*.css")]:
        if path.parent != VENDOR:
            assert len(path.read_text().splitlines()) <= 400, path
