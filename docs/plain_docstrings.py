"""Docstrings in plain text to reStructuredText, for the API reference.

Docstrings here are written to be read in an editor. They have paragraphs, indented code, lists that
begin with "- ", options as `name: meaning`, and `code` between single backticks. Any other sign,
such as the bars of |z| or the star of u * v, is meant as it stands.
"""

import re

from sphinx.application import Sphinx

OPTION = re.compile(r"^(\*{0,2}[A-Za-z_]\w*(?:, \*{0,2}[A-Za-z_]\w*)*): +(.*)$")


def process(
    app: Sphinx, kind: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Rewrite the lines of one docstring in place, as autodoc asks for."""
    if name.startswith("rankscope"):
        lines[:] = convert(lines)


def process_signature(
    app: Sphinx,
    kind: str,
    name: str,
    thing: object,
    options: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None] | None:
    """Write `...` for defaults that Sphinx cannot parse, such as <factory>."""
    if signature is None or not name.startswith("rankscope"):
        return None
    return re.sub(r"= <[^<>]+>", "= ...", signature), returns


def convert(lines: list[str]) -> list[str]:
    """Return a docstring as reStructuredText, line by line."""
    answer: list[str] = []
    for block in _blocks(lines):
        if all(line.startswith("    ") for line in block):
            answer += ["::", "", *block, ""]
        elif block[0].startswith("- ") or any(line.startswith("- ") for line in block):
            answer += _prose_with_list(block)
        elif OPTION.match(block[0]):
            answer += _options(block)
        else:
            answer += [escape(" ".join(line.strip() for line in block)), ""]
    return answer


def escape(text: str) -> str:
    """Escape what would be markup, and set `code` as code."""
    parts = re.split(r"`+([^`]+)`+", text)
    pieces = []
    for index, part in enumerate(parts):
        if index % 2:
            pieces.append(f"\\ ``{part}``\\ ")
        else:
            pieces.append(re.sub(r"([\\*_|])", r"\\\1", part))
    return "".join(pieces)


def _blocks(lines: list[str]) -> list[list[str]]:
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            blocks[-1].append(line.rstrip())
        elif blocks[-1]:
            blocks.append([])
    return [block for block in blocks if block]


def _prose_with_list(block: list[str]) -> list[str]:
    items: list[str] = []
    prose: list[str] = []
    for line in block:
        if line.startswith("- "):
            items.append(line[2:])
        elif items:
            items[-1] += f" {line.strip()}"
        else:
            prose.append(line.strip())
    answer = [escape(" ".join(prose)), ""] if prose else []
    return [*answer, *(f"- {escape(item)}" for item in items), ""]


def _options(block: list[str]) -> list[str]:
    """Return `name: meaning` as a list of definitions."""
    answer: list[str] = []
    for line in block:
        option = OPTION.match(line)
        if option:
            names = ", ".join(f"``{name}``" for name in option[1].split(", "))
            answer += [names, f"   {escape(option[2])}"]
        else:
            answer[-1] += f" {escape(line.strip())}"
    return [*answer, ""]
