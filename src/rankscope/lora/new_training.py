"""Configuration of a new LoRA training, with its ranks from the changes of an earlier one."""

import os
from collections.abc import Mapping
from typing import Any

from rankscope.lora.adapter import Adapter, open_adapter
from rankscope.lora.adapter_spectra import adapter_spectra
from rankscope.lora.peft import config_for
from rankscope.lora.placement import FACTORED
from rankscope.lora.ranks import Rounding, choose_ranks
from rankscope.lora.spectrum import Spectrum

Earlier = Mapping[str, Spectrum] | Adapter | str | os.PathLike[str]


def peft_config(
    earlier: Earlier,
    *,
    budget: int | None = None,
    energy: float | None = None,
    max_rank: int | None = None,
    round_to: Rounding = 1,
    scale: float = 2.0,
    **options: Any,
) -> dict[str, Any]:
    """Return the arguments of PEFT's LoraConfig for a new training within a number of parameters.

    Each module gets the rank with which an earlier change of it would have been approximated best:
    that of `rankscope.lora.changes` of a short fine-tuning, or an adapter of a higher rank.
    Embeddings and other kinds get none.

    scale: alpha / r of every module.
    options: further arguments of LoraConfig, such as lora_dropout or task_type.
    """
    spectra = _spectra(earlier)
    chosen = {name: s for name, s in spectra.items() if s.kind in FACTORED}
    if not chosen:
        raise ValueError("no linear or convolution layer changed, so no module gets an adapter")
    ranks = choose_ranks(chosen, budget=budget, energy=energy, max_rank=max_rank, round_to=round_to)
    return {**config_for(ranks, scale=scale), "inference_mode": False, **options}


def _spectra(earlier: Earlier) -> Mapping[str, Spectrum]:
    if isinstance(earlier, Mapping):
        return earlier
    adapter = earlier if isinstance(earlier, Adapter) else open_adapter(earlier)
    if adapter.style == "kohya":
        raise ValueError(
            f"{adapter.source} has kohya's names, which are not the modules of a model; write it "
            "with PEFT's by rs.lora.resize(style='peft')"
        )
    return adapter_spectra(adapter)
