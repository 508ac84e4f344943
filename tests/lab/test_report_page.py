import json
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from lab.toy_experiments.paper2000.slow_decay import experiment
from lab.toy_runs import Decay, Log
from rankscope.lab.execution import execute
from rankscope.lab.experiment import Results
from rankscope.lab.paper import Paper
from rankscope.lab.report import Report, report_json, report_on
from rankscope.lab.report_page import MEANING, page
from rankscope.lab.stored_run import stored_runs
from rankscope.lab.verdict import Table, Verdict, judge

VOID = {"meta", "img", "br", "input"}


class Page(HTMLParser):
    """Text and attributes of a page whose tags are balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data

    def values(self, name: str) -> list[str | None]:
        return [value for _, attribute, value in self.attributes if attribute == name]


def nasty(results: Results) -> Verdict:
    """<script>alert('claim')</script>"""
    outcomes = {"<b>net": {seed: (1.0, True) for seed in results["rates/fast"]}}
    return judge(
        "P<3",
        "x < y & 'z'",
        outcomes,
        bound="<= 'one'",
        quantity="<i>share",
        evidence=["a <br> b"],
        tables=[Table(("<u>",), (("<s>",),), "<em>")],
    )


def drawn(results: Results) -> Figure:
    """A figure of x < y & 'z'.

    Second paragraph
    of two lines.
    """
    figure = Figure()
    figure.add_subplot().plot([0, 1])
    return figure


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Report]:
    """The toy paper judged experiment by experiment, with a run that failed in seed 2."""
    out = tmp_path_factory.mktemp("out")
    toy = replace(
        experiment("small"),
        runs={"rates/fast": Decay(rate=2.0), "rates/slow": Decay(fails=(2,))},
    )
    toy = replace(
        toy,
        claims={**toy.claims, "P<3": nasty},
        figures={**toy.figures, "losses-1e-32": drawn},
    )
    execute(stored_runs(toy, out), jobs=1, watcher=Log())
    paper = Paper("paper2000", "Losses & their <decay>", "small", (toy,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rankscope.lab.catalogue.PACKAGE", "lab.toy_experiments")
        needed = {toy.name: toy.seeds}
        yield report_on((paper,), out, out / "r", command="do <it> again", note="N&B", seeds=needed)


def test_everything_is_on_the_page(report: Report) -> None:
    read = Page(page(report))
    for text in (
        "paper2000, reproduced at scale small",
        "Losses & their <decay>",
        "A loss decays at two rates.",
        "the loss falls",
        "the loss rises",
        "P<3",
        "x < y & 'z'",
        "a <br> b",
        "<s>",
        "Figure 1",
        "Losses 1e-32. A figure of x < y & 'z'.",
        "Second paragraph of two lines.",
        "rates/slow of seed 2: failed (ArithmeticError: the loss is not a number)",
        "paper2000/slow-decay: 5 of 6 runs there;",
        "what stands behind it: rates/fast met in 2 of 2; rates/slow met in 2 of 2",
        "fails if it fails for one",
        "do <it> again",
        "N&B",
        "expected of all runs, whether there or not: 2 min on 2 cores",
    ):
        assert text in read.text, text
    # P1 lost a seed; P2 holds for none; P<3 holds for all
    assert (
        "3 claims:1 ✔ yes1 ✘ no0 ? undecided with all their runs1 ? waiting for runs" in read.text
    )


def second(results: Results) -> Verdict:
    """A second rule."""
    return judge("P1-late", "the loss falls", {"n": {0: (1.0, True)}}, bound="")


def test_second_rules_and_verdicts_on_the_same_claim_are_no_further_claims(tmp_path: Path) -> None:
    one = replace(
        experiment("smoke"), runs={"rates/fast": Decay()}, claims={"P1-late": second}, figures={}
    )
    two = replace(one, name="paper2000/other", claims=experiment("smoke").claims)
    third = replace(two, name="paper2000/third")
    execute([*stored_runs(one, tmp_path), *stored_runs(two, tmp_path)], jobs=1, watcher=Log())
    papers = (
        Paper("paper2000", "", "smoke", (one, two)),
        Paper("paper2000", "", "smoke", (third,)),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rankscope.lab.report.summary", lambda name: "")
        few = Page(page(report_on(papers[:1], tmp_path, tmp_path, command=""))).text
        more = Page(page(report_on(papers, tmp_path, tmp_path, command=""))).text
    none = "0 ✔ yes0 ✘ no0 ? undecided with all their runs"
    assert f"2 claims:{none}2 ? waiting for runsand 1 second rule: {none}1 ? waiting" in few
    several = "4 verdicts on 2 claims, some judged in several experiments"
    assert f"{several}:{none}4 ? waiting for runsand 1 second rule" in more


def mixed(results: Results) -> Verdict:
    """Met in some of all seeds."""
    outcomes = {"n": {seed: (1.0, seed == 0) for seed in results["rates/fast"]}}
    return judge("P4", "seeds differ", outcomes, bound="")


def test_undecided_with_all_runs_is_told_from_waiting_for_runs(tmp_path: Path) -> None:
    toy = replace(
        experiment("small"), runs={"rates/fast": Decay()}, claims={"P4": mixed}, figures={}
    )
    execute(stored_runs(toy, tmp_path), jobs=1, watcher=Log())
    paper = Paper("paper2000", "", "small", (toy,), claims=toy.claims)
    read = Page(page(report_on((paper,), tmp_path, tmp_path, command=""))).text
    assert "1 ? undecided with all their runs0 ? waiting for runs" in read
    assert "n met in 1 of 3" in read


def test_a_figure_is_as_wide_as_it_was_drawn_and_a_click_away(report: Report) -> None:
    read = Page(page(report))
    widths = [int(value) for tag, name, value in read.attributes if (tag, name) == ("img", "width")]
    assert widths == [640 * 96 // 100] * 2  # 6.4 inches, as matplotlib draws unless told otherwise
    assert [value for tag, name, value in read.attributes if (tag, name) == ("input", "type")] == [
        "checkbox"
    ] * 2


def test_ranges_over_networks_are_called_so(report: Report) -> None:
    """P1 has two networks, P2 and P<3 one each."""
    read = Page(page(report))
    labels = [label for label in read.values("data-label") if label and "range" in label]
    assert labels == ["range over seeds and networks", "range over seeds", "range over seeds"]
    assert "boundrange over seeds and networks" in read.text


def test_the_scale_of_the_paper_does_not_claim_its_data() -> None:
    assert "lm reads WikiText-2, lstm a sample of LibriSpeech" in MEANING["paper"]


def test_the_page_needs_nothing_but_itself(report: Report) -> None:
    read = Page(page(report))
    sources = read.values("src")
    assert len(sources) == 2
    assert all(source and source.startswith("data:image/") for source in sources)
    assert not {"link", "script", "iframe"} & {tag for tag, _, _ in read.attributes}
    assert "url(" not in page(report) and "@import" not in page(report)


def test_every_link_leads_somewhere(report: Report) -> None:
    read = Page(page(report))
    places = read.values("id")
    assert len(set(places)) == len(places)
    links = read.values("href")
    assert {link[1:] for link in links if link} <= set(places) and len(links) == 7
    assert "claim-paper2000/slow-decay-P1" in places


def test_the_same_runs_give_the_same_page(report: Report) -> None:
    assert page(report) == page(report)
    other = replace(report, papers=(replace(report.papers[0], runs={}),))
    assert page(other) != page(report)


def test_a_report_without_any_run(tmp_path: Path) -> None:
    toy = experiment("smoke")
    paper = Paper("paper2000", "", "smoke", (toy,), claims=toy.claims, figures=toy.figures)
    read = Page(page(report_on((paper,), tmp_path, tmp_path, command="")))
    assert "could not be judged: no seed has all the runs it needs" in read.text
    assert "figure-1 could not be drawn" in read.text and "was not run" in read.text
    assert "paper2000/slow-decay: 0 of 2 runs there" in read.text
    assert "expected" not in read.text  # nobody measured it, and nothing was spent
    assert "summed over runs" not in read.text


def test_verdicts_for_programs(report: Report) -> None:
    content = report_json(report)
    json.dumps(content, allow_nan=False)
    assert content["scale"] == "small"
    for stored, verdict in zip(content["verdicts"], report.verdicts, strict=True):
        assert stored.pop("paper") == "paper2000"
        assert stored.pop("experiment") == "paper2000/slow-decay"
        assert Verdict.from_json(stored) == verdict
