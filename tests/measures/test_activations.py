"""Activations, against a dense SVD of the outputs themselves."""

import warnings

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import rankscope as rs
from measures.training import Net, train
from rankscope.measures.activation_sums import ActivationSums
from rankscope.measures.activations import chosen_modules


class Blocks(nn.Module):
    """Two blocks, of which the second gives a tuple, and a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.blocks = nn.ModuleList([Block(6), Block(6, tuple)])
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x).flatten(2).mT
        return self.blocks[1](self.blocks[0](x))[0]


class Block(nn.Module):
    def __init__(self, width: int, kind: type = Tensor) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, None]:
        y = torch.relu(self.inner(x))
        return (y, None) if self.kind is tuple else y


def entropy_rank(X: Tensor) -> float:
    S = torch.linalg.svdvals(X.double())
    p = S[S.gt(1e-12 * S[0])] / S.sum()
    return float((-(p * p.log()).sum()).exp())


def mean_cosine(X: Tensor) -> float:
    unit = nn.functional.normalize(X.double(), dim=1)
    cosines = unit @ unit.mT
    n = len(X)
    return float((cosines.sum() - n) / (n * (n - 1)))


def steps_of(
    model: nn.Module, path, measure: rs.Activations, *, batches: int = 1, steps: int = 4, **options
) -> list[dict[str, Tensor]]:
    """Train, and return what the watched modules gave out at each step, as tokens by units."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen: list[dict[str, list[Tensor]]] = []

    def keep(name: str):
        def hook(module: nn.Module, args: object, output: Tensor) -> None:
            tensor = output[0] if isinstance(output, tuple) else output
            tokens = tensor.movedim(1, -1) if tensor.ndim == 4 else tensor
            seen[-1].setdefault(name, []).append(tokens.detach().flatten(0, -2))

        return hook

    for name in ("conv", "blocks.0", "blocks.1"):
        model.get_submodule(name).register_forward_hook(keep(name))
    with rs.Tracker(model, path, measure=measure, **{"schedule": 1, **options}) as tracker:
        for step in range(steps):
            seen.append({})
            for _ in range(batches):
                model(torch.randn(5, 1, 6, 6)).square().mean().backward()
            tracker.observe(step)
            optimizer.step()
            optimizer.zero_grad()
        assert tracker.failed is None
    return [{name: torch.cat(outputs) for name, outputs in row.items()} for row in seen]


@pytest.mark.parametrize("batches", [1, 3])
def test_ranks_and_similarity_are_those_of_all_outputs_of_the_step(tmp_path, batches: int) -> None:
    measure = rs.Activations(["conv", "blocks.*"], leading=4)
    outputs = steps_of(Blocks(), tmp_path / "run", measure, batches=batches)
    ds = rs.open(tmp_path / "run")
    assert list(ds.activation.values) == ["conv", "blocks.0", "blocks.1"]
    for step, row in enumerate(outputs):
        for name, X in row.items():
            here = ds.sel(step=step, activation=name)
            assert here.activation_tokens == len(X) == batches * 5 * 16
            S = torch.linalg.svdvals(X.double())[:4]
            np.testing.assert_allclose(here.activation_singular_values, S, rtol=1e-5, atol=1e-5)
            rank = entropy_rank(X)
            np.testing.assert_allclose(here.activation_effective_rank, rank, rtol=1e-5)
            centered = entropy_rank(X - X.mean(0))
            np.testing.assert_allclose(here.activation_effective_rank_centered, centered, rtol=1e-5)
            if name == "conv":  # relu makes some tokens 0
                cosine = mean_cosine(X)
                np.testing.assert_allclose(here.activation_token_similarity, cosine, atol=1e-6)


