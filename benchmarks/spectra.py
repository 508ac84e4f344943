"""Time and error of singular values and leading directions, compared with the obvious ways.

`python -m benchmarks.spectra [--device cuda] [--rounds 5]`. Contenders take turns in one run. Times
are medians and ratios are relative to rankscope. An error is the largest over all singular values,
in units of the matrix's largest value.

On a busy machine `--one-thread` compares CPU times of one thread, which other work hardly changes.
`--only` chooses parts: values, hard, changes, directions.
"""

import argparse
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import pairwise

import torch
from rich.console import Console
from torch import Tensor, nn

from benchmarks.timing import Contenders, ratios, seconds, table
from rankscope.matrices import Product, product_change
from rankscope.spectra import Svd, decompose, singular_values

Matrices = dict[str, Tensor]
TimeAll = Callable[[Contenders], dict[str, float]]


PARTS = ("values", "hard", "changes", "directions")


def main(
    device: str = "cpu",
    *,
    rounds: int = 5,
    one_thread: bool = False,
    only: Sequence[str] = PARTS,
) -> None:
    if one_thread:
        torch.set_num_threads(1)
    time_all = partial(
        seconds, rounds=rounds, clock=time.process_time if one_thread else time.perf_counter
    )
    if "values" in only:
        for network, matrices in (("GPT-2 small", gpt2()), ("VGG-16", vgg16())):
            values(network, {name: W.to(device) for name, W in matrices.items()}, time_all)
    if "hard" in only:
        hard_spectra(device)
    if "changes" in only:
        product_changes(device, time_all)
    if "directions" in only:
        leading_directions(device, time_all)


# Networks: shapes only, as stored.


def normal(shapes: Iterable[tuple[int, int]]) -> Matrices:
    generator = torch.Generator().manual_seed(0)
    return {
        f"{i}: {m} x {n}": torch.randn(m, n, generator=generator) * 0.02
        for i, (m, n) in enumerate(shapes)
    }


def gpt2() -> Matrices:
    """Attention and feed-forward weights of GPT-2 small: 12 layers, in by out."""
    return normal([(768, 2304), (768, 768), (768, 3072), (3072, 768)] * 12)


def vgg16() -> Matrices:
    """Convolutions of VGG-16, flattened to c_out by c_in * 9, and its head, for 32 x 32 images."""
    channels = [3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]
    return normal([(n, 9 * m) for m, n in pairwise(channels)] + [(10, 512)])


def transformer() -> Matrices:
    """Every matrix in a pair of yunis2024's language model, with the Q and K of each head."""
    layer = [(2304, 768), *[(768, 768)] * 4, *[(64, 768)] * 24]
    return normal(layer * 12 + [(768, 8000), (8000, 768)])


# All singular values.


def values(network: str, matrices: Matrices, time_all: TimeAll) -> None:
    on_gpu = next(iter(matrices.values())).is_cuda
    contenders = gpu_ways(matrices) if on_gpu else cpu_ways(matrices)
    peers = {}
    if network == "GPT-2 small" and not on_gpu and find_spec("weightwatcher") is not None:
        peers["weightwatcher.analyze()"] = weightwatcher(matrices)
    times = time_all({**contenders, **peers})
    exact = {name: true_values(W) for name, W in matrices.items()}
    errors = {way: worst_error(dict(run()), exact) for way, run in contenders.items()}
    show(f"All singular values of {network} ({len(matrices)} matrices)", times, errors)


def cpu_ways(matrices: Matrices) -> dict[str, Callable[[], Mapping[str, Tensor]]]:
    svdvals = torch.linalg.svdvals
    return {
        "rankscope": lambda: singular_values(matrices),
        "loop of svdvals": lambda: {name: svdvals(W) for name, W in matrices.items()},
        "loop of svdvals, made tall": lambda: {
            name: svdvals(W if W.shape[0] >= W.shape[1] else W.mT) for name, W in matrices.items()
        },
    }


