from dataclasses import replace

from rankscope.lab.papers.boix2023 import study, toy_full
from rankscope.lab.papers.boix2023.claims.full_matrices import B6, B6_FIRST


def test_long_runs_repeat_both_flows_of_the_gaussian_teacher() -> None:
    runs = {key.name: run for key, run in toy_full.experiment("paper").runs.items()}
    for name, until in (("gaussian-1e-8", 20.0), ("gaussian-1e-32", 30.0)):
        assert runs[f"{name}/long"] == replace(runs[f"{name}/full"], until=until)


def test_the_first_rule_of_b6_reads_no_long_run() -> None:
    needed, first = (
        {key.name for key in rule.needs(study("paper").keys)} for rule in (B6, B6_FIRST)
    )
    assert needed - first == {"gaussian-1e-32/long", "gaussian-1e-8/long"}
    assert first == {"gaussian-1e-32/full", "gaussian-1e-8/full", "aligned-1e-4/full"}