def test_only_steps_that_are_due_are_watched(tmp_path) -> None:
    outputs = steps_of(Blocks(), tmp_path / "run", rs.Activations("blocks.*"), steps=7, schedule=3)
    ds = rs.open(tmp_path / "run")
    assert list(ds.step.values) == [0, 3, 6]
    for step in (0, 3, 6):
        rank = ds.activation_effective_rank.sel(step=step, activation="blocks.0")
        np.testing.assert_allclose(rank, entropy_rank(outputs[step]["blocks.0"]), rtol=1e-5)


@pytest.mark.parametrize("order", ["first", "before step", "after step"])
def test_each_order_of_a_loop_has_the_forward_pass_with_the_snapshot(tmp_path, order: str) -> None:
    """A linear layer's outputs have the rank of its weight: rank 1 before the first step only."""

    def first_has_rank_one(model: nn.Module) -> torch.optim.Optimizer:
        with torch.no_grad():
            model.first.weight.copy_(torch.ones_like(model.first.weight))
            model.first.bias.zero_()
        return torch.optim.SGD(model.parameters(), lr=0.5)

    measure = [rs.Activations("first")]
    train(tmp_path / "run", measure, order=order, make=first_has_rank_one)
    ds = rs.open(tmp_path / "run")
    ranks = ds.activation_effective_rank.sel(activation="first")
    weights = ds.rankscope.effective_rank().sel(matrix="first")
    if order == "after step":  # no forward pass follows the last snapshot
        assert np.isfinite(ranks[:-1]).all() and np.isnan(ranks[-1])
    else:
        assert float(ranks[0]) == pytest.approx(1) and float(weights[0]) == pytest.approx(1)
        assert (ranks[1:] > 1.001).all()


def test_sums_of_closed_forms() -> None:
    sums = ActivationSums.zero(3, torch.device("cpu"))
    sums.add(torch.eye(3).repeat(4, 1))
    assert sums.singular_values(centered=False) == pytest.approx([2, 2, 2])
    assert rs.metrics.effective_rank(sums.singular_values(centered=True)) == pytest.approx(2)
    # 12 tokens: each has 3 others like it and 8 at a right angle.
    assert sums.similarity() == pytest.approx(3 / 11)
    assert sums.dormant_share(0.025) == 0
    one = ActivationSums.zero(2, torch.device("cpu"))
    one.add(torch.tensor([[3.0, 0.0]]))
    assert one.singular_values(centered=False) == pytest.approx([3, 0])
    assert np.isnan(one.similarity()) and one.dormant_share(0.025) == 0.5
    assert np.isnan(rs.metrics.effective_rank(one.singular_values(centered=True)))


def test_rounding_of_the_gram_matrix_is_no_rank() -> None:
    torch.manual_seed(0)
    sums = ActivationSums.zero(300, torch.device("cpu"))
    sums.add(torch.randn(2000, 1) @ torch.randn(1, 300))  # float32, so of rank 1 to 1e-7
    assert rs.metrics.effective_rank(sums.singular_values(centered=False)) < 1.01


def test_validation_and_recomputation_do_not_count(tmp_path) -> None:
    """Checkpointed blocks are called again in backward; validation is in eval mode."""

    class Checkpointed(Blocks):
        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x).flatten(2).mT
            x = checkpoint(self.blocks[0], x, use_reentrant=False)
            return checkpoint(self.blocks[1], x, use_reentrant=True)[0]

    model = Checkpointed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with rs.Tracker(model, tmp_path / "run", schedule=1, measure=rs.Activations("blocks.*")) as t:
        for step in range(2):
            model(torch.randn(5, 1, 6, 6)).square().mean().backward()
            model.eval()
            model(torch.randn(50, 1, 6, 6))
            model.train()
            t.observe(step)
            optimizer.step()
    assert (rs.open(tmp_path / "run").activation_tokens == 80).all()


