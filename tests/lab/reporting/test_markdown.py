from dataclasses import replace

import xarray as xr

from lab.toy_study import experiment
from rankscope.lab.experiment import Study, study_of
from rankscope.lab.judging.verdict import LEGEND, Missing, NetworkVerdict, SeedOutcome, Verdict
from rankscope.lab.reporting.markdown import (
    NO_BREAK,
    claim_block,
    claims_table,
    fill,
    marks,
    outcome_table,
    table,
)
from rankscope.lab.reporting.terminal import OWN_CLAIMS

STUDY = study_of(experiment("small"))
OUTCOMES = tuple(SeedOutcome(seed, 0.25, True) for seed in range(3))


def page(study: Study, _: Verdict) -> str:
    return f"docs/{study.name}.md"


def network(part: str = "", *, scale: float = 1.0, seeds=OUTCOMES) -> NetworkVerdict:
    return NetworkVerdict("vit", seeds, variant={"scale": scale}, part=part)


def test_cells_never_break_a_table() -> None:
    assert table(("a", "b"), [("x|y", "1\n2")]) == "| a | b |\n| --- | --- |\n| x\\|y | 1 2 |"


def test_variants_stand_side_by_side_and_parts_apart() -> None:
    networks = [network(p, scale=s) for p in ("K-Q", "V-O") for s in (1.0, 0.1)]
    assert marks(STUDY, networks) == f"vit, K-Q{NO_BREAK}✔✔ · vit, V-O{NO_BREAK}✔✔"


def test_a_mark_never_begins_a_line() -> None:
    cell = claims_table(
        [(STUDY, [Verdict("P1", "it falls", networks=(network("V-O"),))])], page=page
    )
    assert f"| vit, V-O{NO_BREAK}✔ |" in cell and "V-O ✔" not in cell


def test_the_claims_table_has_no_first_rules_but_links_and_a_legend() -> None:
    verdicts = [
        Verdict("P1", "it falls", networks=(network(),)),
        Verdict("P1-first", "it falls", headline="P1"),
    ]
    text = claims_table([(STUDY, verdicts)], page=page)
    assert f"| P1 it falls | vit{NO_BREAK}✔ | [evidence](docs/paper2000/slow-decay.md#p1) |" in text
    assert "P1-first" not in text and text.endswith(LEGEND)
    assert OWN_CLAIMS not in text


def test_claims_of_our_own_stand_in_a_table_of_their_own() -> None:
    verdicts = [Verdict("P1", "it falls", ours=True), Verdict("P2", "it rises")]
    papers, own = claims_table([(STUDY, verdicts)], page=page).split(OWN_CLAIMS)
    assert "P2 it rises" in papers and "P1" not in papers
    assert "P1 it falls" in own and "P2" not in own and own.endswith(LEGEND)


def test_a_study_of_our_own_has_a_table_under_its_title() -> None:
    own = replace(STUDY, title="Beyond", ours=True)
    verdicts = [Verdict("P3", "it stays", ours=True)]
    papers, beyond = claims_table(
        [(STUDY, [Verdict("P1", "it falls")]), (own, verdicts)], page=page
    ).split("Beyond:")
    assert "P1 it falls" in papers and "P3" not in papers and OWN_CLAIMS not in papers
    assert "P3 it stays" in beyond
    assert claims_table([(own, verdicts)], page=page).startswith("Beyond:")


def test_a_claims_block_has_every_rule_and_what_is_missing() -> None:
    lack = Missing("p/e", "b", ("b",), (0,), "was not run")
    first = Verdict("P1", "it falls", "< 1", "share", (network("K-Q"),), (lack,))
    old = Verdict("P1-first", "it falls", "< 2", "share", headline="P1")
    text = claim_block(STUDY, [replace(first, reason="Two is too much."), old])
    assert "**The rule (P1):** share. Bound: < 1.\n" in text
    assert "**The first rule, replaced (P1-first):** share. Bound: < 2. Two is too much." in text
    assert "| vit, scale 1, K-Q | ✔ holds (3 seeds) | 0.25 | 0, 1, 2 |" in text
    assert "\n\nB, seed 0 was not run." in text


def test_outcomes_are_ranges_over_seeds() -> None:
    def trained(loss: float) -> xr.Dataset:
        variables = {
            "training_loss": ("step", [9.0, loss]),
            "validation_accuracy": ("step", [0, 1]),
        }
        return xr.Dataset(variables, coords={"step": [0, 1000]})

    text = outcome_table({"net": {0: trained(0.1), 1: trained(0.3)}, "flow": {0: xr.Dataset()}})
    assert "| net | 0, 1 | 1,000 | 0.1 to 0.3 | - | 100.0% |" in text and "flow" not in text


def test_blocks_are_filled_between_their_markers_only() -> None:
    text = "a\n<!-- begin: x -->\nold\n<!-- end: x -->\nb <!-- begin: y --><!-- end: y -->"
    filled = fill(text, {"x": "new \\1"})
    assert filled == text.replace("old", "new \\1")
    assert fill(filled, {"x": "new \\1"}) == filled
