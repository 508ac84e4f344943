"""Growth of a change's rank over a fine-tuning, from a folder of checkpoints or adapters."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from rankscope.checkpoints import Checkpoint, open_checkpoint
from rankscope.checkpoints.files import StrPath
from rankscope.checkpoints.series import series_in
from rankscope.lora.adapter import adapter_of, is_adapter
from rankscope.lora.adapter_spectra import adapter_spectra
from rankscope.lora.changes import open_changes, spectra_of
from rankscope.lora.columns import Row, rank_columns, shape_column
from rankscope.lora.spectrum import Spectrum


def growth(
    folder: StrPath, *, base: StrPath | None = None, pattern: str | None = None
) -> pd.DataFrame:
    """Return ranks of the change of every matrix at each step of a fine-tuning, one row each.

    The columns are step, matrix, shape, norm, stable and effective rank, and how many directions
    hold 50, 90 and 99% of the energy. boix2023, Figs. 4, 5 show the stable rank.

    Checkpoints that cannot be read are left out and named in `attrs["problems"]`. `attrs["notes"]`
    names files that are no part of the series, and tensors that cannot be compared.

    folder: checkpoints with a step in their names (step1000, epoch_0100, checkpoint-500), or
        adapters.
    base: what changes are measured from; by default the first checkpoint. Adapters are changes.
    pattern: which names belong to the series, such as "epoch_*".
    """
    members, notes = series_in(Path(folder).expanduser(), pattern=pattern)
    start = None if base is None else str(base)
    rows: list[Row] = []
    problems: list[str] = []
    for member in members:
        try:
            checkpoint = open_checkpoint(member.path)
        except ValueError as refusal:
            problems.append(f"step {member.step}: {refusal}")
            continue
        is_change = is_adapter(checkpoint)
        if is_change and base is not None:
            raise ValueError(
                f"{member.path} holds an adapter, which is a change already; leave out the base"
            )
        if not is_change and start is None:
            start = member.path
            continue
        try:
            spectra, left_out = _spectra(checkpoint, start)
            notes += [f"step {member.step}: {name}: {why}" for name, why in left_out.items()]
            for name, spectrum in spectra:
                place: Row = {"step": member.step, "matrix": name}
                shape = shape_column(spectrum.m, spectrum.n)
                rows.append({**place, **shape, **rank_columns(spectrum)})
        except ValueError as refusal:
            problems.append(f"step {member.step}: {refusal}")
    if not rows:
        reason = [*problems, *notes, "nothing changed"][0]
        raise ValueError(f"{folder}: no change was measured; {reason}")
    table = pd.DataFrame(rows)
    table.attrs.update(problems=problems, notes=notes)
    return table


def _spectra(
    checkpoint: Checkpoint, start: str | None
) -> tuple[Iterable[tuple[str, Spectrum]], Mapping[str, str]]:
    """Return the spectra of a checkpoint's changes as they are read, and why others are missing."""
    if is_adapter(checkpoint):
        return adapter_spectra(adapter_of(checkpoint)).items(), {}
    assert start is not None
    changes = open_changes(start, checkpoint)
    return spectra_of(changes, leading=None), changes.left_out
