"""The parts of the command lora: one for each thing that its paths may be."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from rankscope.cli.tables import print_table, warn

if TYPE_CHECKING:
    import pandas as pd

Place = TypeVar("Place", str, Path)
MAX_RANK = 64  # that of the functions, which are not imported for a help text
# Columns that a narrow terminal does without, the least useful first.
LEAST = ("norm", "r50", "lowest cosine", "noise", "effective rank", "r99", "shape", "r90")


def write_adapter(
    pair: tuple[str, str],
    out: Path | None,
    rules: Mapping[str, Any],
    options: Mapping[str, Any],
    dtype: str,
    *,
    overwrite: bool,
    json: bool,
) -> None:
    from rankscope.lora import extract

    base, tuned = pair
    if out is None:
        _plan(base, tuned, rules, options, json=json)
        return
    with _progress() as report:
        result = extract(
            base,
            tuned,
            out,
            **rules,
            **options,
            dtype=dtype,
            overwrite=overwrite,
            progress=report,
        )
    _show(result.table, json, title=f"{tuned} - {base}")
    _name_left_out(result.left_out)
    _name_limited(result.table, rules)
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


def model_of(base: str) -> Any:
    """Return the model that transformers builds from the configuration of a base."""
    from rankscope.checkpoints import open_checkpoint
    from rankscope.lora.loaded_names import transformers_model

    return transformers_model(open_checkpoint(base))


def _plan(
    base: str,
    tuned: str,
    rules: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    json: bool,
) -> None:
    from rankscope.lora import plan

    table = plan(base, tuned, **rules, **options)
    if table.empty:
        raise ValueError(f"no matrix changed from {base} to {tuned}; compare other checkpoints")
    default = {"max_rank": MAX_RANK, "round_to": 1}
    chosen = any(value not in (None, False, default.get(rule)) for rule, value in rules.items())
    shown = table if chosen else table.drop(columns=["rank", "error"])
    _show(shown, json, title=f"{tuned} - {base}")
    _name_left_out(table.attrs["left_out"])
    _name_limited(table, rules)
    if chosen:
        typer.echo(
            f"{table.attrs['parameters']} parameters in factors; the error of their changes "
            f"together would be {table.attrs['error']:.3g}; -o writes the adapter",
            err=True,
        )
    elif not json:
        _explain_columns(table)
        typer.echo(
            "choose ranks by --energy, --error, --noise, --budget or --max-rank, and write an "
            "adapter by -o",
            err=True,
        )


def _explain_columns(table: "pd.DataFrame") -> None:
    """Say what the columns tell somebody who chooses ranks: their ranges over all factors."""
    factored = table[table["rank"].notna()]

    def span(column: str) -> str:
        values = sorted(factored[column], key=lambda value: int(str(value).lstrip(">=")))
        return " to ".join(dict.fromkeys((str(values[0]), str(values[-1]))))

    if len(factored):
        typer.echo(
            f"r90 is the rank that holds 90% of a change's energy: {span('r90')}; "
            f"99% takes {span('r99')}\n"
            f"signal is the number of directions above the noise floor: {span('signal')}",
            err=True,
        )


def _name_left_out(reasons: Mapping[str, str]) -> None:
    warn([f"left out: {name}: {reason}" for name, reason in reasons.items()])


def _name_limited(table: "pd.DataFrame", rules: Mapping[str, Any]) -> None:
    """Say how many matrices have a larger error than asked for, and which limits are the cause."""
    energy, error = rules["energy"], rules["error"]
    if energy is None and error is None:
        return
    allowed = error if energy is None else (1 - energy) ** 0.5
    count = int((table["error"] > allowed * (1 + 1e-6)).sum())
    limits = {f"--max-rank {rules['max_rank']}": rules["max_rank"], "--noise": rules["noise"]}
    causes = " and ".join(option for option, value in limits.items() if value)
    if count:
        warn([f"{count} of {len(table)} matrices miss the error asked for because of {causes}"])


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


def show_directions(path: str, base: str | None, json: bool) -> None:
    from rankscope.lora import intruders, used_directions

    table = used_directions(path)
    if base is not None:
        table = table.join(intruders(path, base).drop(columns="shape"))
    _show(table, json, title=path)


def show_difference(a: str, b: str, json: bool) -> None:
    from rankscope.lora import difference_of

    _show(difference_of(a, b), json, title=f"{b} - {a}")


def write_smaller(
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
    options = {"--resize": "max_rank", "--energy": "energy", "--budget": "budget"}
    option = next(option for option, rule in options.items() if rules[rule] is not None)
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


def write_merged(path: str, base: str | None, out: Path | None, *, overwrite: bool) -> None:
    from rankscope.lora import merge

    result = merge(
        path,
        _needed(base, "--merge", "--base"),
        _needed(out, "--merge", "-o"),
        overwrite=overwrite,
    )
    added = f", {', '.join(result.added)} added" if result.added else ""
    typer.echo(f"{result.path}: {len(result.changed)} tensors changed{added}", err=True)


def show_growth(
    path: str, base: str | None, pattern: str | None, figure: Path | None, json: bool
) -> None:
    from rankscope.checkpoints import natural_order
    from rankscope.lora import growth

    table = growth(path, base=base, pattern=pattern)
    if figure is not None:
        from rankscope.figures import change_ranks_over_steps, save

        png, _ = save(change_ranks_over_steps(table), figure)
        typer.echo(f"{png}", err=True)
    if not json:  # growth reads downwards
        table = table.sort_values("matrix", key=lambda c: c.map(natural_order), kind="stable")
    _show(table.set_index("matrix"), json, title=path)
    warn(table.attrs["notes"])
    warn(table.attrs["problems"])
    if table.attrs["problems"]:
        raise typer.Exit(2)


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
