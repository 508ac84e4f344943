"""The command lora: ranks of changes, adapters out of fine-tuned models, smaller adapters."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rankscope.cli import lora_tasks as tasks
from rankscope.cli.lora_tasks import MAX_RANK
from rankscope.cli.options import app, local


@app.command()
def lora(
    paths: Annotated[
        list[str],
        typer.Argument(
            help="BASE TUNED: two checkpoints. ADAPTER: one adapter. A folder of checkpoints or "
            "adapters in step order. With --diff two adapters. org/model and org/model@revision "
            "are on the hub."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", callback=local, help="Where to write the adapter or model."),
    ] = None,
    base: Annotated[
        str | None, typer.Option(help="Model that an adapter or a series started from.")
    ] = None,
    energy: Annotated[
        float | None, typer.Option(help="Share of each change's energy that is kept.")
    ] = None,
    error: Annotated[
        float | None, typer.Option(help="Relative error of each change that is allowed.")
    ] = None,
    noise: Annotated[
        bool, typer.Option("--noise", help="Leave out directions below the noise floor.")
    ] = False,
    max_rank: Annotated[
        int, typer.Option(min=0, help="Largest rank of a matrix; 0 for no limit.")
    ] = MAX_RANK,
    budget: Annotated[
        int | None, typer.Option(help="Number of parameters of the whole adapter.")
    ] = None,
    round_to: Annotated[
        str, typer.Option("--round", help="Round ranks up to a multiple, or to vllm's sizes.")
    ] = "1",
    resize: Annotated[
        int | None, typer.Option(min=1, help="Write the adapter with at most this rank.")
    ] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Write the base with the adapter added to it.")
    ] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Compare two adapters, module by module.")
    ] = False,
    names: Annotated[
        Literal["peft", "kohya"] | None,
        typer.Option(help="Names in the resized adapter.", show_default="as they are"),
    ] = None,
    prefix: Annotated[
        str, typer.Option(help="Put before module names, such as 'transformer.' or 'lora_unet'.")
    ] = "",
    transformers: Annotated[
        bool,
        typer.Option(
            "--transformers",
            help="Name modules as transformers loads them; it renames those of some checkpoints.",
        ),
    ] = False,
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"], typer.Option(help="Format of the factors.")
    ] = "float32",
    matrices_only: Annotated[
        bool,
        typer.Option("--matrices-only", help="Leave out norms, embeddings, biases, as vLLM wants."),
    ] = False,
    pattern: Annotated[
        str | None, typer.Option(help="Names that belong to a series, such as 'checkpoint-*'.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(callback=local, help="Draw the growth of a series here.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Tell how many directions a change has; write, shrink, merge and compare LoRA adapters.

    **lora BASE TUNED** shows the spectrum of every change. With **-o adapter/** it writes an
    adapter for PEFT, reads it back and shows the error of each matrix.

    **lora ADAPTER** shows how many directions of an adapter are used, and with **--base** which of
    them are new to the base. **--resize 8 -o small/** or **--energy 0.9 -o small/** writes a
    smaller one, **--merge --base BASE -o model/** the merged model.

    **lora FOLDER** shows how the rank of the change grew over the checkpoints in a folder.
    """
    paths = [_source(path) for path in paths]
    base = None if base is None else _source(base)
    if len(paths) > 2 or (diff and len(paths) != 2):
        raise ValueError("give one path, or two: BASE TUNED, or with --diff two adapters")
    resized = any(rule is not None for rule in (resize, energy, budget))
    task = _task(paths, diff=diff, merge=merge, resize=resized, pattern=pattern)
    passed = {
        "--out": out, "--base": base, "--energy": energy, "--error": error, "--noise": noise,
        "--max-rank": max_rank != MAX_RANK, "--budget": budget, "--round": round_to != "1",
        "--resize": resize, "--merge": merge, "--names": names,
        "--prefix": prefix != "", "--transformers": transformers, "--dtype": dtype != "float32",
        "--matrices-only": matrices_only, "--pattern": pattern, "--figure": figure,
        "--overwrite": overwrite,
    }  # fmt: skip
    for option, value in passed.items():
        if value is None or value is False:  # 0 is a value
            continue
        if option not in OPTIONS[task]:
            wants = task == ADAPTER and option in OPTIONS[RESIZED]
            hint = "; add --resize, --energy, --budget or --merge" if wants else ""
            raise ValueError(f"{option} has no meaning here: {' '.join(paths)} is {task}{hint}")
    rules: dict[str, Any] = {"energy": energy, "budget": budget, "round_to": _rounding(round_to)}
    if task == DIFFERENCE:
        tasks.show_difference(paths[0], paths[1], json)
    elif task == TUNED:
        _refuse_adapters(paths[0], paths[1])
        rules |= {"error": error, "noise": noise, "max_rank": max_rank or None}
        model = tasks.model_of(paths[0]) if transformers else None
        options = {"model": model, "prefix": prefix, "matrices_only": matrices_only}
        tasks.write_adapter(
            (paths[0], paths[1]), out, rules, options, dtype, overwrite=overwrite, json=json
        )
    elif task == MERGED:
        tasks.write_merged(paths[0], base, out, overwrite=overwrite)
    elif task == RESIZED:
        rules |= {"max_rank": resize, "style": names}
        tasks.write_smaller(paths[0], base, out, rules, prefix, overwrite=overwrite, json=json)
    elif task == ADAPTER:
        tasks.show_directions(paths[0], base, json)
    else:
        tasks.show_growth(paths[0], base, pattern, figure, json)


