"""LoRA pairs scale * B A against what the adapted layer adds."""

import pytest
import torch
from torch import Tensor, nn

from rankscope.matrices import products, views


class LoraLinear(nn.Module):
    """Layer with the layout of PEFT's adapted Linear."""

    def __init__(self, adapters: dict[str, float]) -> None:
        super().__init__()
        self.base_layer = nn.Linear(4, 6, bias=False)
        self.lora_A = nn.ModuleDict({name: nn.Linear(4, 2, bias=False) for name in adapters})
        self.lora_B = nn.ModuleDict({name: nn.Linear(2, 6, bias=False) for name in adapters})
        self.scaling = dict(adapters)

    def change(self, x: Tensor, adapter: str) -> Tensor:
        return self.scaling[adapter] * self.lora_B[adapter](self.lora_A[adapter](x))


def test_each_adapter_is_a_product() -> None:
    layer = LoraLinear({"default": 2.0, "other": 0.5})
    by_name = products(nn.ModuleDict({"q_proj": layer}))
    assert list(by_name) == ["q_proj.lora", "q_proj.lora.other"]
    x = torch.randn(4)
    for name, adapter in (("q_proj.lora", "default"), ("q_proj.lora.other", "other")):
        change = by_name[name].left @ (by_name[name].right.mT @ x)
        torch.testing.assert_close(change, layer.change(x, adapter).detach())
        assert by_name[name].shape == (6, 4)
    assert "q_proj.base_layer" in views(nn.ModuleDict({"q_proj": layer}))


def test_convolutions() -> None:
    down, up = nn.Conv2d(3, 2, 3, bias=False), nn.Conv2d(2, 5, 1, bias=False)
    product = products(nn.ModuleDict({"lora_A": down, "lora_B": up}))["lora"]
    patch = torch.randn(1, 3, 3, 3)
    change = product.left @ (product.right.mT @ patch.flatten())
    torch.testing.assert_close(change, up(down(patch)).flatten().detach())


def test_embeddings_change_the_transposed_matrix() -> None:
    layer = nn.Module()
    layer.base_layer = nn.Embedding(7, 4)
    layer.lora_embedding_A = nn.ParameterDict({"default": torch.randn(2, 7)})
    layer.lora_embedding_B = nn.ParameterDict({"default": torch.randn(4, 2)})
    layer.scaling = {"default": 3.0}
    product = products(nn.ModuleDict({"tok": layer}))["tok.lora"]
    up, down = layer.lora_embedding_B["default"], layer.lora_embedding_A["default"]
    torch.testing.assert_close(product.left @ product.right.mT, (3 * up @ down).detach())
    assert product.shape == views(nn.ModuleDict({"tok": layer}))["tok.base_layer"].W.shape


@pytest.mark.parametrize("middle", ["", ".default"])
def test_a_saved_adapter(middle: str) -> None:
    up, down = torch.randn(6, 2), torch.randn(2, 4)
    saved = {f"l.q_proj.lora_A{middle}.weight": down, f"l.q_proj.lora_B{middle}.weight": up}
    product = products(saved)["l.q_proj.lora"]
    torch.testing.assert_close(product.left @ product.right.mT, up @ down)


@pytest.mark.parametrize("up", [{}, {"l.lora_B.weight": torch.randn(6)}], ids=["none", "vector"])
def test_a_factor_of_rank_one_without_its_partner_is_no_product(up: dict[str, Tensor]) -> None:
    assert products({"l.lora_A.weight": torch.randn(1, 4), **up}) == {}
