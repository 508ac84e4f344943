import torch

from rankscope.lab.models.mlp import MlpConfig


def images() -> torch.Tensor:
    return torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def test_forward_pass_is_the_network_written_out() -> None:
    model = MlpConfig(inputs=12, hidden=5, classes=3, layers=3).build(0)
    (W1, b1), (W2, b2), (W3, b3) = ((layer.weight, layer.bias) for layer in model.layers)
    x = images().reshape(4, 12)
    x = (x @ W1.T + b1).clamp(min=0)
    x = (x @ W2.T + b2).clamp(min=0)
    torch.testing.assert_close(model(images()), x @ W3.T + b3)
