"""Pages of experiments, made from the docstrings of their modules when the site is built."""

import ast
import importlib.util
import re
from pathlib import Path

from docutils import nodes

PACKAGE = "rankscope.lab.papers"  # one folder per paper, one module per experiment

CLAIM = re.compile(r"\b([YBN]\d{1,2}b?(?:-VO)?)\b(?!-)")
PAGES = {"Y": "../yunis2024.md", "B": "../boix2023.md", "N": "../../findings/index.md"}
INDEX = """\
# Experiments

Each page is the docstring of the experiment's module: what the paper did, what we do, and where we
differ. Run one by its name:

```sh
rankscope run yunis2024/vgg
```
"""


def write(folder: Path) -> None:
    """Write a page for each experiment and an index of them. Unchanged files are left alone."""
    pages = {name: page(name, docstring) for name, docstring in docstrings().items()}
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.md"):
        if old.stem not in {file_name(name) for name in pages} | {"index"}:
            old.unlink()
    for name, text in pages.items():
        _write(folder / f"{file_name(name)}.md", text)
    _write(folder / "index.md", index(docstrings()))


def docstrings() -> dict[str, str]:
    """Return the docstring of each module that declares an experiment, by the experiment's name."""
    folder = Path(importlib.util.find_spec(PACKAGE).submodule_search_locations[0])
    docstring_by_name = {}
    for file in sorted(folder.glob("*/*.py")):
        tree = ast.parse(file.read_text())
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        if "experiment" in functions:
            name = f"{file.parent.name}/{file.stem.replace('_', '-')}"
            docstring_by_name[name] = ast.get_docstring(tree) or ""
    return docstring_by_name


def page(name: str, docstring: str) -> str:
    """Return the page of one experiment in Markdown."""
    summary, _, body = docstring.partition("\n")
    return f"# {name}\n\n**{_inline(summary)}**\n\n{_blocks(body.strip())}\n"


def index(docstrings: dict[str, str]) -> str:
    """Return the page that lists all experiments, with a table for each paper."""
    text = INDEX
    for paper in sorted({name.partition("/")[0] for name in docstrings}):
        text += f"\n## {paper}\n\n| experiment | |\n|---|---|\n"
        for name, docstring in docstrings.items():
            if name.startswith(f"{paper}/"):
                summary = _inline(docstring.partition("\n")[0]).replace("|", "\\|")
                text += f"| [{name.partition('/')[2]}]({file_name(name)}.md) | {summary} |\n"
    names = "\n".join(map(file_name, docstrings))
    return f"{text}\n```{{toctree}}\n:hidden:\n\n{names}\n```\n"


def heading_slug(title: str) -> str:
    """Return the anchor of a heading: `## Y4 More decay, lower rank` has #y4."""
    claim = CLAIM.match(title)
    return claim[1].lower() if claim else nodes.make_id(title)


def file_name(name: str) -> str:
    """Return the name of an experiment's page without its suffix."""
    return name.replace("/", "-")


def _blocks(text: str) -> str:
    """Turn a docstring into Markdown: indented blocks are commands, the rest is prose."""
    blocks = []
    for block in re.split(r"\n\s*\n", text):
        lines = block.split("\n")
        if all(line.startswith("    ") for line in lines):
            code = "\n".join(line[4:] for line in lines)
            blocks.append(f"```sh\n{code}\n```")
        else:
            # A scale begins a paragraph of its own: `small`: ...
            prose = re.sub(r"\n(?=`\w+`:|Cost|Expected)", "\n\n", block)
            blocks.append(_inline(prose))
    return "\n\n".join(blocks)


def _inline(text: str) -> str:
    """Escape what Markdown would read as markup, and link claims to their sections."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else CLAIM.sub(_link, part.replace("*", r"\*"))
        for part in parts
    )


def _link(claim: re.Match[str]) -> str:
    return f"[{claim[1]}]({PAGES[claim[1][0]]}#{claim[1].lower()})"


def _write(file: Path, text: str) -> None:
    if not file.exists() or file.read_text() != text:
        file.write_text(text)
