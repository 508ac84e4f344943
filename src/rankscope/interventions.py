"""Networks changed on purpose: truncated SVDs (yunis2024, fig. 6), or noise on every matrix.

`reestimate_batchnorm` measures BatchNorm statistics again for the changed network.
"""

import copy
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any, Literal

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from rankscope.matrices import Reading, View, Views, named_tensors, plain_model, views
from rankscope.metrics import energy_rank
from rankscope.spectra import Svd, decompose

Part = Literal["top", "bottom"]
# Number of leading directions of k, from the singular values; without these, the most it may be.
Count = Callable[[int, Tensor | None], int]


def truncate(
    model: nn.Module,
    *,
    keep: float | None = None,
    rank: int | None = None,
    energy: float | None = None,
    part: Part = "top",
    skip: str | Collection[str] | None = None,
    decompositions: Mapping[str, Svd] | None = None,
) -> nn.Module:
    """Return a copy of `model` in which every matrix is the top (or bottom) part of its SVD.

    keep, rank, energy: how many of the k = min(m, n) directions to keep; pass one of them. A share
        of them, 0.5 by default; a number of them, at most k; or, for the top part, as few as hold
        this share of the sum of squared singular values.

    Where the model computes a weight from parts (weight norm, pruning, adapters), the copy stores
    the truncated weight itself instead of the parts.

    The top part is the best approximation by that many directions; a share is rounded to the
    nearest number, ties up. The bottom part is what the other directions leave over:
    top(keep) + bottom(1 - keep) = W. Tied weights stay tied. BatchNorm statistics stay those of
    `model`; measure them again:

        half = rankscope.truncate(model, keep=0.5)
        generator = torch.Generator().manual_seed(0)
        reestimate_batchnorm(half, sample_batches(images, generator=generator))

    skip: names or patterns (`blocks.*.w1`) of matrices to leave whole, () for none. The default is
        the last `nn.Linear` in the order of registration, as in the paper. An embedding tied to it
        stays whole too.
    decompositions: known decompositions by name, such as a snapshot's; the rest is decomposed here.
    """
    leading = leading_count(keep, rank, energy, part)
    _require_whole(model)

    changed, refused = plain_copy(model)
    matrices = views(changed, exclude=last_linear(changed) if skip is None else skip)
    _check_replaceable(matrices, refused)
    svds = leading_directions(matrices, leading, decompositions or {})

    def replacement(view: View) -> Tensor:
        W, svd = view.W.double(), svds[view.name]
        r = leading(min(view.m, view.n), svd.S)
        top = projected(W, svd.U[:, :r] if view.m <= view.n else svd.Vh[:r].mT)
        return top if part == "top" else W - top

    replace_matrices(changed, matrices, replacement)
    return changed


def leading_count(keep: float | None, rank: int | None, energy: float | None, part: Part) -> Count:
    """Return the number of leading directions that `truncate` keeps as top, or takes away."""
    if part not in ("top", "bottom"):
        raise ValueError(f"part must be 'top' or 'bottom', got {part!r}")
    given = {"keep": keep, "rank": rank, "energy": energy}
    if len(names := [name for name, value in given.items() if value is not None]) > 1:
        raise ValueError(f"pass one of keep, rank and energy, got {' and '.join(names)}")
    if rank is not None:
        if rank < 0:
            raise ValueError(f"rank is a number of directions, 0 or more, got {rank}")
        return lambda k, S: min(rank, k) if part == "top" else max(k - rank, 0)
    if energy is not None:
        if part == "bottom":
            raise ValueError("energy counts from the top; pass keep or rank for the bottom part")
        # A zero matrix has no energy, and no direction holds any of it.
        return lambda k, S: k if S is None else int(energy_rank(S, energy).nan_to_num(0))
    share = 0.5 if keep is None else keep
    if not 0 <= share <= 1:
        raise ValueError(f"keep is the share of directions kept, between 0 and 1, got {keep}")
    return lambda k, S: directions_kept(k, share if part == "top" else 1 - share)


def _require_whole(model: nn.Module) -> None:
    """Raise ValueError if the weights are shards, which a copy on one rank cannot hold."""
    if any(hasattr(tensor, "full_tensor") for tensor in named_tensors(model).values()):
        raise ValueError(
            "the model is sharded, and only a whole one can be changed; on every rank, gather its "
            "weights with torch.distributed.checkpoint.state_dict.get_model_state_dict(model, "
            "options=StateDictOptions(full_state_dict=True)), then load them into an unsharded "
            "model and pass that"
        )


