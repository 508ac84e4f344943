"""Expert stacks, read as one matrix per expert."""

import pytest
import torch
from torch import nn

from rankscope.matrices import views


class Experts(nn.Module):
    def __init__(self, *, transposed: bool = False) -> None:
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(3, 5, 4))
        self.is_transposed = transposed


class Plain(Experts):
    """Stack whose class does not say that it holds experts."""


@pytest.mark.parametrize("transposed", [False, True])
def test_one_matrix_per_expert(transposed: bool) -> None:
    model = nn.ModuleDict({"mlp": Experts(transposed=transposed)})
    matrices = views(model)
    assert list(matrices) == ["mlp.w1.e0", "mlp.w1.e1", "mlp.w1.e2"]
    stored = model["mlp"].w1.detach()[1]
    torch.testing.assert_close(matrices["mlp.w1.e1"].W, stored.T if transposed else stored)
    suffix = ", stored transposed" if transposed else ""
    assert matrices.coverage["mlp.w1"].how == f"Experts: 3 matrices out x in{suffix}"


def test_a_stack_without_experts_in_its_path_or_class_is_flattened() -> None:
    assert next(iter(views(nn.ModuleDict({"experts": Plain()})))) == "experts.w1.e0"
    matrices = views(nn.ModuleDict({"mlp": Plain()}))
    assert matrices["mlp.w1"].W.shape == (3, 20)
    assert matrices.coverage["mlp.w1"].status == "flattened"


def test_a_bias_of_each_expert_is_no_matrix() -> None:
    experts = Experts()
    experts.w1_bias = nn.Parameter(torch.randn(3, 5))
    experts.position_bias = nn.Parameter(torch.randn(4, 5))  # beside no stack
    model = nn.ModuleDict({"experts": experts})
    for source in (model, model.state_dict()):
        matrices = views(source)
        assert matrices.coverage["experts.w1_bias"].status == "vector"
        assert {"experts.w1_bias", "experts.position_bias"} & set(matrices) == {
            "experts.position_bias"
        }
        assert views(source, include="experts.w1_bias")["experts.w1_bias"].W.shape == (3, 5)


def test_mixtral() -> None:
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralExperts

    experts = MixtralExperts(MixtralConfig(hidden_size=8, intermediate_size=6, num_local_experts=2))
    for parameter in experts.parameters():
        nn.init.normal_(parameter)
    matrices = views(nn.ModuleDict({"experts": experts}))
    x = torch.randn(1, 8)
    chosen, weight = torch.tensor([[1]]), torch.ones(1, 1)
    gate, up = (matrices["experts.gate_up_proj.e1"].W @ x[0]).chunk(2)
    expected = matrices["experts.down_proj.e1"].W @ (nn.functional.silu(gate) * up)
    torch.testing.assert_close(expected[None], experts(x, chosen, weight).detach())
