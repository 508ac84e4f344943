import pytest
import torch

from rankscope.lab.models.lstm import BiLstmConfig
from rankscope.pairs import Pair, discover_pairs

SMALL = BiLstmConfig(features=3, hidden=4, layers=2, characters=5)


def features() -> torch.Tensor:
    return torch.randn(2, 7, 3, generator=torch.Generator().manual_seed(0))


def test_the_papers_network_has_its_parameters() -> None:
    gates, hidden = 4 * 256, 256
    first = gates * (40 + hidden + 2)
    above = gates * (2 * hidden + hidden + 2)
    want = 2 * (first + 3 * above) + 29 * (2 * hidden + 1)
    assert sum(p.numel() for p in BiLstmConfig().build(0).parameters()) == want


@torch.no_grad()
def test_each_direction_runs_over_its_own_frames() -> None:
    """One layer written out, gate by gate, forwards and backwards."""
    model = BiLstmConfig(features=3, hidden=4, layers=2, characters=5).build(0)
    w = dict(model.lstm.named_parameters())
    x = features()
    for layer in range(2):
        states = torch.zeros(2, 7, 8)
        for direction, suffix in enumerate(("", "_reverse")):
            W, U = (w[f"weight_{role}_l{layer}{suffix}"] for role in ("ih", "hh"))
            bias = w[f"bias_ih_l{layer}{suffix}"] + w[f"bias_hh_l{layer}{suffix}"]
            h = c = torch.zeros(2, 4)
            for t in range(7) if direction == 0 else reversed(range(7)):
                i, f, g, o = (x[:, t] @ W.T + h @ U.T + bias).chunk(4, dim=1)
                c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                h = o.sigmoid() * c.tanh()
                states[:, t, 4 * direction : 4 * direction + 4] = h
        x = states
    logits = x @ model.output.weight.T + model.output.bias
    torch.testing.assert_close(model(features()), logits - logits.logsumexp(-1, keepdim=True))


def key(pair: Pair) -> tuple[object, ...]:
    return pair.earlier, pair.later, pair.kind, pair.earlier_cut, pair.later_cut, pair.label


def test_declared_pairs_are_those_of_the_forward_pass() -> None:
    model = SMALL.build(0)
    discovered = discover_pairs(model, features())
    assert {key(pair) for pair in model.alignment_pairs()} == {key(pair) for pair in discovered}
    # By direction and gate: W_ih-W_hh of 2 layers, two kinds upwards, two kinds to the output.
    assert len(model.alignment_pairs()) == 2 * 4 * (2 + 2 + 2)


def test_impossible_sizes_are_named() -> None:
    with pytest.raises(ValueError, match="2 or more layers"):
        BiLstmConfig(layers=1)
