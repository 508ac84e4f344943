"""Pairs of a model that `fully_shard` has sharded, in one process of its own group."""

from collections.abc import Iterator
from copy import deepcopy

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from rankscope.pairs import Pairs, discover_pairs

TOKENS = torch.tensor([[0, 3, 1, 2, 4]])


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tok = nn.Embedding(5, 8)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.scale = nn.Linear(8, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tok(tokens)
        for layer in self.layers:
            x = layer(x)
        # The module itself is not called.
        x = nn.functional.linear(x, self.scale.weight)
        return self.head(x).relu()  # no view, of which torch warns


@pytest.fixture(scope="module", autouse=True)
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def sharded(model: nn.Module) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (1,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def sharded_pairs(model: nn.Module) -> Pairs:
    shards = dict(model.named_parameters())
    flags = {name: shard.requires_grad for name, shard in shards.items()}
    pairs = discover_pairs(model, TOKENS)
    after = dict(model.named_parameters())
    assert all(after[name] is shard for name, shard in shards.items())
    assert {name: shard.requires_grad for name, shard in after.items()} == flags
    return pairs


def test_a_sharded_model_has_the_pairs_of_the_whole_one() -> None:
    expected = discover_pairs(Network(), TOKENS)
    assert "scale > head" in [pair.name for pair in expected]
    model = sharded(Network())
    assert sharded_pairs(model) == expected
    assert sharded_pairs(model) == expected


def test_training_of_a_sharded_model_goes_on_as_before() -> None:
    weights = []
    for discovers in (False, True):
        model = Network()
        model.tok.weight.requires_grad_(False)
        model = sharded(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            if discovers:
                sharded_pairs(model)
            model(TOKENS).square().sum().backward()
            assert model.tok.weight.grad is None
            optimizer.step()
            optimizer.zero_grad()
        weights.append({name: deepcopy(t.full_tensor()) for name, t in model.state_dict().items()})
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name]), name
