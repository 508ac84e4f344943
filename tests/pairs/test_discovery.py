"""Pairs of models that declare nothing, their names written out by hand."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from pairs.networks import Residual, Tagger, Transformer, UNet, Written
from rankscope.matrices import views
from rankscope.pairs import Cut, Pair, Pairs, discover_pairs

IMAGE = torch.linspace(-1, 1, 2 * 4 * 6 * 6).reshape(2, 4, 6, 6)
ROWS = torch.linspace(-1, 1, 8).reshape(2, 4)
SEQUENCE = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
TOKENS = torch.tensor([[0, 1, 2, 3, 4], [4, 3, 2, 1, 0]])
CENTRE = (None, 1, 1)


def names(pairs: Pairs) -> list[str]:
    return [pair.name for pair in pairs]


def left_out(pairs: Pairs) -> set[tuple[str, str]]:
    return {(each.earlier, each.later) for each in pairs.left_out}


def test_mlp() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2))
    pairs = discover_pairs(model, ROWS)
    assert pairs == (Pair("0", "2"), Pair("2", "4"))
    assert pairs.left_out == ()


def test_vgg_with_batch_norm_and_pooling() -> None:
    model = nn.Sequential(
        *(nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)),
        nn.MaxPool2d(2),
        *(nn.Conv2d(8, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True)),
        nn.AvgPool2d(3),
        nn.Flatten(),
        nn.Linear(6, 5),
    )
    assert discover_pairs(model, IMAGE) == (
        Pair("0", "4", kind="conv", later_cut=Cut((8, 3, 3), CENTRE)),
        Pair("4", "9"),
    )


def test_residual_net_ignores_shortcuts_and_keeps_parallel_branches() -> None:
    pairs = discover_pairs(Residual(), torch.randn(2, 3, 6, 6))
    assert names(pairs) == [
        "stem > a.conv1",
        "a.conv1 > a.conv2",
        "a.conv2 > b.conv1",
        "b.conv1 > b.conv2",
        "a.conv2 > b.shortcut",
        "b.conv2 > c.conv1",
        "b.shortcut > c.conv1",
        "c.conv1 > c.conv2",
        "c.conv2 > head",
    ]
    assert pairs[5].later_cut == Cut((8, 3, 3), CENTRE)
    assert pairs[4].later_cut is None


def block(layer: str, attention: str, output: str, *, heads: int) -> list[str]:
    queries = [f"{layer}.{attention}.h{h}.q > {layer}.{attention}.h{h}.k" for h in range(heads)]
    return [*queries, f"{layer}.{attention}.v > {layer}.{attention}.{output}"]


def test_pre_norm_transformer_with_fused_attention() -> None:
    pairs = discover_pairs(Transformer(), TOKENS)
    assert names(pairs) == [
        "tok > layers.0.attn.qkv",
        "pos > layers.0.attn.qkv",
        *block("layers.0", "attn", "proj", heads=2),
        "layers.0.attn.proj > layers.0.w1",
        "layers.0.w1 > layers.0.w2",
        "layers.0.w2 > layers.1.attn.qkv",
        *block("layers.1", "attn", "proj", heads=2),
        "layers.1.attn.proj > layers.1.w1",
        "layers.1.w1 > layers.1.w2",
        "layers.1.w2 > head",
    ]
    assert pairs.left_out == ()


@pytest.mark.parametrize("norm_first", [True, False])
def test_torch_encoder_layers(norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    assert names(discover_pairs(model, torch.randn(2, 3, 8))) == [
        *block("layers.0", "self_attn", "out_proj", heads=2),
        "layers.0.self_attn.out_proj > layers.0.linear1",
        "layers.0.linear1 > layers.0.linear2",
        "layers.0.linear2 > layers.1.self_attn.qkv",
        *block("layers.1", "self_attn", "out_proj", heads=2),
        "layers.1.self_attn.out_proj > layers.1.linear1",
        "layers.1.linear1 > layers.1.linear2",
    ]


def test_gpt2_with_tied_embedding() -> None:
    config = GPT2Config(
        vocab_size=9, n_positions=8, n_embd=8, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    pairs = discover_pairs(GPT2LMHeadModel(config), TOKENS)
    first, second = "transformer.h.0", "transformer.h.1"
    assert names(pairs) == [
        f"transformer.wte > {first}.attn.c_attn",
        f"transformer.wpe > {first}.attn.c_attn",
        *block(first, "attn", "c_proj", heads=2),
        f"{first}.attn.c_proj > {first}.mlp.c_fc",
        f"{first}.mlp.c_fc > {first}.mlp.c_proj",
        f"{first}.mlp.c_proj > {second}.attn.c_attn",
        *block(second, "attn", "c_proj", heads=2),
        f"{second}.attn.c_proj > {second}.mlp.c_fc",
        f"{second}.mlp.c_fc > {second}.mlp.c_proj",
        f"{second}.mlp.c_proj > transformer.wte",
    ]
    # The embedding is W = stored.T, so as the output layer it takes activations on its output side.
    assert (pairs[-1].earlier_side, pairs[-1].later_side) == ("out", "out")
    assert {(pair.earlier_side, pair.later_side) for pair in pairs[:2]} == {("out", "in")}


def test_llama_with_shared_key_heads_and_gates() -> None:
    config = LlamaConfig(
        vocab_size=9,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=16,
        bos_token_id=0,
        eos_token_id=0,
    )
    pairs = discover_pairs(LlamaForCausalLM(config), input_ids=TOKENS)
    expected = {"model.layers.1.mlp.down_proj > lm_head"}
    for layer, before in ((0, "model.embed_tokens"), (1, "model.layers.0.mlp.down_proj")):
        attention, mlp = f"model.layers.{layer}.self_attn", f"model.layers.{layer}.mlp"
        expected |= {f"{before} > {attention}.{role}_proj" for role in "qkv"}
        expected |= {f"{attention}.h{head}.q > {attention}.h{head}.k" for head in range(4)}
        expected |= {f"{attention}.h{head}.v > {attention}.o_proj" for head in range(4)}
        for gate in ("gate_proj", "up_proj"):
            expected |= {f"{attention}.o_proj > {mlp}.{gate}", f"{mlp}.{gate} > {mlp}.down_proj"}
    assert set(names(pairs)) == expected
    assert len(pairs) == len(expected)
    value = next(pair for pair in pairs if pair.earlier == "model.layers.1.self_attn.h3.v")
    assert value.later_cut == Cut((4, 2), (3, None))


def test_bidirectional_lstm() -> None:
    model = Tagger(nn.LSTM(6, 4, 2, bidirectional=True, batch_first=True))
    pairs = discover_pairs(model, TOKENS)
    gates = [f"[{gate}]" for gate in "ifgo"]
    expected = {"tok > lstm.l0.ih", "tok > lstm.l0.reverse.ih"}
    for way in ("", ".reverse"):
        l0, l1 = f"lstm.l0{way}", f"lstm.l1{way}"
        two = [(l0, "ih", f"{l0}.hh"), (l1, "ih", f"{l1}.hh")]
        two += [(l0, role, f"{l1}.ih") for role in ("ih", "hh")]
        two += [(l1, role, "out") for role in ("ih", "hh")]
        expected |= {f"{layer}.{role} > {later} {g}" for layer, role, later in two for g in gates}
    assert set(names(pairs)) == expected
    assert len(pairs) == len(expected)
    by_name = {pair.name: pair for pair in pairs}
    last = by_name["lstm.l1.reverse.hh > out [g]"]
    assert last.earlier_cut == Cut((4, 4), (2, None))
    assert last.later_cut == Cut((2, 4), (1, None))
    assert by_name["lstm.l1.ih > out [i]"].later_cut == Cut((2, 4), (0, None))
    assert pairs.left_out == ()


def test_packed_sequences_and_a_backend_that_unrolls_time() -> None:
    lstm = nn.GRU(6, 4, batch_first=True)

    def forward(self: nn.Module, tokens: Tensor) -> Tensor:
        packed = pack_padded_sequence(self.tok(tokens), torch.tensor([5, 3]), batch_first=True)
        return self.out(pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0])

    model = Written(forward, tok=nn.Embedding(11, 6), lstm=lstm, out=nn.Linear(4, 3))
    found = set(names(discover_pairs(model, TOKENS)))
    assert found == {"tok > lstm.l0.ih"} | {
        f"lstm.l0.{earlier} > {later} [{gate}]"
        for earlier, later in (("ih", "lstm.l0.hh"), ("ih", "out"), ("hh", "out"))
        for gate in "rzn"
    }


def test_final_states_of_a_recurrent_module() -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        final = self.rnn(x)[1]
        return self.out(torch.cat([final[-2], final[-1]], -1))

    rnn = nn.RNN(4, 3, 2, bidirectional=True, batch_first=True)
    model = Written(forward, rnn=rnn, out=nn.Linear(6, 2))
    pairs = [pair for pair in discover_pairs(model, SEQUENCE) if pair.later == "out"]
    assert {(pair.earlier, pair.later_cut) for pair in pairs} == {
        (f"rnn.l1.{way}{role}", Cut((2, 3), (half, None)))
        for half, way in enumerate(("", "reverse."))
        for role in ("ih", "hh")
    }


def test_a_cell_in_a_loop() -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        state = (torch.zeros(2, 3), torch.zeros(2, 3))
        for step in range(x.shape[1]):
            state = self.cell(self.inner(x[:, step]), state)
        return self.out(state[0])

    model = Written(forward, inner=nn.Linear(4, 6), cell=nn.LSTMCell(6, 3), out=nn.Linear(3, 2))
    assert set(names(discover_pairs(model, SEQUENCE))) == {"inner > cell.ih"} | {
        f"cell.{earlier} > {later} [{gate}]"
        for earlier, later in (("ih", "cell.hh"), ("ih", "out"), ("hh", "out"))
        for gate in "ifgo"
    }


def test_unet_with_concatenated_skips() -> None:
    pairs = discover_pairs(UNet(), torch.randn(2, 1, 8, 8), torch.randn(2, 5))
    cuts = {pair.name: (pair.kind, pair.earlier_cut, pair.later_cut) for pair in pairs}
    assert cuts == {
        "down1 > down2": ("conv", None, Cut((4, 3, 3), CENTRE)),
        "embed > dense": ("linear", None, None),
        "down2 > middle": ("conv", None, Cut((6, 3, 3), CENTRE)),
        "dense > middle": ("conv", None, Cut((6, 3, 3), CENTRE)),
        "middle > up2": ("conv", None, Cut((2, 6, 2, 2), (0, None, 1, 1))),
        "down2 > up2": ("conv", None, Cut((2, 6, 2, 2), (1, None, 1, 1))),
        "dense > up2": ("conv", None, Cut((2, 6, 2, 2), (1, None, 1, 1))),
        "up2 > up1": ("conv", None, Cut((9, 3, 3), ((0, 5), 1, 1))),
        "down1 > up1": ("conv", None, Cut((9, 3, 3), ((5, 9), 1, 1))),
    }
    assert pairs.left_out == ()


def squeeze_and_excite(self: nn.Module, x: Tensor) -> Tensor:
    x = self.a(x)
    gate = torch.sigmoid(self.wide(F.relu(self.narrow(x.mean((2, 3))))))
    return self.b(x + x * gate[:, :, None, None])


def per_token(self: nn.Module, x: Tensor) -> Tensor:
    return self.channels(self.tokens(self.inner(x).mT).mT)


@pytest.mark.parametrize(
    ("model", "example", "expected"),
    [
        (
            Written(
                squeeze_and_excite,
                a=nn.Conv2d(4, 6, 1),
                narrow=nn.Linear(6, 2),
                wide=nn.Linear(2, 6),
                b=nn.Conv2d(6, 3, 1),
            ),
            IMAGE,
            {"a > narrow", "narrow > wide", "a > b", "wide > b"},
        ),
        (
            nn.Sequential(nn.Linear(4, 6), nn.GLU(), nn.Linear(3, 2)),
            ROWS,
            {"0 > 2 [out 0:3]", "0 > 2 [out 3:6]"},
        ),
        (
            Written(
                lambda self, x: self.b(torch.cat([self.a(x), self.a(-x)], -1)),
                a=nn.Linear(4, 3),
                b=nn.Linear(6, 2),
            ),
            ROWS,
            {"a > b [in 0:3]", "a > b [in 3:6]"},
        ),
        (
            nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), nn.Linear(5, 2)),
            ROWS,
            {"0.parametrizations.weight.original1 > 1"},
        ),
        (
            nn.Sequential(
                nn.Linear(4, 5), nn.utils.parametrizations.spectral_norm(nn.Linear(5, 2))
            ),
            ROWS,
            {"0 > 1.parametrizations.weight.original"},
        ),
        (
            nn.Sequential(
                nn.Conv2d(4, 5, 1), nn.utils.parametrizations.weight_norm(nn.Conv2d(5, 2, 3))
            ),
            IMAGE,
            {"0 > 1.parametrizations.weight.original1"},
        ),
        (nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 2)), ROWS[0], {"0 > 1"}),
        (
            Written(
                lambda self, x: self.b(self.a(x)) + self.a(x), a=nn.Linear(4, 4), b=nn.Linear(4, 4)
            ),
            ROWS,
            {"a > b"},
        ),
    ],
    ids=[
        "gate",
        "glu",
        "siamese",
        "weight_norm",
        "spectral_norm",
        "weight_norm_conv",
        "vector",
        "reused",
    ],
)
def test_other_ways_to_connect(model: nn.Module, example: Tensor, expected: set[str]) -> None:
    assert set(names(discover_pairs(model, example))) == expected


def test_bare_parameters_are_paired_on_the_sides_that_meet() -> None:
    """x @ A sums over A's first axis, which a rule that does not know it reads as outputs."""

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        return x @ self.a @ self.b.T

    model = Written(forward)
    model.a = nn.Parameter(torch.ones(4, 5))
    model.b = nn.Parameter(torch.ones(3, 5))
    (pair,) = discover_pairs(model, SEQUENCE)
    assert pair == Pair("a", "b", earlier_side="in", later_side="in")


