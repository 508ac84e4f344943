"""Networks changed on purpose: the top or bottom part of every SVD (yunis2024, fig. 6), noise on
every matrix, and BatchNorm statistics measured again for the changed network."""

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

from rankscope.matrices import Reading, View, Views, named_tensors, views
from rankscope.spectra import Svd, decompose

Part = Literal["top", "bottom"]


def truncate(
    model: nn.Module,
    *,
    keep: float = 0.5,
    part: Part = "top",
    skip: str | Collection[str] | None = None,
    decompositions: Mapping[str, Svd] | None = None,
) -> nn.Module:
    """A copy of `model` in which every matrix is the top (or bottom) part of its SVD.

    The top part is the best approximation by a share `keep` of the k = min(m, n) directions, ties
    rounded up (`kept`); the bottom part is what the top share 1 - keep leaves over, so that
    top(keep) + bottom(1 - keep) = W. Tied weights stay tied. BatchNorm statistics are still those
    of `model`; a network that has them needs new ones:

        half = rankscope.truncate(model, keep=0.5)
        generator = torch.Generator().manual_seed(0)
        reestimate_batchnorm(half, sample_batches(images, generator=generator))

    skip: matrices left whole, as names or patterns (`blocks.*.w1`), () for none. By default the
        last linear layer as in the paper: the last `nn.Linear` in the order modules were
        registered; where its weight is tied to an embedding, that stays whole too.
    decompositions: by name, those at hand already (a snapshot's); the rest is decomposed once.
    """
    if not 0 <= keep <= 1:
        raise ValueError(f"keep is the share of directions kept, between 0 and 1, got {keep}")
    if part not in ("top", "bottom"):
        raise ValueError(f"part must be 'top' or 'bottom', got {part!r}")
    share = keep if part == "top" else 1 - keep

    changed = copy.deepcopy(model)
    found = views(changed, exclude=last_linear(changed) if skip is None else skip)
    known = leading_directions(found, share, decompositions or {})

    def replacement(view: View) -> Tensor:
        W = view.W.double()
        top = top_part(W, known[view.name], kept(min(view.m, view.n), share))
        return top if part == "top" else W - top

    replace_matrices(changed, found, replacement)
    return changed


def kept(k: int, share: float) -> int:
    """How many of k directions a share of them is: the nearest number, ties up (2 of 3 at 0.5)."""
    # Without the inner rounding, 0.1 * 5 and (1 - 0.9) * 5 fall on different sides of the tie.
    return math.floor(round(share * k, 9) + 0.5)


def top_part(W: Float[Tensor, "m n"], svd: Svd, r: int) -> Float[Tensor, "m n"]:
    """The best approximation of W of rank r: W projected on its r leading directions."""
    m, n = W.shape
    return projected(W, svd.U[:, :r] if m <= n else svd.Vh[:r].mT)


def projected(W: Float[Tensor, "m n"], directions: Float[Tensor, "k r"]) -> Float[Tensor, "m n"]:
    """U U^T W where m <= n, else W V V^T: the shorter vectors are enough, and cost less."""
    m, n = W.shape
    basis = directions.to(W)
    return basis @ (basis.mT @ W) if m <= n else (W @ basis) @ basis.mT


def leading_directions(found: Views, share: float, given: Mapping[str, Svd]) -> dict[str, Svd]:
    ranks = {name: kept(min(each.m, each.n), share) for name, each in found.readings.items()}
    for name in found.readings.keys() & given.keys():
        available = min(given[name].U.shape[1], given[name].Vh.shape[0])
        if available < ranks[name]:
            raise ValueError(
                f"matrix {name!r}: {ranks[name]} directions are needed, its decomposition has "
                f"{available}; decompose with more, or leave it out of `decompositions`"
            )
    missing = {name: view for name, view in found.items() if name not in given}
    return {**given, **decompose(missing, ranks=ranks)}


def perturb(model: nn.Module, *, std: float, generator: torch.Generator) -> nn.Module:
    """A copy of `model` with Gaussian noise of standard deviation `std` added to every matrix."""
    return perturbed(model, lambda W: std, generator)


def perturb_relative(model: nn.Module, *, ratio: float, generator: torch.Generator) -> nn.Module:
    """A copy of `model` with Gaussian noise of `ratio` times each matrix's root mean square."""
    return perturbed(model, lambda W: ratio * float(W.square().mean().sqrt()), generator)


