"""Yunis, Patel, Wheeler, Savarese, Vardi, Livescu, Maire, Walter: Rank Minimization, Alignment
and Weight Decay in Neural Networks.

Its claims speak of all networks, so they are judged on the runs of all experiments together.
"""

from rankscope.lab.experiment import PageTable, Scale, Study
from rankscope.lab.papers.yunis2024 import grok, lm, lstm, mlp, unet, vgg
from rankscope.lab.papers.yunis2024.claims.alignment import Y3, Y3_FIRST
from rankscope.lab.papers.yunis2024.claims.alignment_by_decay import Y5
from rankscope.lab.papers.yunis2024.claims.decay import Y4, Y5_FIRST
from rankscope.lab.papers.yunis2024.claims.filters import Y11, Y11_FIRST
from rankscope.lab.papers.yunis2024.claims.grokking import Y9
from rankscope.lab.papers.yunis2024.claims.growth import Y1, Y1_FIRST
from rankscope.lab.papers.yunis2024.claims.high_decay import Y7, Y7_FIRST
from rankscope.lab.papers.yunis2024.claims.kinds import Y10
from rankscope.lab.papers.yunis2024.claims.labels import Y8, Y8_FIRST, Y8B
from rankscope.lab.papers.yunis2024.claims.peaks import Y3B, Y3B_FIRST
from rankscope.lab.papers.yunis2024.claims.ranks import Y2, Y12
from rankscope.lab.papers.yunis2024.claims.truncation import Y6, Y6_FIRST
from rankscope.lab.papers.yunis2024.official.cost import cost_tables
from rankscope.lab.papers.yunis2024.official.tables import official_tables
from rankscope.lab.papers.yunis2024.page_values import VALUES
from rankscope.lab.papers.yunis2024.runs import base_runs_of

CLAIMS = (
    *(Y1, Y1_FIRST, Y2, Y3, Y3_FIRST, Y3B, Y3B_FIRST, Y4, Y5, Y5_FIRST, Y6, Y6_FIRST),
    *(Y7, Y7_FIRST, Y8, Y8_FIRST, Y8B, Y9, Y10, Y11, Y11_FIRST, Y12),
)
PAGE_TABLES = (
    PageTable("official", official_tables, base_runs_of("vgg")),
    PageTable("cost", cost_tables),
)
# Seeds of scale paper that had been seen when the changed rules were made.
SEEN = {
    **dict.fromkeys(("vgg", "mlp", "grok"), (0, 1, 2)),
    **dict.fromkeys(("unet", "lstm", "lm"), (0,)),
}


def study(scale: Scale) -> Study:
    """Return the study of the paper at one scale."""
    from rankscope.lab.papers.yunis2024.figures.captions import FIGURES, TITLES

    return Study(
        name="yunis2024",
        title="Rank Minimization, Alignment and Weight Decay in Neural Networks",
        scale=scale,
        experiments=tuple(module.experiment(scale) for module in (vgg, unet, lstm, lm, mlp, grok)),
        claims=CLAIMS,
        figures=FIGURES,
        page_tables=PAGE_TABLES,
        page_values=VALUES,
        network_titles={("", name): title for name, title in (TITLES | {"mlp": "MLP"}).items()},
        highlights=("figure-1", "figure-2", "rank-by-decay"),
        seen={f"yunis2024/{n}": s for n, s in SEEN.items()} if scale == "paper" else {},
    )
