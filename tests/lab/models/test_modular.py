import math

import torch

from rankscope.lab.models.modular import ModularConfig

SMALL = ModularConfig(p=5, width=12, heads=3, hidden=7)


def tokens() -> torch.Tensor:
    return torch.tensor([[0, 4, 5], [2, 2, 5], [3, 1, 5]])


@torch.no_grad()
def test_forward_pass_is_the_network_written_out() -> None:
    model = SMALL.build(0)
    w = dict(model.named_parameters())
    for row, logits in zip(tokens(), model(tokens()), strict=True):
        x = w["embedding.weight"][row] * math.sqrt(12) + model.positions
        q, k, v = (x @ w["block.attn.qkv.weight"].T + w["block.attn.qkv.bias"]).split(12, dim=1)
        mixed = torch.cat(
            [
                (k[:, head] @ q[2, head] / 2).softmax(0) @ v[:, head]
                for head in torch.arange(12).reshape(3, 4)
            ]
        )
        x = x[2] + w["block.attn.out_proj.weight"] @ mixed + w["block.attn.out_proj.bias"]
        hidden = (w["block.w1.weight"] @ x + w["block.w1.bias"]).clamp(min=0)
        x = x + w["block.w2.weight"] @ hidden + w["block.w2.bias"]
        want = w["output.weight"] @ x + w["output.bias"]
        torch.testing.assert_close(logits, want)
