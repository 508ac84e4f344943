"""Parts of a report as HTML: the document, tables, lists, pictures."""

from base64 import b64encode
from collections.abc import Iterable
from html import escape

from rankscope.lab.judging.verdict import Table
from rankscope.lab.reporting.numbers import cell_text
from rankscope.lab.reporting.page_style import STYLE


def document(title: str, body: Iterable[str]) -> str:
    """Return a whole page that needs nothing but itself; empty parts are left out."""
    return (
        "<!DOCTYPE html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(filter(None, body))
        + "\n</body>\n</html>\n"
    )


def table_html(table: Table) -> str:
    """Return a table, with its title as caption."""
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell_text(cell))}</td>" for cell in row) + "</tr>"
        for row in table.rows
    )
    caption = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    return (
        f"<div class='scroll'><table>{caption}<thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def list_html(lines: Iterable[str], style: str = "") -> str:
    """Return a list of sentences; "" if there are none."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul class='{style}'>{items}</ul>" if items else ""


def image_html(content: bytes, kind: str, title: str) -> str:
    """Return a picture that is part of the page. kind: "png" or "svg+xml"."""
    source = f"data:image/{kind};base64,{b64encode(content).decode()}"
    return f"<img alt='{escape(title)}' loading='lazy' src='{source}'>"