def perturbed(
    model: nn.Module, scale: Callable[[Tensor], float], generator: torch.Generator
) -> nn.Module:
    changed = copy.deepcopy(model)
    found = views(changed)

    def replacement(view: View) -> Tensor:
        W = view.W.double()
        noise = torch.randn(W.shape, dtype=W.dtype, device=generator.device, generator=generator)
        return W + scale(W) * noise.to(W.device)

    replace_matrices(changed, found, replacement)
    return changed


def last_linear(model: nn.Module) -> set[str]:
    """Names of the matrices read from the last `nn.Linear`; none where there is no such layer."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    own = {id(tensor) for layer in layers[-1:] for tensor in layer.parameters()}
    found, tensors = views(model), named_tensors(model)
    return {name for name in found if id(tensors[found.readings[name].parameter]) in own}


@torch.no_grad()
def replace_matrices(model: nn.Module, found: Views, replacement: Callable[[View], Tensor]) -> None:
    """Write replacement(view) over each matrix found in `model`, in place."""
    readings: dict[str, list[Reading]] = {}
    for reading in found.readings.values():
        readings.setdefault(reading.parameter, []).append(reading)
    tensors = named_tensors(model)
    for parameter, of_tensor in readings.items():
        matrices = [(reading, replacement(found[reading.name])) for reading in of_tensor]
        tensors[parameter].copy_(rewritten(tensors[parameter], matrices))


def rewritten(
    tensor: Num[Tensor, "..."], matrices: Iterable[tuple[Reading, Tensor]]
) -> Num[Tensor, "..."]:
    """A copy of `tensor` from which each reading now reads the matrix given with it.

    Reading a tensor of positions says where every entry of a matrix is stored, whatever the reading
    does: a view may be a copy (swapped axes), so writing to it would reach nothing.
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
    of equal size. Everything but BatchNorm runs in eval mode, without gradients; modes and momenta
    are put back. A batch is what the model is called with: a tensor, a tuple of arguments, or a
    dict of keyword arguments. What the model itself draws while running comes from `generator`.
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
    if isinstance(batch, Mapping):
        model(**batch)
    elif isinstance(batch, tuple):
        model(*batch)
    else:
        model(batch)


@contextmanager
def measuring(model: nn.Module, norms: Collection[_BatchNorm]) -> Iterator[None]:
    """The norms in train mode with a plain average, the rest in eval mode; then all as before."""
    modes = {module: module.training for module in model.modules()}
    momenta = {norm: norm.momentum for norm in norms}
    try:
        model.eval()
        for norm in norms:
            norm.train()
            # torch's sign for a plain average over all batches since the reset
            norm.momentum = None
        yield
    finally:
        for module, training in modes.items():
            module.training = training
        for norm, momentum in momenta.items():
            norm.momentum = momentum


@contextmanager
def separate_randomness(generator: torch.Generator | None) -> Iterator[None]:
    """Global draws come from `generator` (or go on as they are), and leave no trace."""
    used = torch.cuda.is_initialized()
    devices = range(torch.cuda.device_count() if used else 0)
    with torch.random.fork_rng(devices=list(devices)):
        if generator is not None:
            # Not torch.manual_seed: that would also seed a GPU nobody has used yet, for good.
            seed = int(torch.randint(2**62, (), generator=generator, device=generator.device))
            for own in (
                torch.default_generator,
                *(torch.cuda.default_generators[d] for d in devices),
            ):
                own.manual_seed(seed)
        yield


def sample_batches(
    inputs: Num[Tensor, "sample ..."],
    *,
    samples: int = 2000,
    batch_size: int = 100,
    generator: torch.Generator,
) -> Iterator[Num[Tensor, "batch ..."]]:
    """Full batches of `samples` inputs drawn without repetition; a remainder is dropped."""
    samples = min(samples, len(inputs))
    if not 1 <= batch_size <= samples:
        raise ValueError(
            f"batch_size must be between 1 and the {samples} samples, got {batch_size}"
        )
    order = torch.randperm(len(inputs), generator=generator, device=generator.device)
    chosen = order[: samples - samples % batch_size].to(inputs.device)
    return (inputs[indices] for indices in torch.split(chosen, batch_size))
