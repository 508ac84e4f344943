"""B7: what the change of K-Q is made of while its rank falls, in a small ViT that keeps factors.

With K = K0 + dK and Q = Q0 + dQ the change of K^T Q is a linear part, dK^T Q0 + K0^T dQ, and a
quadratic one, dK^T dQ. Both linear terms have rank one or nearly so, their sum more; the change
falls to one as the quadratic part outgrows them, and hardly grows in the steps that are here.
Digits, seconds on one core; no run of boix2023's size keeps its factors.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from rankscope.lab.data.digits import Digits
from rankscope.lab.judging.verdict import Table
from rankscope.lab.models.vit import Vit, VitConfig
from rankscope.lab.papers.yunis2024.evidence.runs import Row
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
    """Of the change of K^T Q since the start, of every head."""

    of_keys: Products  # dK^T Q0
    of_queries: Products  # K0^T dQ
    quadratic: Products  # dK^T dQ

    @property
    def linear(self) -> Products:
        return self.of_keys + self.of_queries


def parts_of(K0: Factors, Q0: Factors, K: Factors, Q: Factors) -> Parts:
    dK, dQ = K - K0, Q - Q0
    return Parts(dK.mT @ Q0, K0.mT @ dQ, dK.mT @ dQ)


def parts_over_time() -> Table:
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
    """K and Q (block, head, unit, width), in double precision."""
    weights = model.state_dict()

    def stacked(of: str) -> Tensor:
        names = [f"blocks.{block}.attention.{of}.weight" for block in range(CONFIG.depth)]
        return torch.stack([weights[name].double() for name in names])

    K, Q = (stacked(of).unflatten(1, (CONFIG.heads, -1)) for of in ("k", "q"))
    return K, Q


def _row(parts: Parts) -> Row:
    change = parts.linear + parts.quadratic
    shown = (change, parts.of_keys, parts.of_queries, parts.linear, parts.quadratic)
    ranks = (float(stable_rank(torch.linalg.svdvals(each)).mean()) for each in shown)
    linear, quadratic = (of.flatten(-2).norm(dim=-1) for of in (parts.linear, parts.quadratic))
    return *ranks, float((quadratic / linear).mean())