def test_attention_that_no_rule_knows_still_pairs_values_with_the_output() -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, 2)).transpose(1, 2) for part in self.mix(x).chunk(3, -1))
        return self.last(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))

    model = Written(forward, mix=nn.Linear(4, 12), last=nn.Linear(4, 3))
    assert discover_pairs(model, SEQUENCE) == (
        Pair("mix", "last", earlier_cut=Cut((3, 4), (2, None))),
    )


def test_grouped_convolutions_pair_groups_that_contain_each_other() -> None:
    model = nn.Sequential(
        nn.Conv2d(4, 6, 1, groups=2),
        nn.Conv2d(6, 6, 1, groups=2),
        nn.Conv2d(6, 4, 1),
        nn.Conv2d(4, 6, 1, groups=2),
        nn.Conv2d(6, 6, 1, groups=3),
    )
    pairs = discover_pairs(model, IMAGE)
    assert {(pair.name, pair.earlier_cut, pair.later_cut) for pair in pairs} == {
        ("0.g0 > 1.g0", None, None),
        ("0.g1 > 1.g1", None, None),
        ("1.g0 > 2", None, Cut((2, 3), (0, None))),
        ("1.g1 > 2", None, Cut((2, 3), (1, None))),
        ("2 > 3.g0", Cut((2, 2), (0, None)), None),
        ("2 > 3.g1", Cut((2, 2), (1, None)), None),
        ("3.g0 > 4.g0", Cut((3,), ((0, 2),)), None),
        ("3.g1 > 4.g2", Cut((3,), ((1, 3),)), None),
    }
    assert left_out(pairs) == {("3.g0", "4.g1"), ("3.g1", "4.g1")}


