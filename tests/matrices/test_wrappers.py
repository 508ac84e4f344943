"""Names and values under wrappers are those of the bare model."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from rankscope.matrices import (
    full_tensor,
    manifest,
    named_tensors,
    products,
    state_dict_tensors,
    strip_wrappers,
    views,
)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2)
        self.module = nn.Linear(8, 8)  # a name that DDP gives too


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tok = nn.Embedding(5, 8)
        self.block = Block()
        self.head = nn.Linear(8, 5, bias=False)
        self.head.weight = self.tok.weight


# Nothing runs here, so the cheapest backend will do.
compiled = partial(torch.compile, backend="eager")
NAMES = ["tok", "block.attn.qkv", "block.attn.out_proj", "block.module"]


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    store = f"file://{tmp_path / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def check_same(wrapped: nn.Module, bare: nn.Module) -> None:
    """Check that matrices, products and manifest of both models are equal."""
    matrices, expected = views(wrapped, parts=True), views(bare, parts=True)
    assert list(matrices) == list(expected)
    assert list(views(wrapped)) == NAMES
    for name, view in expected.items():
        torch.testing.assert_close(matrices[name].W, view.W, rtol=0, atol=0)
        assert type(matrices[name].W) is Tensor
    for name, product in products(bare).items():
        torch.testing.assert_close(products(wrapped)[name].left, product.left, rtol=0, atol=0)
    assert matrices.manifest.matrices == expected.manifest.matrices
    assert matrices.manifest.attentions == expected.manifest.attentions
    assert matrices.manifest.ties == expected.manifest.ties == {"head.weight": "tok.weight"}


def compiled_inside(model: Model) -> nn.Module:
    model.block.attn = compiled(model.block.attn)
    return compiled(model)


def checkpointed(model: Model) -> nn.Module:
    model.block = checkpoint_wrapper(model.block)
    return model


@pytest.mark.parametrize(
    "wrap", [compiled, compiled_inside, checkpointed, DataParallel, AveragedModel]
)
def test_wrappers_do_not_change_names_or_values(wrap: type[nn.Module]) -> None:
    bare = Model()
    wrapped_source = Model()
    wrapped_source.load_state_dict(bare.state_dict())
    check_same(wrap(wrapped_source), bare)


def test_distributed_data_parallel(process_group: None) -> None:
    bare = Model()
    check_same(DistributedDataParallel(compiled(bare)), bare)


def test_fsdp2(process_group: None) -> None:
    bare = Model()
    sharded = Model()
    sharded.load_state_dict(bare.state_dict())
    fully_shard(sharded.block)
    fully_shard(sharded)
    assert isinstance(sharded.tok.weight, DTensor)
    check_same(sharded, bare)
    assert set(NAMES) <= set(views(sharded.state_dict()))
    gathered = views(sharded.state_dict(), like=bare)
    torch.testing.assert_close(gathered["tok"].W, views(bare)["tok"].W)


@pytest.mark.filterwarnings("ignore:.*NO_SHARD")
def test_fsdp1_is_refused_with_advice(process_group: None) -> None:
    model = FullyShardedDataParallel(nn.Sequential(nn.Linear(4, 4)), device_id=torch.device("cpu"))
    with pytest.raises(ValueError, match="fully_shard"):
        manifest(model)


def test_named_tensors_has_buffers_and_tied_names() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), Model())
    tensors = named_tensors(compiled(model))
    assert tensors["0.running_mean"] is model[0].running_mean
    assert tensors["1.head.weight"] is tensors["1.tok.weight"] is model[1].tok.weight


def test_full_tensor_is_detached_and_shares_memory() -> None:
    weight = nn.Linear(2, 2).weight
    plain = full_tensor(weight)
    assert not plain.requires_grad and plain.data_ptr() == weight.data_ptr()


def test_state_dict_keys() -> None:
    names = set(Model().state_dict())
    wrapped = DataParallel(compiled_inside(Model())).state_dict()
    assert set(state_dict_tensors(wrapped)) == names
    assert strip_wrappers("a._orig_mod.b._checkpoint_wrapped_module.weight") == "a.b.weight"
    # A model may use the name "module" without a wrapper.
    model = nn.ModuleDict({"module": nn.Linear(2, 2)})
    assert list(views(model.state_dict(), like=model)) == list(views(model)) == ["module"]


def test_a_checkpoint_with_the_weights_one_level_down() -> None:
    with pytest.raises(ValueError, match=r"expected tensors by name, got \['model', 'step'\]"):
        views({"model": Model().state_dict(), "step": 3})
