import json
from functools import partial
from pathlib import Path

import pytest

from lab.toy_experiments.paper2000.slow_decay import losses_fall, losses_rise
from rankscope.lab.claims.networks import CLAIMS
from rankscope.lab.network_figures import figure_7
from rankscope.lab.results import rules
from rankscope.lab.results.rules import DRAWING, changed_rules, code_hash, read_rules, write_rules

REAL = rules._source


def rewrite(
    monkeypatch: pytest.MonkeyPatch, module: str, before: str, after: str, *, times: int = -1
) -> None:
    """As if the source of a module read otherwise."""
    assert before in REAL(module)

    def source(name: str) -> str:
        return REAL(name).replace(before, after, times) if name == module else REAL(name)

    monkeypatch.setattr(rules, "_source", source)


TOY = "lab.toy_experiments.paper2000.slow_decay"


@pytest.mark.parametrize(
    ("module", "before", "after", "same"),
    [
        (TOY, "part < 0.2", "part < 0.3", False),
        (TOY, '"the loss falls"', '"the loss fell"', False),
        (TOY, "    kept = {", "    # a remark\n\n    kept = {", True),
        (TOY, "The loss falls to less than a fifth at both rates.", "Something else.", True),
        ("rankscope.lab.verdict", "LEAST_SEEDS = 3", "LEAST_SEEDS = 1", False),
        ("rankscope.lab.experiment", 'TAKEN = {"figures"', 'TAKEN = {"taken", "figures"', True),
        ("rankscope.lab.reading", "LOSS_SHARE = 0.95", "LOSS_SHARE = 0.9", True),  # is not read
    ],
)
def test_what_counts_as_another_rule(
    monkeypatch: pytest.MonkeyPatch, module: str, before: str, after: str, same: bool
) -> None:
    fixed = code_hash(losses_fall)
    rewrite(monkeypatch, module, before, after)
    assert (code_hash(losses_fall) == fixed) == same


def test_what_claims_read_is_part_of_their_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = {key: code_hash(claim) for key, claim in CLAIMS.items()}
    rewrite(monkeypatch, "rankscope.lab.reading", "LOSS_SHARE = 0.95", "LOSS_SHARE = 0.9")
    assert all(code_hash(claim) != fixed[key] for key, claim in CLAIMS.items())
    rewrite(monkeypatch, "rankscope.lab.claims.filters", "SHARE = 0.8", "SHARE = 0.7")
    assert [key for key, claim in CLAIMS.items() if code_hash(claim) != fixed[key]] == ["Y11"]


def test_two_claims_of_a_module_have_two_rules() -> None:
    assert code_hash(losses_fall) != code_hash(losses_rise)
    assert len({code_hash(claim) for claim in CLAIMS.values()}) == len(CLAIMS)
    halves = [partial(losses_fall, bound=bound) for bound in (0.2, 0.3, 0.3)]
    one, two, three = map(code_hash, halves)
    assert one != two == three


def test_a_change_is_kept_with_its_reason(tmp_path: Path) -> None:
    write_rules(tmp_path, {"paper2000": {"P1": "a", "P2": "b"}})
    assert changed_rules(tmp_path, {"paper2000": {"P1": "a", "P2": "b", "P3": "c"}}) == []
    now = {"paper2000": {"P1": "x", "P3": "c"}}
    assert changed_rules(tmp_path, now) == [("paper2000", "P1"), ("paper2000", "P2")]
    stored = json.loads((tmp_path / "rules.json").read_text())
    stored["claims"]["paper2000"]["P1"]["since"] = "2000-01-01"
    (tmp_path / "rules.json").write_text(json.dumps(stored))
    before = {"of": "paper2000", "claim": "P1", "holds": "no", "rule": "a"}
    write_rules(tmp_path, now, reason="P1 asked for too much; P2 is gone", replaced=[before])
    found = read_rules(tmp_path)
    assert found["claims"]["paper2000"]["P1"]["sha256"] == "x"
    assert found["claims"]["paper2000"]["P1"]["since"] != "2000-01-01"
    (entry,) = found["history"]
    assert entry["reason"] == "P1 asked for too much; P2 is gone"
    assert entry["replaced"] == [before]
    assert changed_rules(tmp_path, now) == []


def test_the_code_of_a_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it imports from the figures counts, and others of them do not."""
    fixed = code_hash(figure_7, of=DRAWING)
    rewrite(monkeypatch, "rankscope.figures.style", "FIGURE_DPI = 160", "FIGURE_DPI = 80")
    assert code_hash(figure_7, of=DRAWING) != fixed
    assert code_hash(CLAIMS["Y1"]) == code_hash(CLAIMS["Y1"], of=DRAWING)
    module = "rankscope.figures.perturbation"
    rewrite(monkeypatch, module, "def ", "def changed_", times=1)
    assert code_hash(figure_7, of=DRAWING) == fixed