def directions_kept(k: int, share: float) -> int:
    """Return the number of directions in a share of k: the nearest, ties up (2 of 3 at 0.5)."""
    # Without the inner rounding, 0.1 * 5 and (1 - 0.9) * 5 fall on different sides of the tie.
    return math.floor(round(share * k, 9) + 0.5)


def projected(W: Float[Tensor, "m n"], directions: Float[Tensor, "k r"]) -> Float[Tensor, "m n"]:
    """Return U U^T W if m <= n, else W V V^T: the shorter vectors suffice and cost less.

    With the r leading directions, this is the best approximation of W of rank r.
    """
    m, n = W.shape
    basis = directions.to(W)
    return basis @ (basis.mT @ W) if m <= n else (W @ basis) @ basis.mT


def leading_directions(matrices: Views, count: Count, known: Mapping[str, Svd]) -> dict[str, Svd]:
    """Return the `known` decompositions and those of the other matrices, with enough directions."""
    ranks = {
        name: count(min(reading.m, reading.n), known[name].S if name in known else None)
        for name, reading in matrices.readings.items()
    }
    for name in matrices.readings.keys() & known.keys():
        available = min(known[name].U.shape[1], known[name].Vh.shape[0])
        if available < ranks[name]:
            raise ValueError(
                f"matrix {name!r}: {ranks[name]} directions are needed, its decomposition has "
                f"{available}; decompose with more, or leave it out of `decompositions`"
            )
    missing = {name: view for name, view in matrices.items() if name not in known}
    return {**known, **decompose(missing, ranks=ranks)}


def perturb(model: nn.Module, *, std: float, generator: torch.Generator) -> nn.Module:
    """Return a copy of `model` with Gaussian noise of deviation `std` added to every matrix."""
    return perturbed(model, lambda W: std, generator)


def perturb_relative(model: nn.Module, *, ratio: float, generator: torch.Generator) -> nn.Module:
    """Return a copy of `model` with Gaussian noise of `ratio` times each matrix's rms added."""
    return perturbed(model, lambda W: ratio * float(W.square().mean().sqrt()), generator)


def perturbed(
    model: nn.Module, scale: Callable[[Tensor], float], generator: torch.Generator
) -> nn.Module:
    """Return a copy of `model` with noise of deviation scale(W) added to every matrix W."""
    _require_whole(model)
    changed, refused = plain_copy(model)
    matrices = views(changed)
    _check_replaceable(matrices, refused)

    def replacement(view: View) -> Tensor:
        W = view.W.double()
        noise = torch.randn(W.shape, dtype=W.dtype, device=generator.device, generator=generator)
        return W + scale(W) * noise.to(W.device)

    replace_matrices(changed, matrices, replacement)
    return changed


def plain_copy(model: nn.Module) -> tuple[nn.Module, dict[str, str]]:
    """Return a copy that stores the weights it multiplies by, as plain parameters.

    Weight norm, pruning masks and adapters become part of the weights. The second result says, by
    tensor, where that is not possible.
    """
    # torch copies no tensor that has a graph, such as a weight that a hook computed.
    computed = {
        id(value): value.detach().clone()
        for module in model.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor) and not value.is_leaf
    }
    plain = plain_model(copy.deepcopy(model, computed))
    return plain.model, plain.notes


def _check_replaceable(matrices: Views, refused: Mapping[str, str]) -> None:
    for name, reading in matrices.readings.items():
        if reading.parameter in refused:
            raise ValueError(
                f"matrix {name!r} cannot be replaced: {refused[reading.parameter]}; leave it whole "
                "with skip=, or merge its parts first"
            )


