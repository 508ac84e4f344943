import itertools
import math
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from rankscope.lab.data.formant import FormantSpeech
from rankscope.lab.data.mixed_speech import joined
from rankscope.lab.data.speech import Speech, Utterances, encode, pad
from rankscope.lab.models.lstm import BiLstmConfig
from rankscope.lab.tasks.speech import (
    SpeechRecognition,
    constant_loss,
    ctc_loss,
    edit_distances,
    greedy,
    require_room,
)
from rankscope.lab.training.optimizers import AdamW
from rankscope.lab.training.step import GraphedStep, plain_step
from rankscope.lab.training.task import Machine

MODEL = BiLstmConfig(hidden=3, layers=2)


def collapse(path: tuple[int, ...]) -> list[int]:
    return [c for c, _ in itertools.groupby(path) if c != 0]


def brute_force(p: torch.Tensor, frames: int, target: list[int]) -> float:
    """P(target): every path of characters that reads as it, added up. p: (frames, characters)."""
    paths = itertools.product(range(p.shape[1]), repeat=frames)
    return sum(
        math.prod(float(p[t, c]) for t, c in enumerate(path))
        for path in paths
        if collapse(path) == target
    )


def tiny(frames: list[int], targets: list[list[int]]) -> Utterances:
    longest = max(map(len, targets))
    return Utterances(
        torch.zeros(len(frames), max(frames), 1),
        torch.tensor(frames),
        torch.tensor([row + [0] * (longest - len(row)) for row in targets]),
        torch.tensor([len(row) for row in targets]),
    )


def test_loss_is_the_sum_over_paths_by_the_character() -> None:
    frames, targets = [4, 3], [[1, 1], [2]]
    part = tiny(frames, targets)
    logits = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p = logits.softmax(-1)
    want = [-math.log(brute_force(p[i], frames[i], targets[i])) / len(targets[i]) for i in range(2)]
    loss = ctc_loss(p.log(), *part.tensors()[1:])
    assert float(loss) == pytest.approx(sum(want) / 2)


def test_constant_loss_is_the_best_of_a_grid() -> None:
    """A path's probability under one distribution follows from its counts of characters."""
    frames, targets = [3, 4, 3], [[1], [1, 2], [1]]
    constant = constant_loss(tiny(frames, targets), characters=3)
    shares = torch.cat([torch.tensor([1e-9]), torch.linspace(0.005, 0.99, 198)]).double()
    grid = torch.cartesian_prod(shares, shares)
    grid = torch.column_stack([grid, 1 - grid.sum(1)])
    grid = grid[grid[:, 2] > 1e-9]  # (points, characters)
    losses = torch.zeros(len(grid), dtype=torch.float64)
    for n, target in zip(frames, targets, strict=True):
        paths = [p for p in itertools.product(range(3), repeat=n) if collapse(p) == target]
        counts = torch.tensor([[path.count(c) for c in range(3)] for path in paths]).double()
        losses -= (grid.log() @ counts.T).exp().sum(1).log() / len(target) / len(frames)
    assert constant <= float(losses.min()) + 1e-9
    assert constant == pytest.approx(float(losses.min()), rel=1e-3)


def test_constant_loss_of_many_is_that_of_some_of_each_kind() -> None:
    """The first 1500 alone would give 0; two texts that share one probability, log 2 or more."""
    mixed = joined([tiny([5] * 1500, [[1]] * 1500), tiny([5] * 1500, [[2]] * 1500)])
    best = constant_loss(tiny([5, 5], [[1], [2]]), characters=3)
    assert constant_loss(mixed, characters=3) == pytest.approx(best, rel=1e-3)
    assert best > math.log(2)


def test_greedy_decoding_merges_repeats_and_drops_blanks() -> None:
    best = torch.tensor([[1, 1, 0, 1, 2, 2], [0, 0, 3, 3, 1, 1], [0, 0, 0, 0, 0, 0]])
    log_probabilities = torch.nn.functional.one_hot(best, 4).float()
    decoded, lengths = greedy(log_probabilities, torch.tensor([6, 4, 6]))
    assert lengths.tolist() == [3, 1, 0]
    assert decoded[0].tolist() == [1, 1, 2] and decoded[1, :1].tolist() == [3]


def plain_distance(a: str, b: str) -> int:
    if not a or not b:
        return len(a) + len(b)
    return min(
        plain_distance(a[1:], b) + 1,
        plain_distance(a, b[1:]) + 1,
        plain_distance(a[1:], b[1:]) + (a[0] != b[0]),
    )


def test_edit_distances_are_the_recursion() -> None:
    pairs = [("kitten", "sitting"), ("", "abc"), ("abc", "abc"), ("xaby", "ab"), ("ab", "ba")]
    texts = [
        (
            torch.nn.utils.rnn.pad_sequence(
                [torch.tensor([ord(c) for c in text], dtype=torch.int64) for text in column],
                batch_first=True,
            ),
            torch.tensor([len(text) for text in column]),
        )
        for column in zip(*pairs, strict=True)
    ]
    assert edit_distances(*texts[0], *texts[1]).tolist() == [plain_distance(*p) for p in pairs]


