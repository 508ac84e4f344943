from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from rankscope.lab.data.tokens import Tokens
from rankscope.lab.models.transformer import TransformerConfig
from rankscope.lab.tasks.language import LanguageModelling, spread, windows
from rankscope.lab.training.task import Machine

MODEL = TransformerConfig(layers=1, width=8, heads=2, context=4)


@dataclass(frozen=True)
class Counting:
    """0, 1, ..., 10, 0, 1, ... as text."""

    length: int = 83

    def build(self, *, folder: Path | None) -> Tokens:
        text = (torch.arange(self.length) % 11).int()
        return Tokens(text, text[:30], 11)


def test_windows_follow_each_other_without_overlap() -> None:
    rows = windows(torch.arange(11), 3)
    assert rows.tolist() == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    assert windows(torch.arange(4), 3).tolist() == [[0, 1, 2, 3]]
    with pytest.raises(ValueError, match=r"window of 3 tokens and the next one .* got 3"):
        windows(torch.arange(3), 3)


def test_a_problem_draws_windows_and_predicts_their_next_tokens() -> None:
    before = torch.get_rng_state()
    problem = LanguageModelling(Counting(), MODEL).build(Machine(), seed=1)
    assert torch.equal(before, torch.get_rng_state())
    assert (problem.samples, problem.unit) == (20, "windows")
    assert problem.model.output.weight.shape == (11, 8)
    (batch,) = problem.draw(torch.tensor([2, 0]), torch.Generator())
    assert batch.tolist() == [[8, 9, 10, 0, 1], [0, 1, 2, 3, 4]]
    with torch.no_grad():
        logits = problem.model(batch[:, :4])
        assert torch.equal(problem.inputs(batch)[0], batch[:, :4])
        want = F.cross_entropy(logits.reshape(8, 11), batch[:, 1:].reshape(8))
        torch.testing.assert_close(problem.loss(problem.model, batch), want)
    # 83 tokens: six of the eleven come 8 times, five 7 times
    shares = torch.tensor([8 / 83] * 6 + [7 / 83] * 5)
    assert problem.constant_loss == pytest.approx(float(-(shares * shares.log()).sum()))


def test_weights_follow_the_seed() -> None:
    first, same, other = (
        LanguageModelling(Counting(), MODEL).build(Machine(), seed=seed).model.output.weight
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, same) and not torch.equal(first, other)


def test_validation_is_the_mean_over_at_most_so_many_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rankscope.lab.tasks.language.EVALUATION_TOKENS", 10)
    problem = LanguageModelling(Counting(), MODEL, validation_windows=5).build(Machine(), seed=0)
    # 7 windows, of which 5 are spread from the first on: 0, 1, 2, 4, 5
    held_out = windows((torch.arange(30) % 11).int(), 4)[[0, 1, 2, 4, 5]].long()
    with torch.no_grad():
        want = problem.loss(problem.model, held_out)
        assert problem.validate(problem.model) == {
            "validation_loss": pytest.approx(float(want), rel=1e-5)
        }
    fixed = torch.cat([batch for (batch,) in problem.fixed(5)])
    assert torch.equal(fixed, problem.draw(torch.arange(0, 20, 4), torch.Generator())[0])


def test_rows_are_spread_over_all_there_are() -> None:
    rows = torch.arange(10)[:, None]
    assert spread(rows, 5).flatten().tolist() == [0, 2, 4, 6, 8]
    assert spread(rows, 99).flatten().tolist() == list(range(10))
