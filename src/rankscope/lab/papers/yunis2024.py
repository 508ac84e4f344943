"""Yunis, Patel, Wheeler, Savarese, Vardi, Livescu, Maire, Walter: Rank Minimization, Alignment
and Weight Decay in Neural Networks.

Its claims speak of all networks, so they are judged on the runs of all experiments together.
"""

from rankscope.lab.catalogue import experiments_of
from rankscope.lab.claims.networks import CLAIMS
from rankscope.lab.experiment import Scale
from rankscope.lab.network_figures import ALL_FIGURES
from rankscope.lab.paper import Paper


def paper(scale: Scale) -> Paper:
    return Paper(
        name="yunis2024",
        title="Rank Minimization, Alignment and Weight Decay in Neural Networks",
        scale=scale,
        experiments=experiments_of("yunis2024", scale),
        claims=CLAIMS,
        figures=ALL_FIGURES,
    )
