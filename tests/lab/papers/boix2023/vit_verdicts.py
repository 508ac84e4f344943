"""Verdicts on runs of a vision transformer that are the same in every seed."""

import xarray as xr

from rankscope.lab.judging.available_runs import AvailableRuns
from rankscope.lab.judging.rule import Rule
from rankscope.lab.judging.study import judge
from rankscope.lab.judging.verdict import Verdict, Word
from rankscope.lab.running.run_key import RunKey

EXPERIMENT = "boix2023/vit-cifar10"


def vit(init_scale: float) -> RunKey:
    return RunKey("vit", {"scale": init_scale}, experiment=EXPERIMENT)


def verdict(rule: Rule, runs: dict[RunKey, xr.Dataset], *, seeds: int = 3) -> Verdict:
    """Judge runs that are the same in every seed."""
    return judge(
        rule, AvailableRuns({key: dict.fromkeys(range(seeds), ds) for key, ds in runs.items()})
    )


def words(judged: Verdict) -> dict[str, Word]:
    return {network.label: network.word for network in judged.networks}


def both(judged: Verdict) -> tuple[Word, float | None]:
    """Return word and value, which are the same for K-Q and V-O."""
    kq, vo = judged.networks
    assert (kq.part, vo.part, kq.word, kq.value) == ("K-Q", "V-O", vo.word, vo.value)
    return kq.word, kq.value
