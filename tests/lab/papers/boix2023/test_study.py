import subprocess
import sys

import pytest

from rankscope.lab.experiment import SCALES, Scale
from rankscope.lab.papers.boix2023 import study

CLAIMS = [
    "B1",
    "B1-saturated",
    "B2",
    "B2-clear",
    "B3",
    "B3-clear",
    "B4",
    "B5",
    "B5-limit",
    "B6",
    "B7",
    "B8",
    "B8-settled",
    "B9",
]


@pytest.mark.parametrize("scale", SCALES)
def test_claims_stand_in_order_with_second_rules_after_their_first(scale: Scale) -> None:
    assert [rule.claim for rule in study(scale).claims] == CLAIMS


def test_every_claim_finds_runs_at_paper_and_small() -> None:
    for scale in ("paper", "small"):
        keys = study(scale).keys
        for rule in study(scale).claims:
            assert rule.needs(keys), rule.claim


def test_claims_are_read_by_the_experiments_they_speak_of() -> None:
    keys = study("paper").keys
    experiments = {
        rule.claim: {key.experiment.removeprefix("boix2023/") for key in rule.needs(keys)}
        for rule in study("paper").claims
    }
    stages, vits = {"toy-diag", "diag-transformer"}, {"vit-cifar10", "vit-cifar100"}
    for claim in CLAIMS[:6]:
        assert experiments[claim] == stages
    assert experiments["B4"] == {"toy-diag"}
    assert experiments["B5"] == experiments["B5-limit"] == {"assumptions"}
    assert experiments["B6"] == {"toy-full"}
    assert experiments["B7"] == experiments["B9"] == vits | {"vit-imagenet", "vit-variants"}
    assert experiments["B8"] == experiments["B8-settled"] == vits


def test_claims_and_experiments_import_no_plotting() -> None:
    modules = ["assumptions", "full_matrices", "stages", "vits"]
    imports = "; ".join(f"import rankscope.lab.papers.boix2023.claims.{name}" for name in modules)
    code = f"{imports}; import rankscope.lab.papers.boix2023.vit_cifar10, sys"
    check = "assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", f"{code}; {check}"], check=True)