# What the paths are, and the options that then have a meaning.
DIFFERENCE, TUNED = "two adapters to compare", "a model and its fine-tuning"
MERGED, RESIZED, ADAPTER = "an adapter to merge", "an adapter to resize", "an adapter to describe"
SERIES = "a series"
OPTIONS: dict[str, set[str]] = {
    DIFFERENCE: set(),
    TUNED: {
        *("--out", "--energy", "--error", "--noise", "--max-rank", "--budget", "--round"),
        *("--prefix", "--transformers", "--dtype", "--matrices-only", "--overwrite"),
    },
    MERGED: {"--out", "--base", "--merge", "--overwrite"},
    RESIZED: {
        *("--out", "--base", "--energy", "--budget", "--round", "--resize", "--names", "--prefix"),
        "--overwrite",
    },
    ADAPTER: {"--base"},
    SERIES: {"--base", "--pattern", "--figure"},
}


def _source(path: str) -> str:
    """Return a path with `~` expanded, or the name of a model on the hub as it is."""
    from rankscope.checkpoints.hub import hub_id

    place = Path(path).expanduser()
    if not place.exists() and hub_id(path) is None:
        raise ValueError(f"{path} does not exist; give a checkpoint, an adapter or a folder")
    return str(place) if place.exists() else path


def _task(paths: list[str], *, diff: bool, merge: bool, resize: bool, pattern: str | None) -> str:
    if len(paths) == 2:
        return DIFFERENCE if diff else TUNED
    if not _is_adapter(paths[0], pattern):
        return SERIES
    return MERGED if merge else RESIZED if resize else ADAPTER


def _rounding(text: str) -> int | str:
    if text != "vllm" and not text.isdecimal():
        raise ValueError(f"--round takes a number or vllm, got {text!r}")
    return text if text == "vllm" else int(text)


def _is_adapter(path: str, pattern: str | None) -> bool:
    """Tell an adapter from a folder of several; a single checkpoint is neither."""
    from rankscope.checkpoints import open_checkpoint
    from rankscope.checkpoints.series import series_in
    from rankscope.lora.adapter import is_adapter

    if Path(path).is_dir() and not Path(path, "adapter_config.json").exists():
        members, _ = series_in(Path(path), pattern=pattern)
        if len(members) > 1 or members[0].path != path:
            return False
    if not is_adapter(open_checkpoint(path)):
        raise ValueError(
            f"{path} is one checkpoint; give BASE TUNED, an adapter, or a folder of checkpoints"
        )
    return True


def _refuse_adapters(base: str, tuned: str) -> None:
    """Refuse an adapter in the place of a model, and say what to type."""
    from rankscope.checkpoints import open_checkpoint
    from rankscope.lora.adapter import is_adapter

    if is_adapter(open_checkpoint(tuned)):
        raise ValueError(
            f"{tuned} holds an adapter, which is a change already; "
            f"type rankscope lora {tuned} --base {base}, or compare two adapters with --diff"
        )
    if is_adapter(open_checkpoint(base)):
        raise ValueError(
            f"{base} holds an adapter; type rankscope lora {base} --base {tuned}, with the model "
            "that it was trained on after --base"
        )
