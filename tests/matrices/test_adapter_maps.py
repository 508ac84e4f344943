"""Adapters of PEFT without a formula here, against PEFT's own merging."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import rankscope as rs

peft = pytest.importorskip("peft")
WIDTH = 16


class Attention(nn.Module):
    """Attention with queries, keys, values and an output."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = 2
        names = ("q_proj", "k_proj", "v_proj", "o_proj")
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(WIDTH, WIDTH) for _ in names
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (2, -1)).transpose(-3, -2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.o_proj(mixed.transpose(-3, -2).flatten(-2))


class Model(nn.Module):
    """Embedding and attention."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.attn = nn.Embedding(20, WIDTH), Attention()

    def forward(self, tokens: Tensor) -> Tensor:
        return self.attn(self.tokens(tokens))


QUERIES = {"target_modules": ["q_proj"]}
CONFIGS = {
    "LoHa": lambda: peft.LoHaConfig(r=2, **QUERIES),
    "LoKr": lambda: peft.LoKrConfig(r=2, **QUERIES),
    "IA3": lambda: peft.IA3Config(feedforward_modules=[], **QUERIES),
    "IA3 on inputs": lambda: peft.IA3Config(feedforward_modules=["q_proj"], **QUERIES),
    "OFT": lambda: peft.OFTConfig(r=0, oft_block_size=4, **QUERIES),
    "BOFT": lambda: peft.BOFTConfig(boft_block_size=4, **QUERIES),
    "VeRA": lambda: peft.VeraConfig(r=2, **QUERIES),
    "FourierFT": lambda: peft.FourierFTConfig(n_frequency=20, **QUERIES),
    "HRA": lambda: peft.HRAConfig(r=2, **QUERIES),
    "tokens": lambda: peft.TrainableTokensConfig(token_indices=[1, 3], target_modules=["tokens"]),
    "LoRA and tokens": lambda: peft.LoraConfig(
        r=2, trainable_token_indices={"tokens": [1, 3]}, **QUERIES
    ),
}


def adapted(name: str) -> nn.Module:
    """Return a model whose adapters have random values."""
    torch.manual_seed(0)
    model = peft.get_peft_model(Model(), CONFIGS[name]())
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data += 0.1 * torch.randn_like(parameter)
    return model


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CONFIGS)
def test_matrices_are_those_of_the_merged_model(name: str) -> None:
    model = adapted(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    state = torch.get_rng_state()
    matrices = {key.removeprefix("base_model.model."): v.W for key, v in rs.views(model).items()}
    assert torch.equal(torch.get_rng_state(), state)
    after = model.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())

    merged = {key: v.W for key, v in rs.views(copy.deepcopy(model).merge_and_unload()).items()}
    plain = Model()
    assert matrices.keys() == rs.views(plain).keys()
    for key, W in merged.items():
        torch.testing.assert_close(matrices[key], W, atol=1e-5, rtol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_a_tracker_sees_heads_change_with_their_adapter(tmp_path: Path) -> None:
    model = adapted("LoHa")
    with rs.Tracker(model, tmp_path / "run", schedule=1) as tracker:
        tracker.observe(0)
        for key, parameter in model.named_parameters():
            if "hada_w1_a" in key:
                parameter.data += 1
        tracker.observe(1)
    change = rs.open(tmp_path / "run")["product_change_singular_values"].isel(step=-1)
    name = "base_model.model.attn.h0.kq"
    assert float(change.sel(product=name).max()) > 0.01


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["OFT", "HRA"])
def test_adapters_that_mix_the_inputs_of_a_layer_do_not_hide_heads(name: str) -> None:
    config = CONFIGS[name]()
    config.target_modules = {"q_proj", "k_proj", "v_proj", "o_proj"}
    model = peft.get_peft_model(Model(), config)
    (line,) = rs.verify(model, torch.arange(6)[None])
    assert line.status == "verified", line.why


class Gate(nn.Module):
    """Layer that PEFT would call an adapter, with a gate that depends on the input."""

    def __init__(self, inputs: int = 4, outputs: int = 6) -> None:
        super().__init__()
        self.base_layer, self.gate = nn.Linear(inputs, outputs), nn.Linear(inputs, outputs)
        self.active_adapters = ["default"]

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) * self.gate(x).sigmoid()


def test_an_adapter_that_is_not_linear_is_named() -> None:
    matrices = rs.views(nn.ModuleDict({"q_proj": Gate()}))
    assert "q_proj.base_layer" in matrices
    assert "is not linear" in matrices.coverage["q_proj.base_layer.weight"].how


def test_heads_with_an_adapter_that_is_not_linear_are_assumed() -> None:
    model = Attention()
    model.q_proj = Gate(WIDTH, WIDTH)
    (line,) = rs.verify(model, torch.randn(1, 6, WIDTH))
    assert line.status == "assumed" and "read without its adapter" in line.why


def test_a_layer_with_an_adapter_can_be_the_model_itself() -> None:
    layer = peft.get_peft_model(
        nn.Sequential(nn.Linear(4, 6)), peft.LoHaConfig(target_modules=["0"])
    )
    layer = layer.base_model.model[0]
    for parameter in layer.parameters():
        parameter.data += 0.1
    with torch.no_grad():
        expected = (layer(torch.eye(4)) - layer(torch.zeros(4, 4))).mT
    torch.testing.assert_close(rs.views(layer)["weight"].W, expected)
