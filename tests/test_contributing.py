"""CONTRIBUTING.md's map of the code names real files."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
TREE = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)


def tree_paths() -> list[Path]:
    """Every path in the file tree; indentation says which folder it lies in."""
    match = TREE.search(TEXT)
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
    rows = [line.split("|")[2] for line in TEXT.splitlines() if re.match(r"\| \w.*\? \|", line)]
    names = re.findall(r"`([\w/]+(?:/|\.py))`", " ".join(rows))
    return [ROOT / "src" / "rankscope" / name for name in names]


def test_map_names_real_files() -> None:
    paths = [*tree_paths(), *table_paths()]
    assert len(paths) > 40
    missing = [str(path.relative_to(ROOT)) for path in paths if not path.exists()]
    assert not missing
