"""Numbers behind docs/results.md: `python -m findings [Y5 ...] [--all] [--data FOLDER]`."""

import argparse
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from findings import (
    alignment,
    assumptions,
    baselines,
    decay,
    factors,
    grokking,
    labels,
    losses,
    ranks,
    truncation,
    vit,
)
from rankscope.lab.tables import filled_table, plain_table
from rankscope.lab.verdict import Table

Finding = Callable[[], Table]

FINDINGS: dict[str, tuple[Finding, ...]] = {
    "Y1": (ranks.leads, ranks.trailing),
    "Y2": (ranks.falls, ranks.least_falls),
    "Y3": (alignment.at_chance, alignment.strong_pairs),
    "Y3b": (
        alignment.peaks_by_kind,
        alignment.peaks_by_decay,
        losses.learnt_by_heart,
        alignment.jumps,
        alignment.lstm_peaks,
    ),
    "Y5": (
        decay.vgg,
        decay.between_seeds,
        decay.few_directions,
        decay.unet_and_lstm,
        decay.shown_pairs,
        decay.lm_kinds,
        decay.lm_up_to_one,
        decay.overlaps_by_rank,
        decay.live_directions,
        decay.vanished_heads,
    ),
    "Y6": (
        truncation.vgg_gaps,
        truncation.vgg_costs,
        truncation.unet_gaps,
        truncation.unet_costs,
        truncation.lm_gaps,
        truncation.lm_course,
    ),
    "Y7": (losses.norms, losses.learnt_by_heart),
    "Y8": (labels.ranks, labels.singular_values),
    "Y9": (grokking.drops, grokking.spacings, grokking.single_snapshots),
    "Y10": (alignment.kinds_by_decay,),
    "Y11": (alignment.centres,),
    "Y12": (ranks.seed_ranges,),
    "B5": (assumptions.trials,),
    "B7": (vit.growth, vit.early_ranks, factors.parts_over_time),
    "B8": (vit.starts, vit.readings),
    "B9": (vit.low_ranks, vit.exceptions_over_time),
}
WITH_DATA: dict[str, tuple[Callable[[Path], Table], ...]] = {
    "Y7": (baselines.token_counts, baselines.linear_denoisers)
}
LEAST_WIDTH = 120  # characters; rich cuts what does not fit
NEEDS_DATA = (
    "Losses of predictors that need no network: give the folder of WikiText-2 and MNIST, laid out "
    "as docs/laboratory.md says, with --data FOLDER."
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m findings", description=__doc__)
    parser.add_argument("claims", nargs="*", metavar="claim", help=", ".join(FINDINGS))
    parser.add_argument("--all", action="store_true", help="every claim")
    parser.add_argument(
        "--data", type=Path, help=f"folder of data sets, for {', '.join(WITH_DATA)}"
    )
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.claims) - set(FINDINGS)):
        parser.error(f"nothing on {', '.join(unknown)}; choose from {', '.join(FINDINGS)}")
    if arguments.all and arguments.claims:
        parser.error(f"--all shows every claim: leave out {', '.join(arguments.claims)}, or --all")
    console = wide_console()
    if not arguments.all and not arguments.claims:
        list_findings(console)
    for claim in FINDINGS if arguments.all else arguments.claims:
        show(claim, console)
        try:
            show_with_data(claim, console, arguments.data)
        except ValueError as error:  # of those who read data: it is not there, or not whole
            parser.error(str(error))


def wide_console() -> Console:
    """As wide as the terminal, and at least as any table; a narrower one breaks the lines."""
    return Console(width=max(Console().width, LEAST_WIDTH))


def show(claim: str, console: Console) -> None:
    """Every table of a claim, under a sentence on what it is."""
    for finding in FINDINGS[claim]:
        print_table(f"{claim}. {sentence(finding)}", finding(), console)


def show_with_data(claim: str, console: Console, data: Path | None) -> None:
    """The tables that take data sets, or a sentence on what they take."""
    if claim not in WITH_DATA:
        return
    if data is None:
        console.print(f"{claim}. {NEEDS_DATA}", markup=False, highlight=False)
        return
    for finding in WITH_DATA[claim]:
        print_table(f"{claim}. {sentence(finding)}", finding(data), console)


def sentence(finding: Callable[..., Table]) -> str:
    """The first line of its docstring."""
    return (finding.__doc__ or "").partition("\n")[0]


def print_table(heading: str, content: Table, console: Console) -> None:
    table = filled_table(content, title=content.title)
    for column in table.columns[1:]:
        column.justify = "right"
    console.print(heading, markup=False, highlight=False, style="bold")
    console.print(table)


def list_findings(console: Console) -> None:
    table = plain_table("claim", "what is there")
    for claim, found in FINDINGS.items():
        table.add_row(claim, "\n".join(escape(sentence(each)) for each in found))
    console.print(table)


if __name__ == "__main__":
    main()
