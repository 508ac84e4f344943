"""Matrices of layers with adapters against what these layers do to the identity."""

import copy

import pytest
import torch
from torch import Tensor, nn

from rankscope.matrices import products, views


class Lora(nn.Module):
    """Layer with the attributes of PEFT's adapted Linear."""

    def __init__(self, base: nn.Module, adapters: dict[str, float], active: list[str]) -> None:
        super().__init__()
        self.base_layer = base
        out, width = base.weight.shape
        self.lora_A = nn.ModuleDict({name: nn.Linear(width, 2, bias=False) for name in adapters})
        self.lora_B = nn.ModuleDict({name: nn.Linear(2, out, bias=False) for name in adapters})
        self.scaling = dict(adapters)
        self.active_adapters = active
        self.merged_adapters: list[str] = []
        self.disable_adapters = False

    def forward(self, x: Tensor) -> Tensor:
        result = self.base_layer(x)
        for name in () if self.disable_adapters or self.merged_adapters else self.active_adapters:
            if name not in self.scaling:
                continue
            result = result + self.scaling[name] * self.lora_B[name](self.lora_A[name](x))
        return result


def linear_map(layer: nn.Module, width: int = 4) -> Tensor:
    """Matrix of a layer without bias, from its forward pass in eval mode."""
    with torch.no_grad():
        return copy.deepcopy(layer).eval()(torch.eye(width)).mT


def base() -> nn.Linear:
    return nn.Linear(4, 6, bias=False)


@pytest.mark.parametrize("active", [["a"], ["a", "b"], ["missing"], []])
@pytest.mark.parametrize("state", ["active", "merged", "disabled"])
def test_active_adapters_add_up(active: list[str], state: str) -> None:
    layer = Lora(base(), {"a": 2.0, "b": 0.5}, active)
    layer.merged_adapters = ["a"] if state == "merged" else []
    layer.disable_adapters = state == "disabled"
    matrices = views(nn.ModuleDict({"q_proj": layer}))
    assert list(matrices) == ["q_proj"]
    torch.testing.assert_close(matrices["q_proj"].W, linear_map(layer))


def test_coverage_lists_every_part() -> None:
    layer = Lora(base(), {"a": 2.0, "b": 0.5}, ["a"])
    lines = views(nn.ModuleDict({"q_proj": layer})).coverage
    assert lines["q_proj.weight"].how == (
        "Linear: out x in, effective: LoRA of base_layer.weight, lora_A.a.weight, lora_B.a.weight"
    )
    assert lines["q_proj.base_layer.weight"].how == "in q_proj.weight"
    assert lines["q_proj.lora_B.b.weight"].status == "not read"
    assert list(views(nn.ModuleDict({"q_proj": layer}), raw=True)) == [
        *("q_proj.base_layer", "q_proj.lora_A.a", "q_proj.lora_A.b"),
        *("q_proj.lora_B.a", "q_proj.lora_B.b"),
    ]


def test_adapters_on_a_parametrized_base() -> None:
    layer = Lora(nn.utils.parametrizations.weight_norm(base()), {"a": 2.0}, ["a"])
    matrices = views(nn.ModuleDict({"q_proj": layer}))
    assert list(matrices) == ["q_proj"]
    torch.testing.assert_close(matrices["q_proj"].W, linear_map(layer))


class Attention(nn.Module):
    """Attention whose query and value projections are adapted."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = 2
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            layer = nn.Linear(4, 4, bias=False)
            adapted = name in ("q_proj", "v_proj")
            setattr(self, name, Lora(layer, {"a": 1.5}, ["a"]) if adapted else layer)


def test_head_products_follow_the_adapters() -> None:
    attention = Attention()
    product = products(nn.ModuleDict({"attn": attention}))["attn.h1.kq"]
    key, query = attention.k_proj.weight[2:], linear_map(attention.q_proj)[2:]
    torch.testing.assert_close(product.left @ product.right.mT, (key.mT @ query).detach())


def test_a_copy_that_is_trained_as_a_whole_has_the_name_of_the_module() -> None:
    wrapper = nn.Module()
    wrapper.original_module = base()
    wrapper.modules_to_save = nn.ModuleDict({"a": base()})
    wrapper.active_adapters = ["a"]
    model = nn.ModuleDict({"head": wrapper})
    assert torch.equal(views(model)["head"].W, wrapper.modules_to_save["a"].weight.detach())
    wrapper.disable_adapters = True
    assert torch.equal(views(model)["head"].W, wrapper.original_module.weight.detach())


def test_an_unknown_adapter_is_named() -> None:
    layer = nn.Module()
    layer.base_layer = base()
    layer.hada_w1_a = nn.ParameterDict({"a": torch.randn(6, 2)})
    layer.active_adapters = ["a"]
    matrices = views(nn.ModuleDict({"q_proj": layer}))
    assert "q_proj.base_layer" in matrices
    assert "without its adapter" in matrices.coverage["q_proj.base_layer.weight"].how


class LoralibLinear(nn.Linear):
    """Layer with the attributes of loralib's Linear."""

    def __init__(self, merged: bool) -> None:
        super().__init__(4, 6, bias=False)
        self.lora_A = nn.Parameter(torch.randn(2, 4))
        self.lora_B = nn.Parameter(torch.randn(6, 2))
        self.scaling, self.merged = 0.5, merged

    def forward(self, x: Tensor) -> Tensor:
        update = (x @ self.lora_A.mT @ self.lora_B.mT) * self.scaling
        return super().forward(x) + (0 if self.merged else update)