def gpu_ways(matrices: Matrices) -> dict[str, Callable[[], Mapping[str, Tensor]]]:
    def from_cpu() -> Mapping[str, Tensor]:
        return singular_values({name: W.cpu() for name, W in matrices.items()})

    return {
        "rankscope": lambda: singular_values(matrices),
        "loop of svdvals": lambda: {name: torch.linalg.svdvals(W) for name, W in matrices.items()},
        "loop of float64 Gram, eigvalsh": lambda: {
            name: gram_values(W[None])[0] for name, W in matrices.items()
        },
        "stacked float64 Gram, eigvalsh": lambda: stacked_gram_values(matrices),
        "rankscope on the CPU, with the copy": from_cpu,
    }


def stacked_gram_values(matrices: Matrices) -> Matrices:
    shapes = {tuple(W.shape) for W in matrices.values()}
    groups = [[n for n, W in matrices.items() if tuple(W.shape) == shape] for shape in shapes]
    return {
        name: S
        for names in groups
        for name, S in zip(
            names, gram_values(torch.stack([matrices[n] for n in names])), strict=True
        )
    }


def gram_values(W: Tensor) -> Tensor:
    D = W.double() if W.shape[-2] <= W.shape[-1] else W.double().mT
    return torch.linalg.eigvalsh(D @ D.mT).clamp(min=0).sqrt().flip(-1)


def weightwatcher(matrices: Matrices) -> Callable[[], object]:
    layers = [nn.Linear(W.shape[1], W.shape[0], bias=False) for W in matrices.values()]
    for layer, W in zip(layers, matrices.values(), strict=True):
        layer.weight.data.copy_(W)

    def analyze() -> object:
        import weightwatcher as ww

        return ww.WeightWatcher(model=nn.Sequential(*layers), log_level=logging.ERROR).analyze()

    return analyze


# Spectra that need more than a Gram matrix.


def hard_spectra(device: str) -> None:
    solvers = ("rankscope", "svdvals", "float64 Gram", "float32 Gram")
    errors = table(f"Hard spectra on {device}: largest error", "matrix", *solvers)
    for name, W in hard_matrices().items():
        exact, W = true_values(W), W.to(device)
        short = W if W.shape[0] <= W.shape[1] else W.mT
        single = torch.linalg.eigvalsh(short @ short.mT).clamp(min=0).sqrt().flip(-1)
        spectra = (singular_values(W), torch.linalg.svdvals(W), gram_values(W[None])[0], single)
        errors.add_row(name, *(f"{relative_error(S, exact):.0e}" for S in spectra))
    Console().print(errors)


def hard_matrices() -> Matrices:
    generator = torch.Generator().manual_seed(1)

    def orthonormal(rows: int) -> Tensor:
        return torch.linalg.qr(torch.randn(rows, 768, dtype=torch.float64, generator=generator)).Q

    def falling(m: int, n: int, decades: int) -> Tensor:
        S = 10 ** -torch.linspace(0, decades, 768, dtype=torch.float64)
        return ((orthonormal(m) * S) @ orthonormal(n).mT).float()

    integers = torch.randint(-8, 9, (768 + 3072, 20), generator=generator).float()
    dead = torch.randn(3072, 768, generator=generator)
    dead[:, ::3] = 0.0
    return {
        "8 decades, 768 x 768": falling(768, 768, 8),
        "8 decades, 768 x 3072": falling(768, 3072, 8),
        "6 decades, 768 x 768": falling(768, 768, 6),
        "rank 20 exactly, 768 x 3072": integers[:768] @ integers[768:].mT,
        "every third column zero, 3072 x 768": dead,
    }


# Changes of products.


