from dataclasses import replace

import pytest

from lab.toy_study import experiment
from rankscope.lab.archive.documents import _with_runs
from rankscope.lab.experiment import study_of
from rankscope.lab.judging.verdict import NetworkVerdict, SeedOutcome, Verdict


@pytest.mark.parametrize("seeds", [(), (SeedOutcome(0, 0.25, True),)])
@pytest.mark.parametrize("ours", [True, False])
def test_the_readme_leaves_out_our_claims_that_nothing_was_run_for(seeds, ours: bool) -> None:
    study = replace(study_of(experiment("small")), ours=ours)
    verdict = Verdict("P3", "it stays", networks=(NetworkVerdict("vit", seeds),), ours=ours)
    assert _with_runs((study, (verdict,))) == (study, () if ours and not seeds else (verdict,))
