"""B7: parts of the change of K-Q while its rank falls, in a small ViT on digits.

With K = K0 + dK and Q = Q0 + dQ, the change of K^T Q has a linear part, dK^T Q0 + K0^T dQ, and a
quadratic one, dK^T dQ. Each linear term has a rank near one, and their sum a higher one. The rank
of the change falls to one as the quadratic part outgrows the linear one.
Archived runs do not store K and Q, so this trains a network of its own, in seconds on one core.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from rankscope.lab.data.digits import Digits
from rankscope.lab.judging.selected_runs import Runs
from rankscope.lab.judging.verdict import Table
from rankscope.lab.models.vit import Vit, VitConfig
from rankscope.lab.reporting.evidence import Row
from rankscope.metrics import stable_rank

CONFIG = VitConfig(
    image=8,
    channels=1,
    patch=2,
    depth=2,
    heads=4,
    width=64,
    hidden=64,
    head_width=16,
    init_scale=0.1,
)
MOMENTS = (2, 10, 20, 40, 60, 80, 120, 200, 300, 400, 600)  # steps
RATE, WARM_UP, BATCH = 1e-3, 300, 64

Factors = Float[Tensor, "*heads unit width"]
Products = Float[Tensor, "*heads width width"]


class Parts(NamedTuple):
    """Parts of the change of K^T Q since the start, for every head."""

    keys: Products  # dK^T Q0
    queries: Products  # K0^T dQ
    quadratic: Products  # dK^T dQ

    @property
    def linear(self) -> Products:
        return self.keys + self.queries


def parts_of(K0: Factors, Q0: Factors, K: Factors, Q: Factors) -> Parts:
    """Return the parts of K^T Q - K0^T Q0."""
    dK, dQ = K - K0, Q - Q0
    return Parts(dK.mT @ Q0, K0.mT @ dQ, dK.mT @ dQ)


def parts_over_time(_: Runs) -> Table:
    """A small ViT on digits at scale 0.1: stable rank of the change of K-Q and of its parts."""
    model = CONFIG.build(0)
    images = Digits().build()
    inputs = images.inputs.float()
    inputs = (inputs - inputs.mean()) / inputs.std()
    optimizer, source = torch.optim.Adam(model.parameters()), torch.Generator().manual_seed(0)
    start = factors(model)
    rows: list[Row] = []
    for step in range(1, MOMENTS[-1] + 1):
        optimizer.param_groups[0]["lr"] = RATE * min(1, step / WARM_UP)
        chosen = torch.randint(len(inputs), (BATCH,), generator=source)
        loss = F.cross_entropy(model(inputs[chosen]), images.labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in MOMENTS:
            rows.append((step, loss.item(), *_row(parts_of(*start, *factors(model)))))
    ranks = ("change", "dK^T Q0", "K0^T dQ", "both, linear", "dK^T dQ, quadratic")
    columns = ("step", "loss", *ranks, "|quadratic| / |linear|")
    return Table(columns, tuple(rows), "stable ranks and sizes, mean over heads and blocks")


def factors(model: Vit) -> tuple[Tensor, Tensor]:
    """Return K and Q (block, head, unit, width) in double precision."""
    weights = model.state_dict()

    def stacked(letter: str) -> Tensor:
        names = [f"blocks.{block}.attention.{letter}.weight" for block in range(CONFIG.depth)]
        matrices = [weights[name].double().unflatten(0, (CONFIG.heads, -1)) for name in names]
        return torch.stack(matrices)

    return stacked("k"), stacked("q")


def _row(parts: Parts) -> Row:
    change = parts.linear + parts.quadratic
    products = (change, parts.keys, parts.queries, parts.linear, parts.quadratic)
    ranks = (float(stable_rank(torch.linalg.svdvals(W)).mean()) for W in products)
    linear, quadratic = (W.flatten(-2).norm(dim=-1) for W in (parts.linear, parts.quadratic))
    return *ranks, float((quadratic / linear).mean())
