"""All claims of yunis2024 together."""

import pytest

from lab.claims.training_runs import Absent, PairCourse, course, flat, seeds, training_run
from rankscope.lab.claims.networks import CLAIMS, GROK, LM, LSTM, MLP, UNET, VGG
from rankscope.lab.experiment import MissingRun


def test_the_claims_are_the_papers_and_each_is_judged_somewhere() -> None:
    numbered = [key for key in CLAIMS if key[1:].isdigit()]
    assert numbered == [f"Y{n}" for n in range(1, 13)]
    assert {*CLAIMS} - {*numbered} == {"Y3b", "Y3-median", "Y7-uncollapsed"}
    assert {*VGG, *UNET, *LSTM, *LM, *MLP, *GROK} == {*CLAIMS}


@pytest.mark.parametrize("key", CLAIMS)
def test_a_claim_gives_its_key_and_a_sentence(key: str) -> None:
    line = (CLAIMS[key].__doc__ or "").partition("\n")[0]
    assert line.startswith(key)
    assert line.endswith(".")
    assert "Yes" in (CLAIMS[key].__doc__ or "")
    run = training_run({"w": flat(9, [9, 9])}, [PairCourse("w", "v", course([0.1, 0.1]))])
    names = ["vgg/decay-0.0001", "lm/decay-0.1"]
    judged = CLAIMS[key]({name: seeds(run) for name in names})
    assert judged.claim == key
    assert judged.to_json()["claim"] == key
    assert CLAIMS[key]({}).holds == "undecided"


@pytest.mark.parametrize("key", ["Y1", "Y2", "Y3", "Y3b", "Y11", "Y12"])
def test_claims_on_the_base_decay_ask_for_no_other_run(key: str) -> None:
    run = training_run({"w": flat(9, [9, 9])}, [PairCourse("w", "v", course([0.1, 0.1]))])
    assert CLAIMS[key]({"vgg/decay-0.0001": {0: run}, "vgg/decay-0.1": Absent()}).claim == key


@pytest.mark.parametrize("key", ["Y4", "Y5"])
def test_claims_on_decay_need_every_run(key: str) -> None:
    run = training_run({"w": flat(9, [9, 9])}, [PairCourse("w", "v", course([0.1, 0.1]))])
    with pytest.raises(MissingRun):
        CLAIMS[key]({"vgg/decay-0.0001": {0: run}, "vgg/decay-0.1": Absent()})