def test_modules_that_are_never_called_are_told_once(tmp_path) -> None:
    model = Blocks()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    measure = rs.Activations(["blocks.0", "unused"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with rs.Tracker(model, tmp_path / "run", schedule=1, measure=measure) as tracker:
            for step in range(3):
                model(torch.randn(5, 1, 6, 6)).square().mean().backward()
                tracker.observe(step)
                optimizer.step()
    (message,) = [str(w.message) for w in caught]
    assert "1 of 2 modules, such as 'unused', gave no tensor in training mode" in message
    ranks = rs.open(tmp_path / "run").activation_effective_rank
    assert np.isfinite(ranks.sel(activation="blocks.0")).all()
    assert np.isnan(ranks.sel(activation="unused")).all()


def test_a_module_that_cannot_be_read_leaves_the_others(tmp_path) -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (2, 3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        measure = rs.Activations(["0", "1"], axis=2)  # which the outputs of "0" do not have
        with rs.Tracker(model, tmp_path / "run", schedule=1, measure=measure) as tracker:
            for step in range(2):
                model(torch.randn(5, 4)).square().mean().backward()
                tracker.observe(step)
                optimizer.step()
    assert any("activations of '0' cannot be measured" in str(w.message) for w in caught)
    tokens = rs.open(tmp_path / "run").activation_tokens
    assert np.isnan(tokens.sel(activation="0")).all()
    assert (tokens.sel(activation="1") == 10).all()


def test_a_batch_of_one_token_is_told_once(tmp_path) -> None:
    model = nn.Sequential(nn.Linear(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with rs.Tracker(model, tmp_path / "run", schedule=1, measure=rs.Activations("0")) as t:
            for step in range(3):
                model(torch.randn(1, 4)).square().mean().backward()
                t.observe(step)
                optimizer.step()
    (message,) = [str(w.message) for w in caught]
    assert "one token" in message and "'0'" in message
    ds = rs.open(tmp_path / "run")
    assert (ds.activation_effective_rank == 1).all() and np.isnan(
        ds.activation_token_similarity
    ).all()


def test_patterns_are_matched_segment_by_segment() -> None:
    model = Blocks()
    assert list(chosen_modules(model, "blocks.*")) == ["blocks.0", "blocks.1"]
    assert list(chosen_modules(model, ["blocks.0", "blocks.*.inner"])) == [
        "blocks.0",
        "blocks.0.inner",
        "blocks.1.inner",
    ]
    with pytest.raises(ValueError, match=r"'block.\*' matches no module, close: 'blocks"):
        chosen_modules(model, "block.*")


def test_compiled_models_keep_their_graph_on_other_steps(tmp_path) -> None:
    torch._dynamo.reset()
    frames: list[int] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]):
        frames.append(len(graph.graph.nodes))
        return graph.forward

    torch.manual_seed(0)
    model = Net()
    compiled = torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(4, 4, 6)
    compiled(x)
    before = list(frames)
    assert before
    measure = [rs.Activations(["first", "attention"]), rs.Updates()]
    with rs.Tracker(model, tmp_path / "run", schedule=3, measure=measure) as tracker:
        for step in range(7):
            compiled(x).square().mean().backward()
            tracker.observe(step)
            optimizer.step()
            optimizer.zero_grad()
    assert frames == before  # nothing was compiled anew, so no graph was broken
    compiled(x)
    assert frames == before
    ds = rs.open(tmp_path / "run")
    assert (ds.activation_tokens == 16).all() and ds.sizes["step"] == 3
    torch._dynamo.reset()


def test_outputs_under_autocast_are_summed_as_they_are(tmp_path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    model[0].register_forward_hook(lambda module, args, output: seen.append(output.detach()))
    measure = [rs.Activations("0"), rs.Gradients(), rs.Updates()]
    with rs.Tracker(model, tmp_path / "run", schedule=1, strict=True, measure=measure) as tracker:
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(torch.randn(16, 6)).square().mean()
        loss.backward()
        tracker.observe(0)
        optimizer.step()
    assert seen[0].dtype == torch.bfloat16
    measured = rs.open(tmp_path / "run").activation_effective_rank[0, 0]
    assert float(measured) == pytest.approx(entropy_rank(seen[0]), rel=1e-5)