@pytest.mark.parametrize("merged", [True, False])
def test_loralib(merged: bool) -> None:
    layer = LoralibLinear(merged)
    model = nn.ModuleDict({"q_proj": layer})
    torch.testing.assert_close(views(model)["q_proj"].W, linear_map(layer))
    assert list(products(model)) == ["q_proj.lora"]


def randomised(model: nn.Module) -> nn.Module:
    """Fill adapters, which begin at zero, with random numbers."""
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
    return model


class Small(nn.Module):
    """Layers that PEFT adapts."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 6, bias=False)
        self.table = nn.Embedding(7, 5)
        self.conv = nn.Conv2d(3, 4, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


def peft_model(module: nn.Module, **options) -> nn.Module:
    peft = pytest.importorskip("peft")
    return randomised(peft.get_peft_model(module, peft.LoraConfig(r=2, lora_alpha=3, **options)))


@pytest.mark.parametrize("options", [{}, {"use_dora": True}, {"use_rslora": True}], ids=str)
@pytest.mark.parametrize("merged", [False, True])
def test_peft_layers(options: dict[str, bool], merged: bool) -> None:
    model = peft_model(Small(), target_modules=["fc", "table", "conv"], **options)
    if merged:
        model.merge_adapter()
    matrices = {name.removeprefix("base_model.model."): view for name, view in views(model).items()}
    layers = model.base_model.model
    torch.testing.assert_close(matrices["fc"].W, linear_map(layers.fc))
    with torch.no_grad():
        tokens = layers.eval().table(torch.arange(7))
        # A convolution of unit impulses returns its taps, mirrored.
        impulses = torch.zeros(3, 3, 5, 5)
        impulses[range(3), range(3), 2, 2] = 1
        taps = layers.conv(impulses).flip(-1, -2)  # (in, out, tap0, tap1)
    torch.testing.assert_close(matrices["table"].W, tokens.mT)
    torch.testing.assert_close(matrices["conv"].W, taps.transpose(0, 1).flatten(1))
    assert set(matrices) == {"fc", "table", "conv"}


def test_peft_adalora() -> None:
    peft = pytest.importorskip("peft")
    config = peft.AdaLoraConfig(init_r=3, lora_alpha=5, target_modules=["fc"], total_step=10)
    model = randomised(peft.get_peft_model(Small(), config))
    layer = model.base_model.model.fc
    name = "base_model.model.fc"
    torch.testing.assert_close(views(model)[name].W, linear_map(layer))
    product = products(model)[f"{name}.lora"]
    update = linear_map(layer) - layer.base_layer.weight.detach()
    torch.testing.assert_close(product.left @ product.right.mT, update)


def test_peft_adapters_of_several_names() -> None:
    peft = pytest.importorskip("peft")
    model = peft_model(Small(), target_modules=["fc"], use_dora=True)
    model.add_adapter("other", peft.LoraConfig(r=1, target_modules=["fc"]))
    randomised(model).base_model.set_adapter(["default", "other"])
    name, layer = "base_model.model.fc", model.base_model.model.fc
    torch.testing.assert_close(views(model)[name].W, linear_map(layer))
    with model.disable_adapter():
        torch.testing.assert_close(views(model)[name].W, layer.base_layer.weight.detach())


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # PEFT's own
def test_peft_adapts_each_expert_on_its_own() -> None:
    pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    config = transformers.MixtralConfig(
        vocab_size=16,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_local_experts=3,
    )
    plain = transformers.MixtralForCausalLM(config)
    before = copy.deepcopy(plain)
    model = peft_model(
        plain,
        target_modules=["q_proj"],
        target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
    )
    matrices, factors = views(model), products(model)
    prefix = "base_model.model."
    merged = views(copy.deepcopy(model).merge_and_unload())
    assert {prefix + name for name in merged} == set(matrices)
    for name, view in merged.items():
        torch.testing.assert_close(matrices[prefix + name].W, view.W)
    experts = "model.layers.0.mlp.experts"
    for key, layer in (("gate_up_proj", "base_layer.lora"), ("down_proj", "lora")):
        product = factors[f"{prefix}{experts}.{layer}.e2"]
        name = f"{experts}.{key}.e2"
        update = matrices[prefix + name].W - views(before)[name].W
        torch.testing.assert_close(product.left @ product.right.mT, update)