def test_a_problem_draws_what_it_is_asked_for_and_keeps_its_word() -> None:
    task = SpeechRecognition(FormantSpeech(20), MODEL)
    before = torch.get_rng_state()
    problem = task.build(Machine(), seed=3)
    speech = FormantSpeech(20).build(seed=3)
    assert torch.equal(before, torch.get_rng_state())
    assert (problem.samples, problem.unit) == (18, "utterances")
    batch = problem.draw(torch.tensor([4, 0]), torch.Generator())
    for drawn, whole in zip(batch, speech.train.tensors(), strict=True):
        assert torch.equal(drawn, whole[[4, 0]])
    fixed = list(problem.fixed(7))
    assert sum(len(batch[0]) for batch in fixed) == 7
    assert torch.equal(fixed[0][0], speech.train.features[:7])
    with torch.no_grad():
        loss = problem.loss(problem.model, *batch)
        values = problem.validate(problem.model)
        log_probabilities = problem.model(speech.validation.features)
    assert loss > problem.constant_loss > 0
    want = ctc_loss(log_probabilities, *speech.validation.tensors()[1:])
    assert values["validation_loss"] == pytest.approx(float(want))
    assert values["validation_error_rate"] >= 0
    assert problem.final_attributes(problem.model) == {}
    assert problem.shown == problem.model.shown()


class Told(torch.nn.Module):
    """Reads out the given texts."""

    def __init__(self, targets: torch.Tensor) -> None:
        super().__init__()
        self.targets = targets

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        blanks = features.shape[1] - self.targets.shape[1]
        path = torch.nn.functional.pad(self.targets, (0, blanks))
        return (torch.nn.functional.one_hot(path, 29) + 1e-9).log()


def test_the_error_rate_counts_edits_over_characters() -> None:
    problem = SpeechRecognition(FormantSpeech(20), MODEL).build(Machine(), seed=0)
    held_out = FormantSpeech(20).build(seed=0).validation
    assert problem.validate(Told(held_out.targets))["validation_error_rate"] == 0
    # One character more in each of the two held-out texts, none of which repeats a letter.
    longer = torch.nn.functional.pad(held_out.targets, (1, 0), value=28)
    error_rate = problem.validate(Told(longer))["validation_error_rate"]
    assert error_rate == pytest.approx(2 / int(held_out.target_lengths.sum()))


def test_validation_in_batches_is_that_of_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = SpeechRecognition(FormantSpeech(50), MODEL).build(Machine(), seed=0)
    held_out = FormantSpeech(50).build(seed=0).validation
    sizes: list[int] = []

    class Watching(torch.nn.Module):
        """Guesses by the loudness of a frame, so that utterances differ in their errors."""

        def forward(self, features: torch.Tensor) -> torch.Tensor:
            sizes.append(len(features))
            guess = torch.arange(29) - 3 * features.mean(-1, keepdim=True)
            return (-guess.square() / 50).log_softmax(-1)

    monkeypatch.setattr("rankscope.lab.tasks.speech.EVALUATION_UTTERANCES", 2)
    values = problem.validate(Watching())
    assert sizes == [2, 2, 1]
    log_probabilities = Watching()(held_out.features)
    _, frames, targets, lengths = held_out.tensors()
    loss = ctc_loss(log_probabilities, frames, targets, lengths)
    edits = edit_distances(*greedy(log_probabilities, frames), targets, lengths)
    assert values["validation_loss"] == pytest.approx(float(loss), rel=1e-6)
    rate = int(edits.sum()) / int(lengths.sum())
    assert values["validation_error_rate"] == pytest.approx(rate, rel=1e-6) and rate > 0


class Short:
    """Speech with fewer frames than characters."""

    def build(self, *, folder: Path | None, seed: int) -> Speech:
        good, bad = (pad([torch.zeros(2, 40)] * 2, [encode("ab"), encode(t)]) for t in ("a", "aa"))
        return Speech(good, bad)


def test_texts_that_do_not_fit_into_their_frames_are_named() -> None:
    message = (
        r"rows \[1\] of validation \(1 in all\) have no text, or fewer frames .*; leave them out"
    )
    with pytest.raises(ValueError, match=message):
        SpeechRecognition(Short(), MODEL).build(Machine(), seed=0)
    silent = pad([torch.zeros(2, 40)] * 7, [encode("")] * 7)
    with pytest.raises(ValueError, match=r"rows \[0, 1, 2, 3, 4\] of train \(7 in all\)"):
        require_room(Speech(silent, silent))


@pytest.mark.gpu
def test_a_replayed_step_learns_what_a_written_one_does() -> None:
    """Training with torch's own loss on the CPU agrees with the loss that a GPU replays."""

    def losses(device: str) -> list[float]:
        problem = SpeechRecognition(FormantSpeech(20), MODEL).build(Machine(device=device), seed=0)
        optimizer = AdamW(rate=1e-3).build(problem.model.parameters(), torch.device(device))
        step = plain_step(problem, optimizer, accumulate=1, clip=None, precision="float32")
        if device == "cuda":
            step = GraphedStep(step, problem.model, optimizer, paused=nullcontext)
        chosen = [torch.tensor([3, 1, 4]), torch.tensor([0, 2, 5])] * 3
        return [float(step(problem.draw(indices, torch.Generator()))) for indices in chosen]

    with torch.cuda.stream(torch.cuda.Stream()):
        replayed = losses("cuda")
    assert replayed == pytest.approx(losses("cpu"), rel=1e-2)
