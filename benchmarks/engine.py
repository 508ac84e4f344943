"""Full and leading snapshots of large networks: alone, beside training, and what training loses.

`python -m benchmarks engine --device cuda`, or `python -m benchmarks.engine [--size tiny]` with
`--device cpu` for networks so small that a CPU trains them. Weights, changes, products, changes of
products and default pairs are measured: in a thread on the device that trains, or in a process on
the host. `--only`, `--spectrum` and `--on` choose rows:

    python -m benchmarks.engine --device cuda --only Llama --spectrum 64 --on device

Training takes steps until a snapshot is committed. It has lost the time of these steps beyond that
of as many steps without a snapshot. Memory is what the snapshot allocates beside staged copies.
After `--minutes` no further row is begun.
"""

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor, nn

import rankscope as rs
from benchmarks.networks import ViT
from benchmarks.timing import seconds_of, table, wait_for_gpu
from rankscope import snapshot
from rankscope.matrices import named_tensors
from rankscope.tracker.defaults import cut_to_leading, default_pairs

Step = Callable[[], Tensor]
LEADING = 64
LONGEST = 120.0  # seconds of training to wait for a snapshot, which may never come
GIBIBYTE = 2**30


@dataclass(frozen=True)
class Bars:
    """Largest values that we accept, in seconds and GiB; None without a bar."""

    alone: float
    lost: float | None = None
    lost_leading: float | None = None
    memory: float = 2.0


@dataclass(frozen=True)
class Case:
    """A network and its training. `build` returns the network and a function of one step.

    on_host: spectra that a process on the host measures in reasonable time.
    """

    name: str
    bars: Bars
    build: Callable[[str], tuple[nn.Module, Step]]
    on_host: tuple[int | str, ...] = ("full", LEADING)


@dataclass(frozen=True)
class Beside:
    """Snapshots beside training: medians of what each cost, in seconds."""

    measuring: float
    lost: float
    step: float
    redone: int


def main(
    device: str = "cpu",
    *,
    size: str | None = None,
    rounds: int = 2,
    minutes: float = 6.0,
    only: str = "",
    spectrum: str | None = None,
    on: str | None = None,
) -> None:
    """Print the rows of networks whose name contains `only`; a spectrum or place of None is any."""
    began = time.perf_counter()
    size = size or ("full" if device == "cuda" else "tiny")
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    title = f"Snapshots ({size}), {name}, torch {version('torch')}; bars in brackets"
    headings = ("spectrum", "on", "a step", "alone", "beside", "lost", "memory", "redone")
    rows = table(title, "network", *headings)
    for case in cases(size):
        chosen = [way for way in ways(case, device) if is_wanted(*way, spectrum=spectrum, on=on)]
        if only.lower() not in case.name.lower() or not chosen:
            continue
        torch.manual_seed(0)
        with torch.device(device):  # initial weights are drawn there, several times faster
            model, step = case.build(device)
        for _ in range(3):
            step()
        for spectrum, where in chosen:
            if time.perf_counter() - began > 60 * minutes:
                print("out of time before", case.name, spectrum, where, flush=True)
                break
            row = (str(spectrum), where, *measured(case, model, step, spectrum, where, rounds))
            print(case.name, *row, flush=True)  # in case a later row fails
            rows.add_row(case.name, *row)
        del model, step
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
    Console(width=140).print(rows)


def ways(case: Case, device: str) -> list[tuple[int | str, str]]:
    """Return the spectra to measure, and where."""
    rows = [("full", device), (LEADING, device)]
    if device == "cuda":
        rows += [(spectrum, "host") for spectrum in case.on_host]
    return rows


def is_wanted(row_spectrum: int | str, where: str, *, spectrum: str | None, on: str | None) -> bool:
    """Tell whether a row is among those that the options choose."""
    place = "host" if where == "host" else "device"
    return spectrum in (None, str(row_spectrum)) and on in (None, place)


def measured(
    case: Case, model: nn.Module, step: Step, spectrum: int | str, where: str, rounds: int
) -> list[str]:
    bars, alone, memory = case.bars, "", ""
    is_full = spectrum == "full"
    if where != "host":
        plan = cut_to_leading(planned(model), spectrum)
        time_alone, gibibytes = by_itself(model, step, plan, rounds)
        alone = against(time_alone, bars.alone if is_full else None, "s")
        print(case.name, spectrum, where, "alone", alone, flush=True)
        memory = "" if gibibytes is None else against(gibibytes, bars.memory, "GiB")
    beside = beside_training(model, step, spectrum, where, rounds)
    lost = against(beside.lost, bars.lost if is_full else bars.lost_leading, "s")
    step_seconds, measuring = f"{beside.step:.3f} s", f"{beside.measuring:.2f} s"
    return [step_seconds, alone, measuring, lost, memory, str(beside.redone)]


def planned(model: nn.Module) -> snapshot.Plan:
    chosen = rs.views(model)
    return snapshot.plan(chosen, pairs=default_pairs(model, chosen), products=True)


def against(value: float, bar: float | None, unit: str) -> str:
    return f"{value:.2f} {unit}" + ("" if bar is None else f" ({bar:g})")


