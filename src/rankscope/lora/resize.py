"""Smaller adapters: the best approximation of each module's B A, exact by QR of the factors."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rankscope.checkpoints.files import StrPath
from rankscope.lora import kohya, peft
from rankscope.lora.adapter import Adapter, Style, open_adapter
from rankscope.lora.adapter_spectra import cores_of, spectra_of_cores
from rankscope.lora.factors import Core
from rankscope.lora.ranks import Rounding, choose_ranks
from rankscope.lora.writing import Layout, check_free, file_in_place, folder_in_place
from rankscope.lora.writing import write_safetensors as write
from rankscope.spectra.workers import spread

AT_ONCE = 8  # modules whose factors are in memory at the same time


@dataclass(frozen=True)
class Resized:
    """An adapter that was written: rank of each module, and relative error but for its format."""

    path: Path
    ranks: Mapping[str, int]
    errors: Mapping[str, float]


def resize(
    source: StrPath | Adapter,
    out: StrPath,
    *,
    max_rank: int | None = None,
    energy: float | None = None,
    budget: int | None = None,
    round_to: Rounding = 1,
    style: Style | None = None,
    names: Callable[[str], str] | None = None,
    overwrite: bool = False,
) -> Resized:
    """Write the adapter with fewer directions per module, and return their ranks and errors.

    The product B A is decomposed exactly. alpha and rsLoRA's scale become part of the factors, and
    the new alpha equals the rank. Tensors that are no factors are copied.

    max_rank, energy, budget, round_to: as in `choose_ranks`; one of the first three is needed.
    style: "peft" or "kohya"; by default that of the source.
    names: new name of each module; needed if the style changes.
    """
    adapter = source if isinstance(source, Adapter) else open_adapter(source)
    if max_rank is None and energy is None and budget is None:
        raise ValueError("give a largest rank, a share of the energy or a budget of parameters")
    style = adapter.style if style is None else style
    if style != adapter.style and names is None:
        raise ValueError(f"names are needed to write {adapter.style} modules as {style}")
    if style == "kohya" and adapter.style == "peft" and adapter.others:
        raise ValueError(
            f"{adapter.source} holds {len(adapter.others)} tensors that are no factors, first "
            f"{adapter.others[0]!r}, and kohya's names have no place for them; keep PEFT's"
        )
    target = Path(out).expanduser()
    check_free(target, overwrite=overwrite)
    cores = cores_of(adapter)
    spectra = spectra_of_cores(adapter, cores)
    ranks = choose_ranks(
        spectra, energy=energy, budget=budget, max_rank=max_rank, round_to=round_to
    )
    renamed = {m: names(m) if names else m for m in ranks}
    if len(set(renamed.values())) < len(renamed):
        raise ValueError("two modules would get the same name; choose other names")
    _save(adapter, cores, ranks, renamed, target, style=style, overwrite=overwrite)
    errors = {m: spectra[m].error(ranks[m]) for m in ranks}
    return Resized(target, ranks, errors)


def _save(
    adapter: Adapter,
    cores: Mapping[str, Core],
    ranks: Mapping[str, int],
    renamed: Mapping[str, str],
    target: Path,
    *,
    style: Style,
    overwrite: bool,
) -> None:
    layout: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
    makers: dict[str, Callable[[], Tensor]] = {}
    chosen = [module for module, rank in ranks.items() if rank > 0]
    latest: dict[str, tuple[Tensor, Tensor]] = {}  # of the modules whose turn it is

    def factors(module: str) -> tuple[Tensor, Tensor]:
        if module not in latest:
            start = chosen.index(module)
            turn = chosen[start : start + AT_ONCE]
            results = spread(
                lambda m: resized_factors(adapter, m, cores[m], ranks[m]), turn, cost=lambda m: 1
            )
            latest.clear()
            latest.update(zip(turn, results, strict=True))
        return latest[module]

    for module in chosen:
        rank = ranks[module]
        pair, name = adapter.pairs[module], renamed[module]
        if style == "peft":
            up, down = peft.tensor_names(name, embedding=pair.is_embedding)
        else:
            up, down, alpha = kohya.tensor_names(name)
            layout[alpha] = ((), torch.float32)
            makers[alpha] = lambda rank=rank: torch.tensor(float(rank))  # type: ignore[misc]
        layout[up] = ((pair.up_shape[0], rank, *pair.up_shape[2:]), pair.dtype)
        layout[down] = ((rank, *pair.down_shape[1:]), pair.dtype)
        makers[up] = lambda m=module: factors(m)[0]  # type: ignore[misc]
        makers[down] = lambda m=module: factors(m)[1]  # type: ignore[misc]
    for name in adapter.others:
        stored = adapter.checkpoint.tensors[name]
        layout[name] = (stored.shape, stored.dtype)
        makers[name] = lambda name=name: adapter.checkpoint.read(name)  # type: ignore[misc]
    save_adapter(
        target,
        layout,
        lambda name: makers[name](),
        config=_config(adapter, ranks, renamed) if style == "peft" else None,
        overwrite=overwrite,
    )


def resized_factors(adapter: Adapter, module: str, core: Core, rank: int) -> tuple[Tensor, Tensor]:
    """Return up and down of a rank, in the shapes and the format of the stored pair."""
    pair, best = adapter.pairs[module], core.best(adapter.product(module), rank)
    left, right = best.left, best.right.mT
    missing = rank - left.shape[1]
    if missing > 0:  # directions that the module does not have
        left = torch.nn.functional.pad(left, (0, missing))
        right = torch.nn.functional.pad(right, (0, 0, 0, missing))
    up = left.reshape(pair.up_shape[0], rank, *pair.up_shape[2:])
    down = right.reshape(rank, *pair.down_shape[1:])
    return up.to(pair.dtype), down.to(pair.dtype)


def _config(
    adapter: Adapter, ranks: Mapping[str, int], renamed: Mapping[str, str]
) -> dict[str, Any]:
    return peft.config_for(
        {renamed[module]: rank for module, rank in ranks.items()}, known=adapter.config
    )


def save_adapter(
    target: Path,
    layout: Layout,
    read: Callable[[str], Tensor],
    *,
    config: Mapping[str, Any] | None,
    overwrite: bool,
) -> None:
    """Write an adapter: a folder with PEFT's configuration, or one file without."""
    if config is None:
        with file_in_place(target, overwrite=overwrite) as unfinished:
            write(unfinished, layout, read)
        return
    with folder_in_place(target, overwrite=overwrite) as folder:
        write(folder / peft.WEIGHTS, layout, read)
        (folder / peft.CONFIG).write_text(json.dumps(config, indent=2) + "\n")
