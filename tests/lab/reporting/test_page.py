from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from lab.toy_runs import Log
from lab.toy_study import FALLS, RISES, experiment
from rankscope.lab.commands import make_report
from rankscope.lab.experiment import study_of
from rankscope.lab.reporting.page import page, write_page
from rankscope.lab.reporting.terminal import OWN_CLAIMS
from rankscope.lab.running.processes import execute
from rankscope.lab.running.stored_run import stored_runs

STUDY = replace(
    study_of(experiment("small"), "Losses & their <decay>"),
    claims=(FALLS, replace(FALLS, claim="P1-first", headline="P1"), replace(RISES, ours=True)),
    highlights=("figure-1",),
    network_titles={("", "fast"): "Fast <one>"},
)
VOID = {"meta", "img", "br", "input"}


class Outline(HTMLParser):
    """Checks nesting; collects ids, links and the order of headings, images and details."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.order: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if "id" in values:
            assert values["id"] not in self.ids, values["id"]
            self.ids.add(values["id"] or "")
        if tag == "a":
            self.links.add((values["href"] or "").removeprefix("#"))
        if tag in {"h1", "h2", "img", "details"}:
            self.order.append(tag)
        if tag == "img":
            self.sources.append(values["src"] or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    out = tmp_path_factory.mktemp("runs")
    execute(stored_runs(experiment("small"), out)[:5], jobs=1, watcher=Log())
    report = make_report((STUDY,), out, out / "report", command="rankscope reproduce")
    yield page(replace(report, seen=("Two & three.",)))


def test_the_page_is_well_formed_and_links_lead_somewhere(html: str) -> None:
    outline = Outline()
    outline.feed(html)
    assert not outline.open and outline.links <= outline.ids


def test_pictures_come_first_then_marks_then_folded_details(html: str) -> None:
    outline = Outline()
    outline.feed(html)
    assert outline.order[:3] == ["h1", "img", "h2"]
    assert "details" not in outline.order[: outline.order.index("h2") + 1]
    assert html.index("Two &amp; three.") < html.index("<img")


def test_each_picture_is_in_the_page_once(html: str) -> None:
    outline = Outline()
    outline.feed(html)
    assert outline.sources and len(set(outline.sources)) == len(outline.sources)
    assert "The figure is above." in html


def test_the_page_needs_nothing_but_itself(html: str) -> None:
    outline = Outline()
    outline.feed(html)
    assert all(source.startswith("data:image/") for source in outline.sources)
    assert "http" not in html.replace("http-equiv", "").split("<body>")[0]


def test_text_is_escaped_and_networks_have_their_titles(html: str) -> None:
    assert "Losses &amp; their &lt;decay&gt;" in html and "<decay>" not in html
    assert "Fast &lt;one&gt; <b class='green' title='holds (3 seeds)'>✔</b>" in html


def test_claims_of_our_own_stand_in_a_table_of_their_own(html: str) -> None:
    papers, own = html[: html.index("id='details'")].split(OWN_CLAIMS)
    assert ">P1<" in papers and ">P2<" not in papers and ">P2<" in own


def test_missing_runs_are_named(html: str) -> None:
    assert "seed 2, at rate 1 was not run" in html
    assert "slow <b class='green' title='holds so far (2 seeds)'>○</b>" in html


def test_the_same_runs_give_the_same_page(tmp_path: Path) -> None:
    execute(stored_runs(experiment("smoke"), tmp_path), jobs=1, watcher=Log())
    study = replace(STUDY, scale="smoke", experiments=(experiment("smoke"),))
    first, second = (
        write_page(make_report((study,), tmp_path, tmp_path / name, command="c"), tmp_path / name)
        for name in ("one", "two")
    )
    assert first.read_bytes() == second.read_bytes()
