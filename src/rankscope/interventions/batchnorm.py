"""BatchNorm statistics of a changed network, measured again over batches."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from jaxtyping import Num
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


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
