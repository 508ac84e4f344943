"""Discovered pairs of recurrent modules, whose kernels autograd may see as one node."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from pairs.networks import SEQUENCE, TOKENS, Tagger, Written, names
from rankscope.pairs import Cut, discover_pairs


def test_bidirectional_lstm() -> None:
    model = Tagger(nn.LSTM(6, 4, 2, bidirectional=True, batch_first=True))
    pairs = discover_pairs(model, TOKENS)
    gates = [f"[{gate}]" for gate in "ifgo"]
    expected = {"tok > lstm.l0.ih", "tok > lstm.l0.reverse.ih"}
    for way in ("", ".reverse"):
        l0, l1 = f"lstm.l0{way}", f"lstm.l1{way}"
        two = [(l0, "ih", f"{l0}.hh"), (l1, "ih", f"{l1}.hh")]
        # Both directions above take the states of both directions below.
        uppers = ("lstm.l1.ih", "lstm.l1.reverse.ih")
        two += [(l0, role, upper) for role in ("ih", "hh") for upper in uppers]
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
    assert set(names(discover_pairs(model, TOKENS))) == {"tok > lstm.l0.ih"} | {
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
