"""Plain names of matrices as libraries call them."""

import pytest

from rankscope.view.names import plain_names, plain_pairs

LABELS = {
    "blocks.3.attention.q": "queries, layer 3",
    "blocks.3.attention.h5.kq": "K-Q, layer 3, head 5",
    "model.layers.11.self_attn.o_proj": "attention output, layer 11",
    "transformer.h.2.mlp.c_fc": "MLP in, layer 2",
    "embedding": "embedding",
    "lm_head": "output",
    "conv7": "conv7",
    "block.attn.h1.k": "block.attn.h1.k",
    "<img src=x>": "<img src=x>",
    "": "",
    "a..b": "a..b",
}


@pytest.mark.parametrize("name", LABELS)
def test_a_name_becomes_words_or_stays(name: str) -> None:
    assert plain_names([name])[0].label == LABELS[name]


def test_blocks_are_counted_in_the_order_of_the_model() -> None:
    names = ["embedding", "blocks.0.q", "blocks.0.k", "blocks.1.q", "output"]
    words = plain_names(names)
    assert [word.depth for word in words] == [0, 1, 1, 2, 3]
    assert words[1].role == words[3].role == "queries"


def test_stacks_are_told_apart() -> None:
    words = plain_names(["encoder.layers.0.fc1", "decoder.layers.0.fc1"])
    assert [word.block for word in words] == ["encoder layer 0", "decoder layer 0"]


def test_pairs_of_one_layer_name_it_once() -> None:
    first, second = plain_pairs(["blocks.0.q", "blocks.0.fc2"], ["blocks.0.k", "blocks.1.q"])
    assert first.label == "queries > keys, layer 0"
    assert second.label == "MLP out, layer 0 > queries, layer 1"
