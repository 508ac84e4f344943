import math

import pytest
import torch
from torch import Tensor, nn

from rankscope.lab.models.modular import ModularConfig
from rankscope.lab.tasks.modular import ModularAddition, ModularProblem, table
from rankscope.lab.training.task import Machine

TASK = ModularAddition(ModularConfig(p=7, width=8, heads=2, hidden=8), train_share=0.3)


class Adder(nn.Module):
    """Knows the answer to every question whose sum is at most `largest`, and says 0 otherwise."""

    def __init__(self, largest: int) -> None:
        super().__init__()
        self.largest = largest

    def forward(self, tokens: Tensor) -> Tensor:
        total = tokens[:, 0] + tokens[:, 1]
        answer = torch.where(total <= self.largest, total % 7, 0)
        return 100.0 * nn.functional.one_hot(answer, 8)


@pytest.fixture(scope="module")
def problem() -> ModularProblem:
    return TASK.build(Machine(), seed=0)


def test_table_holds_every_sum_once() -> None:
    questions, answers = table(7)
    rows = [tuple(row) for row in questions.tolist()]
    assert len(set(rows)) == 49 and {row[2] for row in rows} == {7}
    assert answers.tolist() == [(a + b) % 7 for a, b, _ in rows]


def test_training_and_validation_share_no_pair_and_miss_none(problem: ModularProblem) -> None:
    seen: list[Tensor] = []

    class Watching(Adder):
        def forward(self, tokens: Tensor) -> Tensor:
            seen.append(tokens)
            return super().forward(tokens)

    problem.validate(Watching(12))
    validation, train = ({tuple(row) for row in inputs.tolist()} for inputs in seen)
    assert len(train) == TASK.samples == problem.samples == 14
    assert len(validation) == 35 and not train & validation
    (batch,) = problem.fixed(1000)
    assert {tuple(row) for row in batch[0].tolist()} == train


def test_accuracies_are_shares_of_right_answers(problem: ModularProblem) -> None:
    assert problem.validate(Adder(12)) == {
        "validation_loss": pytest.approx(0, abs=1e-6),
        "validation_accuracy": 1,
        "training_accuracy": 1,
    }
    (batch,) = problem.fixed(99)
    known = (batch[0][:, 0] + batch[0][:, 1] <= 3) | (batch[1] == 0)
    assert problem.validate(Adder(3))["training_accuracy"] == int(known.sum()) / 14


def test_loss_of_the_best_constant(problem: ModularProblem) -> None:
    class Uniform(nn.Module):
        def forward(self, tokens: Tensor) -> Tensor:
            return torch.zeros(len(tokens), 8).index_fill(1, torch.tensor([7]), -1e9)

    (batch,) = problem.fixed(1000)
    assert float(problem.loss(Uniform(), *batch)) == pytest.approx(math.log(7))
    assert problem.constant_loss == pytest.approx(math.log(7))


def test_full_batch_is_the_training_set_in_any_order(problem: ModularProblem) -> None:
    order = torch.randperm(14, generator=torch.Generator().manual_seed(0))
    (fixed,) = problem.fixed(14)
    drawn = problem.draw(order, torch.Generator())
    assert all(torch.equal(a[order], b) for a, b in zip(fixed, drawn, strict=True))


def test_pairs_for_training_follow_the_seed() -> None:
    first, same, other = (
        next(iter(TASK.build(Machine(), seed=seed).fixed(99)))[0] for seed in (0, 0, 1)
    )
    assert torch.equal(first, same) and not torch.equal(first, other)


def test_impossible_shares_are_named() -> None:
    with pytest.raises(ValueError, match="at least one pair each"):
        ModularAddition(ModularConfig(p=7, width=8, heads=2), train_share=1.0)
