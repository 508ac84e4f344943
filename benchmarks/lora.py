"""Extraction, resizing and ranks of adapters against the obvious ways.

`python -m benchmarks lora`. The extraction takes a rank of 64 from changes of 4096 x 4096: its
error is |dW - B A|_F over the least possible one, less 1, in float64. rankscope's time includes
the difference of both weights and its noise floor. The resize reads and
writes an adapter with the shapes of Llama-3-8B. Errors by budget are relative, of all changes
together; real changes come from RANKSCOPE_DATA, and are left out without it.
"""

import json
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor

from benchmarks.timing import ratios, seconds, table
from rankscope import lora
from rankscope.lora.changes import decomposed
from rankscope.lora.factors import core
from rankscope.lora.ranks import parameters, total_squared_error
from rankscope.lora.writing import write_safetensors
from rankscope.matrices import difference
from rankscope.spectra import singular_values

SIZE, RANK = 4096, 64
LLAMA = {
    "self_attn.q_proj": (4096, 4096),
    "self_attn.k_proj": (1024, 4096),
    "self_attn.v_proj": (1024, 4096),
    "self_attn.o_proj": (4096, 4096),
    "mlp.gate_proj": (14336, 4096),
    "mlp.up_proj": (14336, 4096),
    "mlp.down_proj": (4096, 14336),
}
LAYERS = 32

Factors = tuple[Tensor, Tensor]


def main() -> None:
    extraction()
    resizing()
    budgets()


# Extraction.


def extraction(rounds: int = 3) -> None:
    for name, (before, after) in fine_tunings().items():
        dW = difference(after, before)
        ways: dict[str, Callable[[], Factors]] = {
            "rankscope": lambda pair=(before, after): by_rankscope(*pair),
            **{
                f"svd_lowrank, niter={niter}": lambda dW=dW, niter=niter: by_lowrank(dW, niter)
                for niter in (2, 4, 10)
            },
            "full float32 SVD": lambda dW=dW: by_svd(dW),
        }
        times = seconds(ways, rounds=rounds)
        least = float(singular_values(dW)[RANK:].norm())
        rows = table(f"Rank {RANK} from {SIZE} x {SIZE}, {name}", "", "time", "ratio", "excess")
        for way, ratio in ratios(times, to="rankscope").items():
            excess = error(dW, ways[way]()) / least - 1
            rows.add_row(way, f"{times[way]:.2f} s", f"{ratio:.1f}", f"{excess:.0e}")
        Console().print(rows)


def fine_tunings() -> dict[str, tuple[Tensor, Tensor]]:
    """Weights before and after: a few directions beside noise, and values that follow a law."""
    generator = torch.Generator().manual_seed(0)

    def normal(m: int, n: int) -> Tensor:
        return torch.randn(m, n, generator=generator)

    before = 0.02 * normal(SIZE, SIZE)
    planted = (normal(SIZE, 32) * 2.0 ** -torch.arange(32)) @ normal(32, SIZE)
    k = torch.arange(1, SIZE // 4 + 1)
    U, V = (torch.linalg.qr(normal(SIZE, len(k))).Q for _ in range(2))
    return {
        "32 directions and noise": (before, before + 1e-3 * planted + 1e-4 * normal(SIZE, SIZE)),
        "values k^-0.7": (before, before + (U * k**-0.7) @ V.mT),
    }


def by_rankscope(before: Tensor, after: Tensor) -> Factors:
    """Form the change, decompose it, and find its noise floor, as `extract` does."""
    result = decomposed(before, after, kind="linear", leading=RANK)
    return result.U * result.spectrum.S, result.Vh


def by_lowrank(dW: Tensor, niter: int) -> Factors:
    U, S, V = torch.svd_lowrank(dW, q=RANK, niter=niter)
    return U * S, V.mT


def by_svd(dW: Tensor) -> Factors:
    U, S, Vh = torch.linalg.svd(dW, full_matrices=False)
    return U[:, :RANK] * S[:RANK], Vh[:RANK]


def error(dW: Tensor, factors: Factors) -> float:
    B, A = (factor.double() for factor in factors)
    return float(torch.linalg.matrix_norm(dW.double() - B @ A))


# Resizing.


def resizing(rounds: int = 3) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        size = write_adapter(folder / "adapter")
        times = seconds(
            {
                f"rank {rank}": lambda rank=rank: lora.resize(
                    folder / "adapter", folder / f"rank-{rank}", max_rank=rank, overwrite=True
                )
                for rank in (8, 32)
            },
            rounds=rounds,
        )
    title = f"Resize an adapter of {size / 1e6:.0f} million parameters, r = {RANK}, bfloat16"
    rows = table(title, "to", "time")
    for name, time in times.items():
        rows.add_row(name, f"{time:.1f} s")
    Console().print(rows)


def write_adapter(folder: Path) -> int:
    """Write an adapter of all linear modules of Llama-3-8B; return its number of parameters."""
    folder.mkdir()
    layout = {}
    for layer in range(LAYERS):
        for module, (m, n) in LLAMA.items():
            name = f"base_model.model.model.layers.{layer}.{module}"
            layout[f"{name}.lora_B.weight"] = ((m, RANK), torch.bfloat16)
            layout[f"{name}.lora_A.weight"] = ((RANK, n), torch.bfloat16)
    generator = torch.Generator().manual_seed(0)
    write_safetensors(
        folder / "adapter_model.safetensors",
        layout,
        lambda name: torch.randn(layout[name][0], generator=generator).bfloat16(),
    )
    targets = [module.rpartition(".")[2] for module in LLAMA]
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": 16, "target_modules": targets}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return sum(torch.Size(shape).numel() for shape, _ in layout.values())


# Ranks by budget.


def budgets() -> None:
    rows = table(
        "Relative error of all changes at equal size",
        "change",
        "ranks",
        "size",
        "error",
        "by budget",
    )
    for name, spectra in real_changes().items():
        most = max(len(s.S) for s in spectra.values())
        choices = {
            f"uniform, {r}": {n: min(r, len(s.S)) for n, s in spectra.items()}
            for r in (max(1, most // 8), most // 4)
        }
        choices |= {
            f"energy {share:g}": lora.choose_ranks(spectra, energy=share) for share in (0.5, 0.9)
        }
        total = total_squared_error(spectra, dict.fromkeys(spectra, 0))
        for how, ranks in choices.items():
            size = parameters(spectra, ranks)
            chosen = lora.choose_ranks(spectra, budget=size)
            errors = (math.sqrt(total_squared_error(spectra, r) / total) for r in (ranks, chosen))
            rows.add_row(name, how, str(size), *(f"{e:.4f}" for e in errors))
    Console().print(rows)


def real_changes() -> dict[str, dict[str, lora.Spectrum]]:
    data = Path(os.environ.get("RANKSCOPE_DATA", "")) / "checkpoints"
    if not data.exists():
        return {}
    adapter = lora.open_adapter(data / "gpt2-lora-emotion")
    series = data / "mnist-diffusion-cnn"
    ends = (series / f"epoch_{epoch}.safetensors" for epoch in ("0000", "1999"))
    return {
        "LoRA of GPT-2, r = 8": {
            module: lora.Spectrum(core(adapter.product(module)).S, *pair.shape)
            for module, pair in adapter.pairs.items()
        },
        "diffusion network, 1999 epochs": lora.changes(*ends, leading=None),
    }


if __name__ == "__main__":
    main()
