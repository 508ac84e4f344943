"""A recorder sees logits, products and operands, and holds normalisations fixed."""

import pytest
import torch
from torch import nn

from rankscope.verification.recording import ENTRIES, Recorder, in_plain_steps, some_entries


def test_attention_shows_its_logits_and_operands() -> None:
    q, k, v = torch.randn(3, 2, 4, 5, 6, dtype=torch.float64)
    weight = torch.randn(3, 6, dtype=torch.float64)
    recorder = Recorder({"out": weight})
    with torch.no_grad(), in_plain_steps(), recorder:
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        nn.functional.linear(mixed, weight)
    (logits,), (operand,) = recorder.recording.logits, recorder.recording.operands["out"]
    torch.testing.assert_close(logits, (q @ k.mT / 6**0.5).flatten())
    assert torch.equal(operand.reshape(mixed.shape), mixed)


def test_a_convolution_shows_its_channels_last() -> None:
    x, layer = torch.randn(2, 3, 4, 4), nn.Conv2d(3, 5, 1)
    recorder = Recorder({"out": layer.weight})
    with torch.no_grad(), recorder:
        layer(x)
    assert torch.equal(recorder.recording.operands["out"][0], x.movedim(1, -1).flatten(0, 2))


def test_large_tensors_are_sampled_with_their_diagonal_first() -> None:
    rows, columns = torch.meshgrid(torch.arange(300), torch.arange(300), indexing="ij")
    positions = torch.stack([rows, columns], -1).expand(3, 300, 300, 2)
    first, second = (some_entries(positions[..., axis]) for axis in (0, 1))
    assert len(first) == 900 + ENTRIES
    assert torch.equal(first[:900], second[:900]) and len(set(first[900:].tolist())) == 300


@pytest.mark.parametrize(
    "norm",
    [
        nn.LayerNorm(6),
        nn.GroupNorm(2, 6),
        nn.RMSNorm(6),
        lambda x: nn.functional.normalize(x, dim=-1),
        lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    ],
)
def test_a_normalisation_is_replayed_as_a_fixed_scale(norm) -> None:
    x, other = torch.randn(2, 4, 6, dtype=torch.float64)
    norm = norm.double() if isinstance(norm, nn.Module) else norm
    with torch.no_grad():
        with (first := Recorder({})):
            y = norm(x)
        torch.testing.assert_close(y, norm(x))
        results = []
        for step in (0.0, 1.0, 2.0):
            with Recorder({}, first.statistics):
                results.append(norm(x + step * other))
    torch.testing.assert_close(results[0], y)
    torch.testing.assert_close(results[2] - results[1], results[1] - results[0])
    assert not torch.allclose(norm(x + 2 * other), results[2])
