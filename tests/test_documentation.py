"""Code blocks of README and docs run, top to bottom, in an empty folder; links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rankscope.cli import app
from rankscope.lab import catalogue

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MADE = {DOCS / "_build", DOCS / "papers/experiments"}  # by building the site
PAGES = [
    ROOT / "results/README.md",
    ROOT / "README.md",
    *(page for page in sorted(DOCS.rglob("*.md")) if MADE.isdisjoint(page.parents)),
]
FIRST_PAGES = [ROOT / "README.md", DOCS / "getting-started.md"]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
LINKED = [*PAGES, CONTRIBUTING]
BLOCK = re.compile(r"^(`{3,})([^\n]*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
TREE = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(<?([^)>\s]+)")  # [text](target "title") and ![text](target)


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    return [body for _, language, body in BLOCK.findall(page.read_text()) if language in languages]


# Lightning 2.6 asks torch for a name that has a new one.
@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")
@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").symlink_to(ROOT / "results")  # as in a clone
    namespace: dict[str, object] = {"__name__": "__main__"}
    for body in blocks(page, "python"):
        exec(compile(body, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", FIRST_PAGES, ids=page_name)
def test_first_blocks_run_again(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        exec(compile(blocks(page, "python")[0], str(page), "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_extras_are_installed_from_the_clone(page: Path) -> None:
    """No index has the package yet."""
    assert not re.search(r"pip install ['\"]?rankscope", page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_blocks_are_of_a_kind_that_is_checked(page: Path) -> None:
    kinds = {language for _, language, _ in BLOCK.findall(page.read_text())}
    directives = {kind for kind in kinds if kind.startswith("{")}  # Sphinx checks those
    assert kinds - directives <= {"python", "sh", "text"}, f"{page.name} has unchecked blocks"


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_shell_blocks_name_real_commands(page: Path) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in "\n".join(blocks(page, "sh")).splitlines():
        for command in line.split("#")[0].split("&&"):
            word, _, rest = command.strip().partition(" ")
            if word == "make":
                assert set(rest.split()) <= set(targets), line
            elif word == "rankscope":
                # The command and each of its options exist; running it is the command's own test.
                result = CliRunner().invoke(app, [rest.split()[0], "--help"])
                assert result.exit_code == 0, line
                for option in re.findall(r"--[\w-]+", rest):
                    assert option in result.output or option in {"--help", "--version"}, line
            else:
                assert word in {"", "git", "pip", "cd", "python"}, line


@pytest.mark.parametrize("page", LINKED, ids=page_name)
def test_relative_links_and_images_exist(page: Path) -> None:
    targets = [target.split("#")[0] for target in LINK.findall(BLOCK.sub("", page.read_text()))]
    paths = {
        page.parent / target for target in targets if target and not re.match(r"[a-z]+:", target)
    }
    missing = [path for path in paths if not path.exists() and MADE.isdisjoint(path.parents)]
    assert not missing, f"{page_name(page)} links to {missing}, which do not exist"


def tree_paths() -> list[Path]:
    """Every path in the file tree; indentation says which folder it lies in."""
    match = TREE.search(CONTRIBUTING.read_text())
    assert match is not None
    folders: dict[int, Path] = {}
    paths = []
    for line in match[1].splitlines():
        depth = len(line) - len(line.lstrip())
        parent = folders.get(depth - 2, ROOT)
        names = [
            word for word in line.split("  ")[depth // 2].split() if word[-1] == "/" or "." in word
        ]
        paths += [parent / name for name in names]
        folders[depth] = paths[-1]
    return paths


def table_paths() -> list[Path]:
    """Every path in the table of questions."""
    rows = [
        line.split("|")[2]
        for line in CONTRIBUTING.read_text().splitlines()
        if re.match(r"\| \w.*\? \|", line)
    ]
    names = re.findall(r"`([\w/]+(?:/|\.py))`", " ".join(rows))
    return [ROOT / "src" / "rankscope" / name for name in names]


def test_map_of_the_code_names_real_files() -> None:
    paths = [*tree_paths(), *table_paths()]
    assert len(paths) > 40
    missing = [str(path.relative_to(ROOT)) for path in paths if not path.exists()]
    assert not missing


def test_plain_docstrings_become_restructured_text(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(DOCS)
    import plain_docstrings

    lines = plain_docstrings.convert(
        ["Return |z| * `W`s.", "", "top: how many", "    to keep.", ""]
    )
    assert lines == [r"Return \|z\| \* \ ``W``\ s.", "", "``top``", "   how many to keep.", ""]


def test_every_experiment_has_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("docutils")
    monkeypatch.syspath_prepend(DOCS)
    import experiment_pages

    names = experiment_pages.docstrings().keys()
    studies = catalogue.load_studies("small")
    assert names == {experiment.name for study in studies for experiment in study.experiments}
    vgg = experiment_pages.page("yunis2024/vgg", "Title.\n\nDecay lowers ranks (Y4).\n\n    run it")
    assert "[Y4](../yunis2024.md#y4)" in vgg and "```sh\nrun it\n```" in vgg


@pytest.mark.slow
def test_site_is_built_without_warnings(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    result = subprocess.run(
        [*command, str(DOCS), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "papers/experiments/yunis2024-vgg.html").exists()
