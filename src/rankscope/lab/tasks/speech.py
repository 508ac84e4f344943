"""Speech recognition by connectionist temporal classification (yunis2024, app. C.3)."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from rankscope.lab.data.speech import BLANK, Speech, SpeechData, Utterances, too_short
from rankscope.lab.models.lstm import BiLstm, BiLstmConfig
from rankscope.lab.tasks.batches import batches
from rankscope.lab.tasks.ctc import replayable_ctc_loss
from rankscope.lab.training.task import Batch, Machine, Problem

EVALUATION_UTTERANCES = 256  # in one batch; a GPU takes as long for many as for few
CONSTANT_CHARACTERS = 2000  # sample on which the constant predictor's loss is measured


@dataclass(frozen=True)
class SpeechRecognition:
    """CTC loss of the characters of `speech`.

    The network sees whole padded utterances, so its backward direction starts in the padding,
    unlike the paper's. Padded frames take no part in the loss.
    """

    speech: SpeechData
    model: BiLstmConfig

    def build(self, machine: Machine, *, seed: int) -> "SpeechProblem":
        speech = self.speech.build(folder=machine.data, seed=seed)
        return SpeechProblem(speech, self.model.build(seed), device=torch.device(machine.device))


class SpeechProblem(Problem):
    """Speech recognition with all utterances on the device, padded to one length."""

    unit = "utterances"

    def __init__(self, speech: Speech, model: BiLstm, *, device: torch.device) -> None:
        require_room(speech)
        self.model = model.to(device)
        self.shown = model.shown()
        self.samples = len(speech.train)
        self.constant_loss = constant_loss(speech.train, characters=model.config.characters)
        self._train, self._validation = (
            tuple(tensor.to(device) for tensor in part.tensors()) for part in speech
        )

    def draw(self, indices: Int[Tensor, " batch"], generator: torch.Generator) -> Batch:
        chosen = indices.to(self._train[0].device, non_blocking=True)
        return tuple(tensor[chosen] for tensor in self._train)

    def loss(self, model: nn.Module, *batch: Tensor) -> Float[Tensor, ""]:
        return ctc_loss(model(*self.inputs(*batch)), *batch[1:])

    def fixed(self, samples: int) -> Iterable[Batch]:
        return batches(
            tuple(tensor[:samples] for tensor in self._train), most=EVALUATION_UTTERANCES
        )

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """Loss, and character error rate of greedy decoding (edits / characters)."""
        losses, edits = [], []
        for batch in batches(self._validation, most=EVALUATION_UTTERANCES):
            _, frame_lengths, *texts = batch
            log_probabilities = model(*self.inputs(*batch))
            losses.append(len(frame_lengths) * float(ctc_loss(log_probabilities, *batch[1:])))
            edits.append(edit_distances(*greedy(log_probabilities, frame_lengths), *texts))
        target_lengths = self._validation[3]
        return {
            "validation_loss": sum(losses) / len(target_lengths),
            "validation_error_rate": float(torch.cat(edits).sum() / target_lengths.sum()),
        }


def ctc_loss(
    log_probabilities: Float[Tensor, "n frames characters"],
    frame_lengths: Int[Tensor, " n"],
    targets: Int[Tensor, "n longest"],
    target_lengths: Int[Tensor, " n"],
) -> Float[Tensor, ""]:
    """Mean over utterances of -log P(text) / number of characters.

    torch's own loss waits for the lengths on a GPU, which is impossible in a CUDA graph.
    """
    if log_probabilities.is_cuda and log_probabilities.requires_grad:
        losses = replayable_ctc_loss(log_probabilities, frame_lengths, targets, target_lengths)
        return (losses / target_lengths).mean()
    by_frame = log_probabilities.transpose(0, 1)
    return F.ctc_loss(by_frame, targets, frame_lengths, target_lengths, blank=BLANK)


def require_room(speech: Speech) -> None:
    """Raise ValueError if a text has fewer frames than CTC needs for it, see `too_short`."""
    for name, part in speech._asdict().items():
        short = too_short(part)
        if short:
            raise ValueError(
                f"rows {short[:5]} of {name} ({len(short)} in all) have no text, or fewer frames "
                "than it needs; leave them out, or take a shorter hop"
            )


def constant_loss(utterances: Utterances, *, characters: int) -> float:
    """Smallest loss of a predictor that has one distribution over characters for all frames.

    L-BFGS finds it in float64 on a sample of about 2000 characters. There are minima with many
    and with few blanks, so the search starts from both sides.
    """
    stride = math.ceil(int(utterances.target_lengths.sum()) / CONSTANT_CHARACTERS)
    part = utterances.pick(torch.arange(0, len(utterances), stride))
    return min(_lowest(part, characters, blank=blank) for blank in (0.05, 0.9))


def _lowest(part: Utterances, characters: int, *, blank: float) -> float:
    """Return the minimum reached from a share `blank` of blanks, other characters as in texts."""
    n, frames = len(part), int(part.frame_lengths.max())
    inside = torch.arange(part.targets.shape[1]) < part.target_lengths[:, None]
    counts = torch.bincount(part.targets[inside], minlength=characters).double() + 0.1
    counts[BLANK] = blank / (1 - blank) * counts.sum()
    logits = counts.log().requires_grad_()
    search = torch.optim.LBFGS([logits], max_iter=30, line_search_fn="strong_wolfe")

    def loss() -> float:
        search.zero_grad()
        same = logits.log_softmax(0).expand(n, frames, characters)
        value = ctc_loss(same, *part.tensors()[1:])
        value.backward()
        return float(value.detach())

    with torch.enable_grad():
        search.step(loss)
        return loss()


def greedy(
    log_probabilities: Float[Tensor, "n frames characters"], frame_lengths: Int[Tensor, " n"]
) -> tuple[Int[Tensor, "n longest"], Int[Tensor, " n"]]:
    """Decode greedily: the best character of each frame, repeats merged, blanks dropped.

    Returns the padded texts and their lengths.
    """
    best = log_probabilities.argmax(-1)
    inside = torch.arange(best.shape[1], device=best.device) < frame_lengths[:, None]
    first = F.pad(best[:, 1:] != best[:, :-1], (1, 0), value=True)
    in_text = first & inside & (best != BLANK)
    # A stable sort moves the characters of the text to the front, in order.
    order = in_text.logical_not().to(torch.int8).argsort(dim=1, stable=True)
    lengths = in_text.sum(1)
    return best.gather(1, order)[:, : int(lengths.max())], lengths


def edit_distances(
    given: Int[Tensor, "n given"],
    given_lengths: Int[Tensor, " n"],
    wanted: Int[Tensor, "n wanted"],
    wanted_lengths: Int[Tensor, " n"],
) -> Int[Tensor, " n"]:
    """Fewest insertions, deletions and substitutions from one text to the other, for each row.

    This fills Wagner and Fischer's table a row at a time for all texts. D[i, j] is the minimum
    over k <= j of (the entry of column k without insertions) + (j - k).
    """
    columns = torch.arange(wanted.shape[1] + 1, device=wanted.device)
    row = columns.expand(len(wanted), -1)
    for i in range(given.shape[1]):
        changed = row[:, :-1] + (given[:, i : i + 1] != wanted)
        without = torch.cat([row[:, :1] + 1, torch.minimum(row[:, 1:] + 1, changed)], dim=1)
        following = (without - columns).cummin(1).values + columns
        row = torch.where((i < given_lengths)[:, None], following, row)
    return row.gather(1, wanted_lengths[:, None])[:, 0]