def by_itself(
    model: nn.Module, step: Step, plan: snapshot.Plan, rounds: int
) -> tuple[float, float | None]:
    """Seconds of a snapshot of staged copies, and the memory it takes beside them in GiB."""
    before = staged(model, plan)
    step()
    now = staged(model, plan)
    device = next(iter(now.values())).device
    with torch.no_grad():
        snapshot.measure(plan, now, before)  # libraries start
        wait_for_gpu()
        held = torch.cuda.memory_allocated() if device.type == "cuda" else 0
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        times = [seconds_of(lambda: snapshot.measure(plan, now, before)) for _ in range(rounds)]
    if device.type != "cuda":
        return statistics.median(times), None
    return statistics.median(times), (torch.cuda.max_memory_allocated() - held) / GIBIBYTE


def staged(model: nn.Module, plan: snapshot.Plan) -> dict[str, Tensor]:
    tensors = named_tensors(model)
    return {name: tensors[name].detach().clone() for name in plan.parameters}


def beside_training(
    model: nn.Module, step: Step, spectrum: int | str, where: str, rounds: int
) -> Beside:
    """Train while a thread or process measures snapshots."""
    usual = statistics.median(training_seconds(step) for _ in range(10))
    lost = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        place = {"device": "cpu", "beside": "process"}
        if where != "host":
            place = {"device": where, "beside": "thread"}
        options = {**place, "spectrum": spectrum, "strict": True}
        with rs.Tracker(model, path, schedule=1, **options) as tracker:
            tracker.observe(0)  # the reference; nothing has changed yet
            tracker.flush()
            for number in range(1, rounds + 1):
                step()
                wait_for_gpu()
                began, steps = time.perf_counter(), 0
                tracker.observe(number)
                while tracker.cost.snapshots <= number and steps * usual < LONGEST:
                    training_seconds(step)
                    steps += 1
                lost.append(time.perf_counter() - began - steps * usual)
                tracker.flush()  # raises what has stopped the tracker
        run = rs.open(path)
        compute = float(run.tracker_compute_seconds[1:].median())
        redone = int(run.attrs.get("decompositions_redone", 0))
    return Beside(compute, statistics.median(lost), usual, redone)


def training_seconds(step: Step) -> float:
    """Seconds of a step; as a loop that reads its loss, it waits for no stream but its own."""
    began = time.perf_counter()
    if step().is_cuda:
        torch.cuda.current_stream().synchronize()
    return time.perf_counter() - began


# Networks.


def cases(size: str) -> list[Case]:
    full = size == "full"
    shared = [
        Case("GPT-2 small", Bars(alone=0.35), lambda device: gpt2(device, full=full)),
        Case("ViT of boix2023", Bars(alone=0.15), lambda device: vit(device, full=full)),
    ]
    bars = Bars(alone=6.0, lost=4.0, lost_leading=0.5)
    return [*shared, Case("Llama, 1.1B", bars, lambda device: llama(device, full=full), (LEADING,))]


def llama(device: str, *, full: bool) -> tuple[nn.Module, Step]:
    """LlamaForCausalLM in bfloat16 with batches of 8 x 1024 tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = (
        {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22}
        if full
        else {"hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2}
    )
    heads = {"num_attention_heads": 32, "num_key_value_heads": 4}
    vocabulary = 32_000 if full else 200
    config = LlamaConfig(**sizes, **heads, vocab_size=vocabulary)
    model = LlamaForCausalLM(config).to(device, torch.bfloat16).train()
    return model, language_step(model, vocabulary, (8, 1024) if full else (2, 16), device)


def gpt2(device: str, *, full: bool) -> tuple[nn.Module, Step]:
    """GPT2LMHeadModel in float32 with batches of 8 x 1024 tokens, multiplied in bfloat16."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {} if full else {"n_layer": 2, "n_embd": 48, "n_head": 4, "vocab_size": 200}
    config = GPT2Config(**sizes)
    model = GPT2LMHeadModel(config).to(device).train()
    return model, language_step(model, config.vocab_size, (8, 1024) if full else (2, 16), device)


def vit(device: str, *, full: bool) -> tuple[nn.Module, Step]:
    """The papers' ViT with batches of 512 images."""
    model = (ViT() if full else ViT(depth=2, width=32, heads=2, head_dim=8)).to(device).train()
    images = torch.randn(512 if full else 4, 3, 32, 32, device=device)
    labels = torch.randint(10, (len(images),), device=device)
    return model, step_of(model, lambda: nn.functional.cross_entropy(model(images), labels))


def language_step(model: nn.Module, vocabulary: int, batch: tuple[int, int], device: str) -> Step:
    tokens = torch.randint(vocabulary, batch, device=device)
    return step_of(model, lambda: model(input_ids=tokens, labels=tokens).loss)


def step_of(model: nn.Module, loss_of: Callable[[], Tensor]) -> Step:
    device = next(model.parameters()).device.type
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = loss_of()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--size", choices=("tiny", "full"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--only", default="", help="networks whose name contains this")
    parser.add_argument("--spectrum", choices=("full", str(LEADING)))
    parser.add_argument("--on", choices=("device", "host"))
    main(**vars(parser.parse_args()))
