import pytest

from rankscope.plain_names import plain_names, plain_pairs


def labels(*names: str) -> list[str]:
    return [plain.label for plain in plain_names(names)]


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("blocks.3.attention.q", "queries, layer 4"),
        ("blocks.0.attn.h7.k", "keys, layer 1, head 8"),
        ("blocks.11.w1", "MLP in, layer 12"),
        ("transformer.h.0.attn.c_attn", "queries, keys, values, layer 1"),
        ("conv7", "convolution 7"),
        ("up_dense3", "dense layer, up 3"),
        ("lstm.l1.ih", "input, layer 2"),
        ("lstm.l1.reverse.hh", "recurrent, backward, layer 2"),
        ("layers.2", "layer 3"),
        ("2", "matrix 2"),
        ("layers.2.weight", "layer 3"),
        ("embedding", "embedding"),
        ("head", "output"),
        ("block.attn.h1.q", "queries, head 2"),
        ("my.own.matrix", "my.own.matrix"),
        ("blocks.0.mixer.strange", "mixer.strange, layer 1"),
        ("<img onerror=x>", "<img onerror=x>"),
        ("", ""),
        ("a..b", "a..b"),
        ("blocks.3.attention.h5.kq", "K-Q, layer 4, head 6"),
    ],
)
def test_names_that_are_known_become_words_and_others_stay(name: str, label: str) -> None:
    assert labels(name) == [label]


def test_two_stacks_of_layers_are_told_apart() -> None:
    assert labels("encoder.layers.0.fc1", "decoder.layers.0.fc1") == [
        "MLP in, encoder layer 1",
        "MLP in, decoder layer 1",
    ]


def test_matrices_of_a_layer_share_its_block_and_depth() -> None:
    embedding, queries, keys, later = plain_names(
        ["embedding", "blocks.0.attn.q", "blocks.0.attn.k", "blocks.1.attn.q"]
    )
    assert (queries.block, keys.block, later.block) == ("layer 1", "layer 1", "layer 2")
    assert [name.depth for name in (embedding, queries, keys, later)] == [0, 1, 1, 2]
    assert queries.role == later.role == "queries"


def test_pairs_name_a_layer_once_if_both_ends_are_in_it() -> None:
    inside, between = plain_pairs(
        ["blocks.0.attn.h2.q", "blocks.0.w2"], ["blocks.0.attn.h2.k", "blocks.1.attn.qkv"]
    )
    assert inside.label == "queries > keys, layer 1, head 3"
    assert between.label == "MLP out, layer 1 > queries, keys, values, layer 2"
    assert inside.role == "queries > keys" and inside.head == 3
