from dataclasses import replace

import pytest

from lab.results.toy_results import seeds, verdict
from rankscope.lab.catalogue import paper_names
from rankscope.lab.papers import boix2023, yunis2024
from rankscope.lab.results.ledger import PROGRAM
from rankscope.lab.results.phrases import SAYS, measured, outcome, says, summary
from rankscope.lab.verdict import Outcome, judge


def test_what_was_measured() -> None:
    one = verdict("Y1", vgg=seeds(0.5, 0.25, 0.25))
    assert measured(one) == "width: vgg 0.25 to 0.5; bound < 1"
    both = verdict("Y1", vgg=seeds(0.5, 0.5, 0.5), lm=seeds(2, 3, 4))
    assert measured(both) == "width: vgg 0.5; lm 2 to 4; bound < 1"
    assert measured(verdict("Y1")) == "nothing that it speaks of was run"


def test_values_of_another_kind_are_not_shown() -> None:
    found = judge("Y7", "", {"vgg": seeds(0.5), "lm": seeds(2)}, bound="", apart=("vgg",))
    assert measured(found) == "lm 2"


def test_what_was_not_run_is_named_beside_what_was() -> None:
    part = "lm/decay-0, decay-1 of seed 1"
    lost = (f"without {part}: was not run", "without unet: was not run", "without vgg: failed", "e")
    assert measured(replace(verdict("Y1", vgg=seeds(0.5)), evidence=lost)) == (
        f"width: vgg 0.5; bound < 1; not there yet: unet, vgg; {part}"
    )
    assert measured(replace(verdict("Y1"), evidence=lost[:1])) == f"not there yet: {part}"
    assert measured(replace(verdict("Y1"), evidence=lost[1:])) == "not there yet: unet, vgg"


@pytest.mark.parametrize(
    ("networks", "said"),
    [
        ({"vgg": seeds(0.5, 0.5, 0.5)}, "yes"),
        ({"vgg": seeds(0.5, 0.5, 0.5), "lm": seeds(0.5, 0.5, 0.5)}, "yes"),
        ({"vgg": seeds(0.5, 0.5, 0.5), "lm": seeds(2, 2, 2)}, "no: vgg yes; lm no"),
        ({"vgg": seeds(0.5)}, "undecided: vgg met in 1 of 1"),
        (
            {"vgg": seeds(2), "lm": seeds(0.5, 0.5, 2)},
            "undecided: vgg met in 0 of 1; lm met in 2 of 3",
        ),
        ({"vgg": {0: (None, None)}}, "undecided: vgg cannot tell in 1"),
        (
            {"vgg": {0: (0.5, True), 1: (1.0, None)}},
            "undecided: vgg met in 1 of 1, cannot tell in 1",
        ),
    ],
)
def test_what_follows(networks: dict[str, dict[int, Outcome]], said: str) -> None:
    assert outcome(verdict("Y1", **networks)) == said


def test_every_claim_of_the_papers_is_put_in_a_phrase() -> None:
    assert set(paper_names()) == {"boix2023", "yunis2024"}
    due = {batch.experiment for batch in PROGRAM}
    claims = {
        claim for of in boix2023.paper("paper").experiments if of.name in due for claim in of.claims
    }
    claims |= yunis2024.paper("paper").claims.keys()
    assert {claim.partition("-")[0] for claim in claims} == SAYS.keys()
    assert says("Y3-median") == f"{SAYS['Y3']} (second rule)" and says("P1") == ""


def test_how_many_claims_hold() -> None:
    verdicts = [
        verdict("Y1", vgg=seeds(0.5, 0.5, 0.5)),
        verdict("Y2", vgg=seeds(2, 2, 2)),
        verdict("Y3", vgg=seeds(0.5, 2, 0.5)),
        verdict("Y4", vgg=seeds(0.5, 0.5, 0.5), lm=seeds(0.5)),
        verdict("Y5", vgg=seeds(0.5, 0.5, 0.5), lm=seeds(2)),
        verdict("Y6"),
        None,
    ]
    assert summary(verdicts) == (
        "7 claims: 1 yes, 1 no, 1 undecided with all their runs, "
        "4 undecided until there are more runs (of these 1 met by every seed that can tell)."
    )
