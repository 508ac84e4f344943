import pytest
import torch
import torch.nn.functional as F

from rankscope.lab.tasks.ctc import replayable_ctc_loss

CASES = {  # frames, characters of each text, letters of the alphabet: few make many repeats
    "as short as can be": ([1, 1], [1, 1], 3),
    "repeats": ([9, 12, 7], [3, 4, 2], 3),
    "many": ([30, 17, 25, 30, 8], [11, 6, 1, 9, 2], 6),
    "no text": ([5, 4], [2, 0], 4),
}


def drawn(
    frames: list[int], lengths: list[int], characters: int, dtype: torch.dtype = torch.float64
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Logits, and frame lengths, texts, text lengths; what lies in the padding is noise too."""
    generator = torch.Generator().manual_seed(sum(frames))
    n, longest = len(frames), max(lengths)
    logits = 3 * torch.randn(n, max(frames) + 2, characters, generator=generator, dtype=dtype)
    texts = torch.randint(1, characters, (n, longest + 1), generator=generator)
    return logits.requires_grad_(), (torch.tensor(frames), texts, torch.tensor(lengths))


def native(
    log_probabilities: torch.Tensor,
    frames: torch.Tensor,
    texts: torch.Tensor,
    lengths: torch.Tensor,
) -> torch.Tensor:
    heard = log_probabilities.transpose(0, 1)
    return F.ctc_loss(heard, texts, frames, lengths, reduction="none")


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_torchs_own(case: str) -> None:
    logits, rest = drawn(*CASES[case])
    weights = torch.linspace(0.5, 2, len(logits), dtype=torch.float64)  # one for each utterance
    ours, want = (f(logits.log_softmax(-1), *rest) for f in (replayable_ctc_loss, native))
    torch.testing.assert_close(ours, want, rtol=1e-12, atol=1e-12)
    slopes = [torch.autograd.grad(loss @ weights, logits)[0] for loss in (ours, want)]
    torch.testing.assert_close(*slopes, rtol=1e-10, atol=1e-12)
    assert slopes[0].abs().max() > 0.1


def test_the_gradient_is_that_of_the_value() -> None:
    """Gradients treat log-probabilities as free numbers, which need not add up to 1."""
    logits, rest = drawn([5, 3], [2, 2], 3)
    assert torch.autograd.gradcheck(lambda x: replayable_ctc_loss(x, *rest), logits)


def test_long_utterances_in_single_precision() -> None:
    logits, rest = drawn([700, 420], [130, 60], 29, torch.float32)
    losses = [f(logits.log_softmax(-1), *rest) for f in (replayable_ctc_loss, native)]
    torch.testing.assert_close(*losses, rtol=1e-5, atol=0.0)
    single = torch.autograd.grad(losses[0].sum(), logits)[0]
    double = logits.detach().double().requires_grad_()
    want = torch.autograd.grad(native(double.log_softmax(-1), *rest).sum(), double)[0]
    torch.testing.assert_close(single.double(), want, rtol=0.0, atol=1e-3)


def test_a_text_that_does_not_fit_has_no_path() -> None:
    texts = torch.tensor([[1, 1], [1, 2]])  # the first needs a blank between, and three frames
    even = torch.zeros(2, 2, 3, dtype=torch.float64).log_softmax(-1)
    losses = replayable_ctc_loss(even, torch.tensor([2, 2]), texts, torch.tensor([2, 2]))
    assert losses[0] == torch.inf
    assert float(losses[1].exp()) == pytest.approx(9)  # one path of nine


def test_products_stay_in_full_precision() -> None:
    logits, rest = drawn([9, 7], [3, 2], 4, torch.float32)
    plain = torch.autograd.grad(replayable_ctc_loss(logits, *rest).sum(), logits)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = replayable_ctc_loss(logits, *rest).sum()
    torch.testing.assert_close(torch.autograd.grad(loss, logits)[0], plain, rtol=0.0, atol=0.0)