def test_depthwise_convolutions_are_looked_through() -> None:
    model = nn.Sequential(nn.Conv2d(4, 6, 1), nn.Conv2d(6, 6, 3, groups=6), nn.Conv2d(6, 5, 1))
    pairs = discover_pairs(model, IMAGE)
    assert names(pairs) == ["0 > 2"]
    assert left_out(pairs) == {("1", "")}


@pytest.mark.parametrize(
    ("model", "example", "earlier", "later", "reason"),
    [
        (
            nn.Sequential(nn.Conv2d(4, 8, 1), nn.PixelShuffle(2), nn.Conv2d(2, 3, 1)),
            IMAGE,
            "0",
            "2",
            "PixelShuffle",
        ),
        (
            # As many tokens as channels: sizes alone would not tell them apart.
            Written(
                per_token, inner=nn.Linear(4, 3), tokens=nn.Linear(3, 3), channels=nn.Linear(3, 2)
            ),
            SEQUENCE,
            "inner",
            "tokens",
            "become positions",
        ),
        (
            nn.Sequential(
                nn.Conv2d(4, 4, 1),
                nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 1, groups=2)),
            ),
            IMAGE,
            "0",
            "1.parametrizations.weight.original1",
            "read with 2 inputs where 4 arrive",
        ),
        (
            # Autograd keeps no sizes of constants, so it is not known where the outputs begin.
            Written(
                lambda self, x: self.b(torch.cat([x[:, :1], self.a(x), x[:, :1]], 1)),
                a=nn.Linear(4, 3),
                b=nn.Linear(5, 2),
            ),
            ROWS,
            "a",
            "b",
            "constants of unknown size",
        ),
        (
            Written(lambda self, x: self.a(x), a=nn.Linear(4, 3), idle=nn.Linear(3, 3)),
            ROWS,
            "idle",
            "",
            "no product",
        ),
    ],
    ids=["pixel_shuffle", "other_axis", "computed_groups", "constants", "unused"],
)
def test_what_cannot_be_paired_is_reported(
    model: nn.Module, example: Tensor, earlier: str, later: str, reason: str
) -> None:
    pairs = discover_pairs(model, example)
    found = [each for each in pairs.left_out if (each.earlier, each.later) == (earlier, later)]
    assert len(found) == 1
    assert reason in found[0].reason
    assert (earlier, later) not in {(pair.earlier, pair.later) for pair in pairs}


