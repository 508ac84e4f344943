"""The command lora: ranks of changes, adapters out of fine-tuned models, smaller adapters."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from rankscope.cli.options import app, local
from rankscope.cli.tables import print_table

if TYPE_CHECKING:
    import pandas as pd

Place = TypeVar("Place", str, Path)
MAX_RANK = 64  # that of the functions, which are not imported for a help text


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
    task = _task(paths, diff=diff, merge=merge, resize=bool(resize or energy or budget))
    given = {
        "--out": out, "--base": base, "--energy": energy, "--error": error, "--noise": noise,
        "--max-rank": max_rank != MAX_RANK, "--budget": budget, "--round": round_to != "1",
        "--resize": resize, "--merge": merge, "--names": names, "--prefix": prefix,
        "--dtype": dtype != "float32", "--matrices-only": matrices_only, "--pattern": pattern,
        "--figure": figure, "--overwrite": overwrite,
    }  # fmt: skip
    for option, value in given.items():
        if value and option not in OPTIONS[task]:
            wants = task == ADAPTER and option in OPTIONS[RESIZED]
            hint = "; add --resize, --energy, --budget or --merge" if wants else ""
            raise ValueError(f"{option} has no meaning here: {' '.join(paths)} is {task}{hint}")
    rules: dict[str, Any] = {"energy": energy, "budget": budget, "round_to": _rounding(round_to)}
    if task == DIFFERENCE:
        _compare(paths[0], paths[1], json)
    elif task == TUNED:
        _refuse_adapters(paths[0], paths[1])
        rules |= {"error": error, "noise": noise, "max_rank": max_rank or None}
        options = {"dtype": dtype, "prefix": prefix, "matrices_only": matrices_only}
        _extract((paths[0], paths[1]), out, rules, options, overwrite=overwrite, json=json)
    elif task == MERGED:
        _merge(paths[0], base, out, overwrite=overwrite)
    elif task == RESIZED:
        rules |= {"rank": resize, "style": names}
        _resize(paths[0], base, out, rules, prefix, overwrite=overwrite, json=json)
    elif task == ADAPTER:
        _describe(paths[0], base, json)
    else:
        _grow(paths[0], base, pattern, figure, json)


# Columns that a narrow terminal does without, the least useful first.
LEAST = ("norm", "r50", "lowest cosine", "noise", "effective rank", "r99", "shape", "r90")
# What the paths are, and the options that then have a meaning.
DIFFERENCE, TUNED = "two adapters to compare", "a model and its fine-tuning"
MERGED, RESIZED, ADAPTER = "an adapter to merge", "an adapter to resize", "an adapter to describe"
SERIES = "a series"
OPTIONS: dict[str, set[str]] = {
    DIFFERENCE: set(),
    TUNED: {
        *("--out", "--energy", "--error", "--noise", "--max-rank", "--budget", "--round"),
        *("--prefix", "--dtype", "--matrices-only", "--overwrite"),
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


def _task(paths: list[str], *, diff: bool, merge: bool, resize: bool) -> str:
    if len(paths) == 2:
        return DIFFERENCE if diff else TUNED
    if not _is_adapter(paths[0]):
        return SERIES
    return MERGED if merge else RESIZED if resize else ADAPTER


def _rounding(text: str) -> int | str:
    if text != "vllm" and not text.isdecimal():
        raise ValueError(f"--round takes a number or vllm, got {text!r}")
    return text if text == "vllm" else int(text)


def _is_adapter(path: str) -> bool:
    """Tell an adapter from a folder of several; a single checkpoint is neither."""
    from rankscope.checkpoints import open_checkpoint
    from rankscope.checkpoints.series import series_in
    from rankscope.lora.adapter import is_adapter

    if Path(path).is_dir() and not Path(path, "adapter_config.json").exists():
        members, _ = series_in(Path(path))
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


def _extract(
    pair: tuple[str, str],
    out: Path | None,
    rules: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    overwrite: bool,
    json: bool,
) -> None:
    from rankscope.lora import extract

    base, tuned = pair
    if out is None:
        _plan(base, tuned, rules, json=json)
        return
    with _progress() as report:
        result = extract(base, tuned, out, **rules, **options, overwrite=overwrite, progress=report)
    _show(result.table, json, title=f"{tuned} - {base}")
    for name, reason in result.left_out.items():
        typer.echo(f"left out: {name}: {reason}", err=True)
    limit = "" if rules["budget"] is None else f" of a budget of {rules['budget']}"
    whole = ""
    if result.saved_parameters:
        outside = "" if rules["budget"] is None else ", which the budget does not count"
        whole = f", and {result.saved_parameters} saved whole{outside}"
    typer.echo(
        f"{result.path}: {result.parameters} parameters in factors{limit}{whole}; "
        f"read back, the error of all changes together is {result.error:.3g}",
        err=True,
    )


def _plan(base: str, tuned: str, rules: Mapping[str, Any], *, json: bool) -> None:
    from rankscope.lora import plan

    table = plan(base, tuned, **rules)
    if table.empty:
        raise ValueError(f"no matrix changed from {base} to {tuned}; compare other checkpoints")
    default = {"max_rank": MAX_RANK, "round_to": 1}
    chosen = any(value not in (None, False, default.get(rule)) for rule, value in rules.items())
    shown = table if chosen else table.drop(columns=["rank", "error"])
    _show(shown, json, title=f"{tuned} - {base}")
    if chosen:
        typer.echo(
            f"{table.attrs['parameters']} parameters in factors; the error of their changes "
            f"together would be {table.attrs['error']:.3g}; -o writes the adapter",
            err=True,
        )
    elif not json:
        typer.echo(
            "choose ranks by --energy, --error, --noise, --budget or --max-rank, and write an "
            "adapter by -o",
            err=True,
        )


def _progress() -> Any:
    """Return a context that shows progress on a terminal's stderr, and gives what reports it."""
    from contextlib import contextmanager

    from rich.console import Console
    from rich.progress import Progress

    @contextmanager
    def shown() -> Any:
        console = Console(stderr=True)
        with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task("")
            yield lambda name, number, total: bar.update(
                task, description=name, completed=number, total=total
            )

    return shown()


