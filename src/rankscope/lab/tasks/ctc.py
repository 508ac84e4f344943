"""A CTC loss that a CUDA graph can replay (graves2006, sections 4.1-4.2).

It consists of tensor operations only. torch's own loss reads the lengths on the host.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankscope.lab.data.speech import BLANK


def replayable_ctc_loss(
    log_probabilities: Float[Tensor, "n frames characters"],
    frame_lengths: Int[Tensor, " n"],
    targets: Int[Tensor, "n longest"],
    target_lengths: Int[Tensor, " n"],
) -> Float[Tensor, " n"]:
    """-log P(text) of each utterance; infinite if a text does not fit into its frames.

    The gradient is minus the expected number of times a path has a character at a frame.
    F.ctc_loss adds exp(log-probability) to it, which the gradient of log_softmax removes.
    """
    with torch.autocast(log_probabilities.device.type, enabled=False):
        losses: Tensor = _Loss.apply(  # type: ignore[no-untyped-call]
            log_probabilities, frame_lengths, targets, target_lengths
        )
    return losses


class _Loss(torch.autograd.Function):
    """The loss with both recursions in the forward pass; the backward pass is one product."""

    @staticmethod
    def forward(
        context: Any,
        log_probabilities: Tensor,
        frame_lengths: Tensor,
        targets: Tensor,
        target_lengths: Tensor,
    ) -> Tensor:
        log_probability, expected = _paths(
            log_probabilities, frame_lengths, targets, target_lengths
        )
        context.save_for_backward(expected)
        return log_probability.neg()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (expected,) = context.saved_tensors
        return -gradients[0][:, None, None] * expected, None, None, None


def _paths(
    log_probabilities: Tensor, frame_lengths: Tensor, targets: Tensor, target_lengths: Tensor
) -> tuple[Float[Tensor, " n"], Float[Tensor, "n frames characters"]]:
    """log P(text), and the expected count of each character at each frame over its paths.

    This is the forward-backward algorithm.
    The beta of an utterance is the alpha of the utterance read backwards. One recursion over
    twice the utterances therefore gives both. Both include the emission of their own frame.
    """
    n, frames, characters = log_probabilities.shape
    states = _with_blanks(targets)  # (n, S)
    frame, inside_frames = _mirrored(frames, frame_lengths)  # (n, frames)
    state, inside_states = _mirrored(states.shape[1], 2 * target_lengths + 1)  # (n, S)
    frame, state = frame[..., None], state[:, None]
    both = torch.cat([states, states.take_along_dim(state[:, 0], dim=1)])
    heard = torch.cat([log_probabilities, log_probabilities.take_along_dim(frame, dim=1)])
    emissions = heard.take_along_dim(both[:, None], dim=2)  # (2 n, frames, S)
    alpha, mirrored_beta = _alpha(emissions, both).chunk(2)
    beta = mirrored_beta.take_along_dim(frame, dim=1).take_along_dim(state, dim=2)
    beta = beta.where(inside_states[:, None], -torch.inf)
    # Any frame gives the total; at the first, paths are at a blank or at the first character.
    log_probability = beta[:, 0, :2].logsumexp(1)
    # Normalising over the states of a frame cancels rounding errors that they share.
    at_state = (alpha + beta - emissions[:n]).softmax(-1)
    is_character = states[..., None] == torch.arange(characters, device=states.device)
    expected = at_state.where(inside_frames[..., None], 0) @ is_character.to(at_state)
    return log_probability, expected


def _with_blanks(targets: Tensor) -> Tensor:
    """Insert a blank before, between and after the characters: (n, 2 longest + 1)."""
    states = targets.new_full((len(targets), 2 * targets.shape[1] + 1), BLANK)
    states[:, 1::2] = targets
    return states


def _mirrored(size: int, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Return for each row the places length - 1 to 0, and a mask of the places inside."""
    place = torch.arange(size, device=lengths.device)
    return (lengths[:, None] - 1 - place).clamp(min=0), place < lengths[:, None]


def _alpha(
    emissions: Float[Tensor, "n frames states"], states: Int[Tensor, "n states"]
) -> Float[Tensor, "n frames states"]:
    """log P of all path prefixes that end at a state at a frame (Eqs. 5-7, in logarithms).

    A path stays, moves to the next state, or skips a blank between two different characters.
    """
    n, frames, size = emissions.shape
    skip = (states[:, 2:] != BLANK) & (states[:, 2:] != states[:, :-2])
    barred = torch.zeros_like(emissions[:, 0])
    barred[:, 2:].masked_fill_(~skip, -torch.inf)
    # Two unreachable states before the first spare the first two a special case.
    alpha = emissions.new_full((frames, n, size + 2), -torch.inf)
    alpha[0, :, 2:4] = emissions[:, 0, :2]
    for before, now, emission in zip(alpha[:-1], alpha[1:], emissions.unbind(1)[1:], strict=True):
        moved = torch.logaddexp(before[:, 2:], before[:, 1:-1])
        moved = torch.logaddexp(moved, before[:, :-2] + barred)
        torch.add(moved, emission, out=now[:, 2:])
    return alpha[:, :, 2:].transpose(0, 1)
