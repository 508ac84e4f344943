"""Verdicts of the papers' claims, with their figures, numbers and runs."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rankscope.lab.judging.verdict import LEGEND, MARKS
from rankscope.view.papers import FIGURES, TITLES
from view.archived_site import address
from view.browsing import chromium, watched
from view.viewed_runs import serving

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


def test_verdicts_of_the_archive_are_listed_with_their_runs_and_figures() -> None:
    with serving(RESULTS) as server:
        answer = server.get("papers").json
        assert answer["legend"] == LEGEND
        papers = {paper["key"]: paper for paper in answer["papers"]}
        runs = {row["id"] for row in server.get("runs").json["runs"]}
        figures = papers["boix2023"]["figures"]
        assert server.get("figure", path=figures[0]).body.startswith(b"\x89PNG")
        for name in ("../../README.md", "boix2023/../../../README.md", "README.md"):
            assert server.get("figure", path=name).status == 404
    for key in TITLES:
        networks = networks_of(papers[key])
        assert networks
        for network in networks:
            assert network["verdict"] in MARKS
            assert set(network["runs"]) <= runs


def test_a_verdict_lists_the_runs_that_its_rule_read() -> None:
    with serving(RESULTS) as server:
        studies = server.get("papers").json["papers"]
        rows = {row["id"]: row for row in server.get("runs").json["runs"]}
    claims = {claim["claim"]: claim for study in studies for claim in study["claims"]}

    def runs(claim: str, network: str) -> set[tuple[str, int]]:
        parts = [one for one in claims[claim]["networks"] if one["label"] == network]
        return {(rows[run]["variant"], rows[run]["seed"]) for part in parts for run in part["runs"]}

    assert runs("B9", "vit, scale 1, K-Q") == {("scale-1", 0), ("scale-1", 1)}
    small = {("scale-0.03", 0), ("scale-0.03", 1)}
    assert runs("B9-first", "vit, scale 0.03, K-Q") == small
    vgg = runs("Y7", "vgg")  # a rule about all decays
    assert {seed for _, seed in vgg} == {3, 4} and len({decay for decay, _ in vgg}) == 5


def test_a_claim_names_the_variant_and_fits_beside_the_list() -> None:
    with (
        serving(RESULTS) as server,
        chromium() as browser,
        watched(browser, address(server)) as site,
    ):
        page = site.go(view="papers", claim="boix2023/B9")
        claim = page.locator('[data-panel="claim"]')
        assert "scale 1, K-Q" in claim.locator("h3").first.inner_text()
        assert claim.get_by_text("runs of these seeds").count() == 0
        claim.get_by_role("button", name="compare all 2").wait_for()
        widths = "box => [box.scrollWidth, box.clientWidth]"
        for width, room in (box.evaluate(widths) for box in claim.locator(".scroll").all()):
            assert width <= room
        heights = claim.locator("tbody td:first-child").evaluate_all(
            "cells => cells.map((cell) => cell.offsetHeight)"
        )
        assert max(heights) < 60  # two lines, not a word to each
        site.go(view="papers", claim="yunis2024/Y7")
        claim.get_by_text("runs of these seeds").first.wait_for()


def networks_of(paper: dict[str, Any]) -> list[dict[str, Any]]:
    return [network for claim in paper["claims"] for network in claim["networks"]]


# In a process of its own: with the checks of shapes, the import takes three times as long.
STUDY_TITLES = """
import json, sys
from rankscope.lab.catalogue import load_study

titles = {}
for key, networks in json.load(sys.stdin).items():
    study = load_study(key, "paper")
    titles[key] = [study.title, *(study.network_title(*network) for network in networks)]
print(json.dumps(titles))
"""


def test_titles_are_those_of_the_studies(tmp_path: Path) -> None:
    for key in TITLES:
        (tmp_path / key).mkdir()
        shutil.copy(RESULTS / key / "verdicts.json", tmp_path / key)
    with serving(tmp_path) as server:
        papers = {paper["key"]: paper for paper in server.get("papers").json["papers"]}
    named = {
        key: [(one["experiment"], one["network"]) for one in networks_of(papers[key])]
        for key in TITLES
    }
    command = [sys.executable, "-c", STUDY_TITLES]
    answer = subprocess.run(
        command, input=json.dumps(named), stdout=subprocess.PIPE, text=True, check=True
    )
    titles = json.loads(answer.stdout)
    for key, title in TITLES.items():
        shown = [papers[key]["titles"][network] for _, network in named[key]]
        assert titles[key] == [title, *shown]


def test_damaged_verdicts_are_left_out(tmp_path: Path) -> None:
    for number, text in enumerate(("", "[]", '{"verdicts": [1]}', "[" * 100_000)):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "verdicts.json").write_text(text)
    with serving(tmp_path) as server:
        answer = server.get("papers").json
    assert answer["papers"] == [] and "legend" not in answer
    assert "rankscope view results" in answer["hint"]


@pytest.mark.parametrize("study", ["yunis2024", "boix2023"])
def test_a_claim_has_the_figures_of_its_page(study: str) -> None:
    sections = re.split("^## ", (ROOT / f"docs/papers/{study}.md").read_text(), flags=re.M)[1:]
    shown = {section.split()[0]: re.findall(r"/([\w-]+)\.png\)", section) for section in sections}
    with serving(RESULTS) as server:
        (paper,) = (one for one in server.get("papers").json["papers"] if one["key"] == study)
        claims = {claim["claim"]: claim["figures"] for claim in paper["claims"]}
        for claim, figures in claims.items():
            key = claim.removesuffix("-first")
            assert set(shown[key]) <= {Path(name).stem for name in figures}, claim
            assert len(figures) == len(FIGURES.get(key, ())), claim  # all of them are there
            for name in figures:
                assert server.get("figure", path=name).body.startswith(b"\x89PNG")
    assert any(claims.values())