def product_changes(device: str, time_all: TimeAll) -> None:
    """Time the changes of 96 ViT heads with 512 x 128 factors; the relative change is 1e-12."""
    pairs = [head_change(seed) for seed in range(96)]
    changes = {
        str(i): product_change(
            Product(now.left.to(device), now.right.to(device)),
            Product(before.left.to(device), before.right.to(device)),
        )
        for i, (now, before, _) in enumerate(pairs)
    }
    dense = {
        str(i): tuple(x.to(device) for x in (now.left, now.right, before.left, before.right))
        for i, (now, before, _) in enumerate(pairs)
    }

    def formed() -> dict[str, Tensor]:
        return {name: K @ Q.mT - K0 @ Q0.mT for name, (K, Q, K0, Q0) in dense.items()}

    ways = {
        "rankscope, factored": lambda: singular_values(changes),
        "formed, same solver and threads": lambda: singular_values(formed()),
        "formed, loop of svdvals": lambda: {
            n: torch.linalg.svdvals(W) for n, W in formed().items()
        },
    }
    exact = {str(i): true_values(change)[:256] for i, (_, _, change) in enumerate(pairs[:8])}
    errors = {
        way: worst_error({n: S[:256] for n, S in run().items()}, exact) for way, run in ways.items()
    }
    show("Changes of 96 products, relative change 1e-12", time_all(ways), errors)


def head_change(seed: int) -> tuple[Product, Product, Tensor]:
    """Two products and their difference, exact but for one rounding of each entry.

    Factors are integers plus 2^-40 times integers: all their products are exact in float64.
    """
    generator = torch.Generator().manual_seed(seed)
    K0, Q0, A, B = (
        torch.randint(-32, 33, (512, 128), generator=generator).double() for _ in range(4)
    )
    now = Product(K0 + 2.0**-40 * A, Q0 + 2.0**-40 * B)
    change = A @ Q0.mT + K0 @ B.mT + 2.0**-40 * (A @ B.mT)
    return now, Product(K0, Q0), 2.0**-40 * change


# Leading directions.


def leading_directions(device: str, time_all: TimeAll) -> None:
    matrices = {name: W.to(device) for name, W in transformer().items()}
    ranks = dict.fromkeys(matrices, 100)

    def full() -> dict[str, Svd]:
        return {
            name: Svd(*torch.linalg.svd(W, full_matrices=False)) for name, W in matrices.items()
        }

    ways = {"rankscope": lambda: decompose(matrices, ranks=ranks), "loop of full svd": full}
    errors = {
        way: max(residual(svd, matrices[name]) for name, svd in run().items())
        for way, run in ways.items()
    }
    title = f"Leading 100 directions, 12-layer Transformer ({len(matrices)} matrices)"
    show(title, time_all(ways), errors)


def residual(svd: Svd, W: Tensor) -> float:
    """Largest off-diagonal entry of W in its own leading directions, relative to S[0]."""
    U, S, V = svd.U[:, :100].double(), svd.S.double(), svd.Vh[:100].double().mT
    core = U.mT @ W.double() @ V
    return float((core - torch.diag(S[: len(core)])).abs().max() / S[0])


# Errors and tables.


def true_values(W: Tensor) -> Tensor:
    tall = W.cpu().double() if W.shape[0] >= W.shape[1] else W.cpu().double().mT
    return torch.linalg.svdvals(tall)


def worst_error(measured: Mapping[str, Tensor], exact: Mapping[str, Tensor]) -> float:
    return max(relative_error(measured[name], S) for name, S in exact.items())


def relative_error(measured: Tensor, exact: Tensor) -> float:
    return float((measured.cpu().double() - exact).abs().max() / exact[0])


def show(title: str, times: Mapping[str, float], errors: Mapping[str, float]) -> None:
    rows = table(title, "", "time", "ratio", "error")
    relative = ratios(times, to=next(iter(times)))
    for name, spent in times.items():
        error = f"{errors[name]:.0e}" if name in errors else ""
        rows.add_row(name, f"{1000 * spent:.0f} ms", f"{relative[name]:.1f}", error)
    Console().print(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one-thread", action="store_true")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    main(**vars(parser.parse_args()))
