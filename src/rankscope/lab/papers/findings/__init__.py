"""Findings of our own, beyond the papers.

Their rules were fixed before their runs (docs/papers/rules.md). They use networks and settings of
the papers' experiments. Each finding has an experiment, a claim, a figure and a page.
"""

from rankscope.lab.experiment import PageTable, Scale, Study
from rankscope.lab.judging.selected_runs import runs_of
from rankscope.lab.papers.findings import clock, grokking_rank, needed_rank
from rankscope.lab.papers.findings.claims.clock import N1, clock_tables
from rankscope.lab.papers.findings.claims.crossings import N3, crossing_tables
from rankscope.lab.papers.findings.claims.needed_rank import N2, needed_rank_tables

CLAIMS = (N1, N2, N3)
# Seeds of scale paper that had been seen when the rules were made. A look at seed 0 of the ViT gave
# N1 its band.
SEEN = {"findings/clock": (0,), "findings/needed-rank": (), "findings/grokking-rank": ()}
PAGE_TABLES = (
    PageTable("clock lm", clock_tables, runs_of("lm", experiment="findings/clock")),
    PageTable("needed ranks", needed_rank_tables, runs_of(experiment="findings/needed-rank")),
    PageTable("crossings", crossing_tables, runs_of(experiment="findings/grokking-rank")),
)
TITLES = {
    ("findings/clock", "vit"): "ViT, CIFAR-10",
    ("findings/clock", "lm"): "Transformer",
    ("findings/needed-rank", "vit"): "ViT, CIFAR-10",
    ("findings/grokking-rank", "grok"): "modular addition",
}


def study(scale: Scale) -> Study:
    """Return the experiments, claims and figures of our findings at one scale."""
    # Imported here, so that claims can be read without plotting.
    from rankscope.lab.papers.findings.figures.captions import FIGURES

    return Study(
        name="findings",
        title="Beyond the papers",
        scale=scale,
        experiments=tuple(
            module.experiment(scale) for module in (clock, needed_rank, grokking_rank)
        ),
        claims=CLAIMS,
        figures=FIGURES,
        page_tables=PAGE_TABLES,
        network_titles=TITLES,
        highlights=("clock", "needed-rank", "grokking-rank"),
        seen=SEEN if scale == "paper" else {},
        ours=True,
    )
