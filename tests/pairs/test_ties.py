"""Pairs of tied matrices name what the tracker reads."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from rankscope import snapshot
from rankscope.matrices import views
from rankscope.overlaps import alignment
from rankscope.pairs import Pair, inside_pairs
from rankscope.spectra import svd


def tied_attention() -> nn.Module:
    model = nn.ModuleDict({name: nn.MultiheadAttention(8, 2) for name in "ab"})
    model["b"].out_proj.weight = model["a"].out_proj.weight
    return model


def tied_recurrence() -> nn.Module:
    model = nn.ModuleDict({name: nn.LSTM(4, 4, 2) for name in "ab"})
    model["b"].weight_hh_l0 = model["a"].weight_hh_l0
    return model


def transposed() -> nn.Module:
    """An output projection stored as an embedding."""
    model = nn.ModuleDict({"tok": nn.Embedding(8, 8), "attn": nn.MultiheadAttention(8, 2)})
    model["attn"].out_proj.weight = model["tok"].weight
    return model


def untied(model: nn.Module) -> nn.Module:
    copy = deepcopy(model)
    for part in copy.modules():
        for key, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[key] = nn.Parameter(parameter.detach().clone())
    return copy


def measured(model: nn.Module, pairs: tuple[Pair, ...]) -> torch.Tensor:
    decompositions = {name: svd(view) for name, view in views(model, parts=True).items()}
    return torch.cat([alignment(pair, decompositions) for pair in pairs])


@pytest.mark.parametrize("network", [tied_attention, tied_recurrence, transposed])
def test_pairs_of_tied_matrices_measure_what_those_of_copies_do(network) -> None:
    model = network()
    pairs, expected = inside_pairs(model), inside_pairs(untied(model))
    chosen = views(model)
    assert snapshot.plan(chosen, pairs=pairs, products=False).pairs == pairs
    assert len(pairs) == len(expected)
    assert [pair.name for pair in pairs] != [pair.name for pair in expected]
    torch.testing.assert_close(measured(model, pairs), measured(untied(model), expected))


def test_shared_modules_have_one_set_of_pairs() -> None:
    layer = nn.MultiheadAttention(8, 2)
    pairs = inside_pairs(nn.ModuleDict({"a": layer, "b": layer}))
    assert {pair.name for pair in pairs} == {
        "a.h0.q > a.h0.k",
        "a.h1.q > a.h1.k",
        "a.v > a.out_proj",
    }