def last_linear(model: nn.Module) -> set[str]:
    """Return the names of the matrices read from the last `nn.Linear`; none without one."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    own = {id(tensor) for layer in layers[-1:] for tensor in layer.parameters()}
    readings, tensors = views(model).readings, named_tensors(model)
    return {name for name, reading in readings.items() if id(tensors[reading.parameter]) in own}


@torch.no_grad()
def replace_matrices(
    model: nn.Module, matrices: Views, replacement: Callable[[View], Tensor]
) -> None:
    """Write replacement(view) over each of the `matrices` of `model`, in place."""
    by_parameter: dict[str, list[Reading]] = {}
    for reading in matrices.readings.values():
        by_parameter.setdefault(reading.parameter, []).append(reading)
    tensors = named_tensors(model)
    for parameter, readings in by_parameter.items():
        changes = [(reading, replacement(matrices[reading.name])) for reading in readings]
        tensors[parameter].copy_(rewritten(tensors[parameter], changes))


def rewritten(
    tensor: Num[Tensor, "..."], matrices: Iterable[tuple[Reading, Tensor]]
) -> Num[Tensor, "..."]:
    """Return a copy of `tensor` from which each reading reads the matrix given with it.

    A view may be a copy (swapped axes), so writing to it would not reach the tensor. Reading a
    tensor of positions tells where every entry of a matrix is stored.
    """
    entries = tensor.detach().flatten().clone()
    positions = torch.arange(tensor.numel(), device=tensor.device).reshape(tensor.shape)
    for reading, W in matrices:
        entries[reading.view(positions).W.flatten()] = W.flatten().to(entries.dtype)
    return entries.reshape(tensor.shape)


def reestimate_batchnorm(
    model: nn.Module, batches: Iterable[Any], *, generator: torch.Generator | None = None
) -> None:
    """Measure the running statistics of every BatchNorm of `model` again, in place, over `batches`.

    They become the plain average of the batches' means and (unbiased) variances; batches should be
    of equal size. Everything but BatchNorm runs in eval mode, without gradients. Modes and momenta
    are restored.

    batches: arguments of the model: a tensor, a tuple of arguments, or a dict of keyword arguments.
    generator: source of the random numbers that the model draws while it runs.
    """
    norms = [
        module
        for module in model.modules()
        if isinstance(module, _BatchNorm) and module.track_running_stats
    ]
    if not norms:
        return
    remaining = iter(batches)
    try:
        first = next(remaining)
    except StopIteration:
        raise ValueError("BatchNorm needs at least one batch to measure, got none") from None
    with torch.no_grad(), measuring(model, norms), separate_randomness(generator):
        for norm in norms:
            norm.reset_running_stats()
        for batch in chain([first], remaining):
            call(model, batch)


def call(model: nn.Module, batch: Any) -> None:
    """Call `model` with a tensor, a tuple of arguments, or a dict of keyword arguments."""
    if isinstance(batch, Mapping):
        model(**batch)
    elif isinstance(batch, tuple):
        model(*batch)
    else:
        model(batch)


@contextmanager
def measuring(model: nn.Module, norms: Collection[_BatchNorm]) -> Iterator[None]:
    """Put the norms into train mode with a plain average and the rest into eval mode."""
    modes = {module: module.training for module in model.modules()}
    momenta = {norm: norm.momentum for norm in norms}
    try:
        model.eval()
        for norm in norms:
            norm.train()
            # None is torch's sign for a plain average over all batches since the reset.
            norm.momentum = None
        yield
    finally:
        for module, training in modes.items():
            module.training = training
        for norm, momentum in momenta.items():
            norm.momentum = momentum


@contextmanager
def separate_randomness(generator: torch.Generator | None) -> Iterator[None]:
    """Draw from `generator` (or from the global state) and restore the global state."""
    devices = range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)
    with torch.random.fork_rng(devices=list(devices)):
        if generator is not None:
            # Not torch.manual_seed: that would also seed a GPU nobody has used yet, for good.
            seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
            torch.default_generator.manual_seed(seed)
            for device in devices:
                torch.cuda.default_generators[device].manual_seed(seed)
        yield


def sample_batches(
    inputs: Num[Tensor, "sample ..."],
    *,
    samples: int = 2000,
    batch_size: int = 100,
    generator: torch.Generator,
) -> Iterator[Num[Tensor, "batch ..."]]:
    """Return full batches of `samples` inputs drawn without repetition; a remainder is dropped."""
    samples = min(samples, len(inputs))
    if not 1 <= batch_size <= samples:
        raise ValueError(
            f"batch_size must be between 1 and the {samples} samples, got {batch_size}"
        )
    order = torch.randperm(len(inputs), generator=generator, device=generator.device)
    chosen = order[: samples - samples % batch_size].to(inputs.device)
    return (inputs[indices] for indices in torch.split(chosen, batch_size))