def _describe(path: str, base: str | None, json: bool) -> None:
    from rankscope.lora import intruders, used_directions

    table = used_directions(path)
    if base is not None:
        table = table.join(intruders(path, base).drop(columns="shape"))
    _show(table, json, title=path)


def _compare(a: str, b: str, json: bool) -> None:
    from rankscope.lora import difference_of

    _show(difference_of(a, b), json, title=f"{b} - {a}")


def _resize(
    path: str,
    base: str | None,
    out: Path | None,
    rules: Mapping[str, Any],
    prefix: str,
    *,
    overwrite: bool,
    json: bool,
) -> None:
    from rankscope.lora import open_adapter, resize
    from rankscope.lora.columns import table_of

    adapter = open_adapter(path)
    renamed = _renamed(adapter, rules["style"], base, prefix)
    options = {"--resize": "rank", "--energy": "energy", "--budget": "budget"}
    option = next(option for option, rule in options.items() if rules[rule])
    result = resize(
        adapter, _needed(out, option, "-o"), **rules, names=renamed, overwrite=overwrite
    )
    rows: dict[str, dict[str, object]] = {
        m: {"r": pair.rank, "rank": result.ranks[m], "error": result.errors[m]}
        for m, pair in adapter.pairs.items()
    }
    _show(table_of(rows), json, title=str(result.path))
    count = sum(result.ranks[m] * sum(pair.shape) for m, pair in adapter.pairs.items())
    typer.echo(f"{result.path}: {count} parameters in factors, from {adapter.parameters}", err=True)


def _renamed(adapter: Any, style: str | None, base: str | None, prefix: str) -> Any:
    """Return the change of names from PEFT's to kohya's or back, which needs the base's names."""
    from rankscope.checkpoints import open_checkpoint
    from rankscope.lora.kohya import module_name
    from rankscope.lora.targets import targets

    if style in (None, adapter.style):
        return None
    if style == "kohya":
        return lambda module: module_name(module, prefix or "lora_unet")
    checkpoint = open_checkpoint(_needed(base, "--names peft", "--base, whose names have dots"))
    tensors = targets(adapter, checkpoint)
    return lambda module: prefix + tensors[module].tensor.removesuffix(".weight")


def _merge(path: str, base: str | None, out: Path | None, *, overwrite: bool) -> None:
    from rankscope.lora import merge

    result = merge(
        path,
        _needed(base, "--merge", "--base"),
        _needed(out, "--merge", "-o"),
        overwrite=overwrite,
    )
    added = f", {', '.join(result.added)} added" if result.added else ""
    typer.echo(f"{result.path}: {len(result.changed)} tensors changed{added}", err=True)


def _grow(
    path: str, base: str | None, pattern: str | None, figure: Path | None, json: bool
) -> None:
    from rankscope.checkpoints import natural_order
    from rankscope.lora import growth

    table = growth(path, base=base, pattern=pattern)
    for problem in table.attrs["problems"]:
        typer.echo(problem, err=True)
    if figure is not None:
        from rankscope.figures import change_ranks_over_steps, save

        png, _ = save(change_ranks_over_steps(table), figure)
        typer.echo(f"{png}", err=True)
    if not json:  # growth reads downwards
        table = table.sort_values("matrix", key=lambda c: c.map(natural_order), kind="stable")
    _show(table.set_index("matrix"), json, title=path)


def _needed(path: Place | None, option: str, name: str) -> Place:
    if path is None:
        raise ValueError(f"{option} needs {name}")
    return path


def _show(table: "pd.DataFrame", json: bool, *, title: str) -> None:
    if json:
        typer.echo(table.reset_index().to_json(orient="records", indent=1))
        return
    from rankscope.lab.judging.verdict import Table

    table = table.assign(shape=table["shape"].str.replace(" ", "")) if "shape" in table else table
    rows = tuple(
        (str(name), *map(_cell, row)) for name, row in zip(table.index, table.values, strict=True)
    )
    columns = ("matrix", *(str(column).replace("_", " ") for column in table.columns))
    print_table(Table(columns, rows), title=title, least=LEAST)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
