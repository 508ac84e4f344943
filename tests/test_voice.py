"""The parts of CONTRIBUTING.md's voice that a test can hold."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
README = ROOT / "README.md"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    *(
        page
        for page in sorted((ROOT / "docs").rglob("*.md"))
        if not page.is_relative_to(ROOT / "docs/_build")
        and not page.is_relative_to(ROOT / "docs/papers/experiments")
    ),
]

# A docstring that opens with one of these only makes sense together with the name above it.
FRAGMENT = re.compile(
    r"(Of|Those|With|Within|As|Both|The same|By|What|Which|Words|For|From|Like|Besides?)\b"
)
# Names that tell how a value was obtained, not what it holds.
EMPTY_NAMES = {"found", "each", "of", "said", "kept", "every", "told", "made", "here", "there"}

CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|et al|Fig|Eq|App|Sec|vs)\.")
SENTENCE_END = re.compile(r"[.!?][*_)`\"']*\s+")
LONG = 30  # words
FEW = 2  # sentences a page that may be longer
WIDE = 200  # characters of a line outside tables


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a source file's syntax tree."""
    return tuple(ast.walk(ast.parse(path.read_text())))


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring in a source file."""
    for node in nodes(path):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text


def bound_names(path: Path) -> Iterator[tuple[int, str]]:
    """Line and name of every variable that a source file binds.

    Arguments and fields are left out: `rank(of="change")` and `Epochs(every=10)` read well.
    """
    classes = (node for node in nodes(path) if isinstance(node, ast.ClassDef))
    fields = {
        id(line.target) for c in classes for line in c.body if isinstance(line, ast.AnnAssign)
    }
    for node in nodes(path):
        if (
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Store)
            and id(node) not in fields
        ):
            yield node.lineno, node.id


def prose(page: Path) -> list[str]:
    """Paragraphs and list items of a Markdown page, without code, tables and headings."""
    text = COMMENT.sub("", CODE.sub("\n", page.read_text()))
    lines = ["" if line.lstrip().startswith(("|", "#", "<")) else line for line in text.split("\n")]
    separated = re.sub(r"^\s*([-*]|\d+\.) ", "\n\n", "\n".join(lines), flags=re.MULTILINE)
    return [LINK.sub(r"\1", " ".join(part.split())) for part in separated.split("\n\n")]


def long_sentences(page: Path) -> list[str]:
    """Sentences of more than `LONG` words."""
    parts = [ABBREVIATION.sub(r"\1", part) for part in prose(page)]
    sentences = [text for part in parts for text in SENTENCE_END.split(part)]
    return [text for text in sentences if len(text.split()) > LONG]


def report(problems: list[str], allowed: int = 0) -> None:
    """Fail with one line per problem; pytest's own comparison of the list would hide most."""
    if len(problems) > allowed:
        pytest.fail("\n".join([f"{len(problems)} problems", *problems]), pytrace=False)


def test_docstrings_open_with_a_verb_or_a_noun_phrase() -> None:
    problems = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in SOURCES
        for line, text in docstrings(path)
        if FRAGMENT.match(text)
    ]
    report(problems)


def test_variables_are_named_for_their_content() -> None:
    problems = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in SOURCES
        for line, name in bound_names(path)
        if name in EMPTY_NAMES
    ]
    report(problems)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_sentences_are_short(page: Path) -> None:
    problems = long_sentences(page)
    report(problems, allowed=FEW)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_are_wrapped(page: Path) -> None:
    problems = [
        f"{page.name}:{number}: {len(line)} characters"
        for number, line in enumerate(page.read_text().splitlines(), start=1)
        if len(line) > WIDE and not line.startswith("|")
    ]
    report(problems)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_numbers_begin_no_line(page: Path) -> None:
    """A comment at the beginning of a line is a block of HTML, which ends the paragraph above."""
    lines = enumerate(page.read_text().splitlines(), start=1)
    report([f"{page.name}:{number}" for number, line in lines if line.startswith("<!-- value")])


def test_readme_fits_on_a_page_beside_its_table_of_claims() -> None:
    text = re.sub(
        r"<!-- begin: claims -->.*<!-- end: claims -->", "", README.read_text(), flags=re.S
    )
    assert len(text.splitlines()) <= 95


def test_fragments_and_sentences_are_recognised(tmp_path: Path) -> None:
    assert FRAGMENT.match("Of any scale.")
    assert FRAGMENT.match("The same of ratios.")
    assert not FRAGMENT.match("Format a table.")
    page = tmp_path / "page.md"
    page.write_text(
        f"# A heading\n\n{'word ' * 31}ends. Short one.\n\n| {'cell ' * 40}|\n\n- {'item ' * 30}\n"
    )
    assert len(long_sentences(page)) == 1
