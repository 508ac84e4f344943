"""Manifests of all kinds of layers survive JSON."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rankscope.matrices import Manifest, manifest

LAYERS = {
    "linear": lambda width: nn.Linear(width, 3),
    "embedding": lambda width: nn.Embedding(3, width),
    "conv": lambda width: nn.Conv2d(width, 2 * width, 3, groups=width),
    "up": lambda width: nn.ConvTranspose1d(width, 2, 3),
    "lstm": lambda width: nn.LSTM(width, 2, num_layers=2, bidirectional=True),
    "gru": lambda width: nn.GRU(width, 2),
    "attention": lambda width: nn.MultiheadAttention(2 * width, 2),
    "odd": lambda width: nn.Bilinear(width, 2, 3),
    "lora": lambda width: nn.ModuleDict(
        {"lora_A": nn.Linear(width, 1, bias=False), "lora_B": nn.Linear(1, 4, bias=False)}
    ),
}


@given(st.lists(st.tuples(st.sampled_from(sorted(LAYERS)), st.integers(1, 3)), max_size=4))
@settings(max_examples=30, deadline=None)
def test_json_round_trip(layers: list[tuple[str, int]]) -> None:
    model = nn.Sequential(*[LAYERS[name](width) for name, width in layers])
    before = manifest(model)
    after = Manifest.from_json(before.to_json())
    assert after == before
    assert (after.readings, after.products) == (before.readings, before.products)
    assert {reading.parameter for reading in before.readings} == set(before.tensors)


def test_tensors_and_products_of_attention() -> None:
    attention_manifest = manifest(nn.MultiheadAttention(4, 2))
    assert attention_manifest.tensors == ("in_proj_weight", "out_proj.weight")
    assert {product.kind for product in attention_manifest.products} == {"kq", "vo"}


def test_manifests_without_the_newer_fields_load() -> None:
    """Runs of earlier versions have no key heads, latents or windows in their manifests."""
    before = manifest(
        nn.ModuleDict({"attn": nn.MultiheadAttention(4, 2), "low": LAYERS["lora"](2)})
    )
    fields = json.loads(before.to_json())
    newer = ("key_heads", "output_heads", "query_latent", "key_value_latent", "note")
    for attention in fields["attentions"]:
        for key in newer:
            del attention[key]
        for role in ("query", "key", "value", "output"):
            del attention[role]["windows"]
    for reading in fields["matrices"]:
        del reading["windows"]
    for product in fields["lora"]:
        del product["left_latent"], product["right_latent"]
    assert Manifest.from_json(json.dumps(fields)) == before


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"schema":0}', '{"schema": 1}', '{"schema": 1, "matrices": [3]}', "[" * 100_000],
)
def test_anything_else_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="expected JSON of schema 1 as to_json writes it"):
        Manifest.from_json(text)