@pytest.mark.parametrize("model", [Transformer(), Tagger(nn.LSTM(6, 4, 2, bidirectional=True))])
def test_every_name_is_a_matrix_and_every_name_is_given_once(model: nn.Module) -> None:
    pairs = discover_pairs(model, TOKENS)
    matrices = views(model, parts=True)
    assert {name for pair in pairs for name in (pair.earlier, pair.later)} <= set(matrices)
    assert len(set(names(pairs))) == len(pairs)


def entries(cut: Cut | None, size: int) -> list[int]:
    """Which entries of a vector a cut keeps."""
    numbers = torch.arange(size)[:, None]
    return (numbers if cut is None else cut(numbers))[:, 0].tolist()


@pytest.mark.parametrize(
    ("model", "example"),
    [
        (nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), nn.Conv2d(6, 3, 3, padding=1)), IMAGE),
        (nn.Sequential(nn.Conv2d(4, 2, 4), nn.Flatten(), nn.Linear(18, 3)), IMAGE),
        (nn.Sequential(nn.Linear(4, 18), nn.Unflatten(1, (2, 3, 3)), nn.Conv2d(2, 3, 3)), ROWS),
        (nn.Sequential(nn.Conv2d(4, 6, 1), nn.Conv2d(6, 4, 3, groups=2)), IMAGE),
        (nn.Sequential(nn.Conv2d(4, 6, 1, groups=2), nn.Conv2d(6, 2, 3)), IMAGE),
        (
            Written(
                lambda self, x: self.b(torch.cat([x, self.a(x)[:, 1:4], self.a(x)], 1)),
                a=nn.Conv2d(4, 5, 1),
                b=nn.Conv2d(12, 2, 3),
            ),
            IMAGE,
        ),
    ],
    ids=["centre", "flatten", "unflatten", "ungrouped_grouped", "grouped_ungrouped", "slices"],
)
def test_the_entries_that_meet_are_the_same_features(model: nn.Module, example: Tensor) -> None:
    """With one output of the earlier and one input of the later matrix alone, something passes
    through if and only if the cuts match them."""
    model = model.double()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    found = discover_pairs(model, example.double())
    assert found
    matrices = views(model)
    with torch.no_grad():
        for pair in found:
            earlier, later = matrices[pair.earlier], matrices[pair.later]
            rows, columns = entries(pair.earlier_cut, earlier.m), entries(pair.later_cut, later.n)
            assert len(rows) == len(columns)
            for i, row in enumerate(rows):
                for j, column in enumerate(columns):
                    # Views share memory with the model's own tensors.
                    earlier.W[row], later.W[:, column] = 1, 1
                    assert bool(model(example.double()).any()) == (i == j)
                    earlier.W[row], later.W[:, column] = 0, 0
