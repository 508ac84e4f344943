import torch

from rankscope.lab.models.lstm import BiLstmConfig


def features() -> torch.Tensor:
    return torch.randn(2, 7, 3, generator=torch.Generator().manual_seed(0))


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
