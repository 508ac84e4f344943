"""Numbers in the sentences of the documentation that come from the evidence on boix2023."""

from collections.abc import Callable

from rankscope.lab.reporting.numbers import number
from rankscope.lab.reporting.page_values import (
    PageText,
    PageValue,
    Row,
    as_count,
    as_percent,
)

HEAD = "toy-diag: teacher-1"
PERTURBED = "assumptions: teacher-1"


def of_kind(kind: str) -> Callable[[Row], bool]:
    """Return whether a row counts trials of one kind, with either noise."""
    return lambda row: str(row["trials"]).startswith(kind)


def in_vit(name: str, claim: str, network: str, column: str) -> PageValue:
    """Return a number of one vision transformer: "vit-cifar10 K-Q growth"."""
    experiment, _, kind = network.partition(": vit")
    return PageValue(f"{experiment}{kind.rpartition(',')[2]} {name}", claim, network, column)


VALUES = (
    PageValue("distance at 1e-4", "B1", HEAD, "1e-4", show=as_percent),
    PageValue("distance at 1e-32", "B1", HEAD, "1e-32", show=as_percent),
    PageValue("entries in a stage", "B2", HEAD, reduce=max),
    PageValue("errors of times", "B3", HEAD, reduce=max, show=as_percent),
    *(
        PageValue(f"{kind} trials {column}", "B5", PERTURBED, column, of_kind(kind), sum, as_count)
        for kind in ("plateau", "newly active")
        for column in ("1000", "of")
    ),
    *(
        PageValue(f"{teacher} {kind} in turn", "B6", f"toy-full: {teacher}, {kind}", reduce=min)
        for teacher in ("gaussian", "aligned")
        for kind in ("K-Q", "V-O")
    ),
    *(
        in_vit(column, "B7", f"vit-cifar10: vit, scale 1, {kind}", column)
        for kind in ("K-Q", "V-O")
        for column in ("first rank", "last rank", "growth")
    ),
    *(
        in_vit(f"rank at {scale}", "B8", f"vit-cifar10: vit, {kind}", f"stable rank at {scale}")
        for kind in ("K-Q", "V-O")
        for scale in ("scale 0.03", "scale 1")
    ),
    *(
        in_vit(column, claim, f"vit-cifar10: vit, scale 1, {kind}", column)
        for claim, kind in (("B9", "K-Q"), ("B9-VO", "V-O"))
        for column in ("rank of the change", "rank at the start")
    ),
    PageValue(
        "vit-cifar10 V-O least growth",
        "B7",
        "vit-cifar10: vit, scale 1, V-O",
        "growth",
        reduce=min,
        show=number,
    ),
    *(
        PageValue(
            f"vit-cifar10 V-O {name} below a quarter",
            "B9-first",
            "vit-cifar10: vit, scale 1, V-O",
            reduce=reduce,
            show=as_percent,
        )
        for name, reduce in (("least", min), ("most", max))
    ),
    PageValue("vit-cifar10 seeds", "B9", "vit-cifar10: vit, scale 1, K-Q", reduce=len),
    in_vit("growth", "B7", "vit-cifar100: vit, scale 1, K-Q", "growth"),
    in_vit("growth", "B7", "vit-cifar100: vit, scale 1, V-O", "growth"),
    in_vit("rank of the change", "B9", "vit-cifar100: vit, scale 1, K-Q", "rank of the change"),
    in_vit("rank at the start", "B9", "vit-cifar100: vit, scale 1, K-Q", "rank at the start"),
)

RANK_AFTER = "vit-cifar100 K-Q rank of the change"
RANK_BEFORE = "vit-cifar100 K-Q rank at the start"
GROWTH_KQ = "vit-cifar100 K-Q growth"
GROWTH_VO = "vit-cifar100 V-O growth"


def marker(name: str) -> str:
    """Return the place in a text where the value of this name is written."""
    return f"<!-- value: {name} --><!-- / -->"


TEXTS = (
    PageText(
        "cifar-100",
        needs=(RANK_AFTER,),
        text="Rules and code were never tuned on CIFAR-100. The tables of B7, B8 and B9 name it. "
        "Its figures stand here.",
        otherwise="CIFAR-100 has not been run at the paper's size.",
    ),
    PageText(
        "figure 13",
        needs=(RANK_AFTER, RANK_BEFORE),
        text="*Beside figure 13 of the paper*, where the change has low rank: ours ends with a "
        f"stable rank\nof {marker(RANK_AFTER)} (K-Q), where the products began\n"
        f"with {marker(RANK_BEFORE)}.",
    ),
    PageText(
        "figure 14",
        needs=(GROWTH_KQ, GROWTH_VO),
        text="*Beside figure 14 of the paper*, where the rank grows gradually: the median block of "
        f"ours\ngrows {marker(GROWTH_KQ)} times (K-Q)\nand {marker(GROWTH_VO)} times (V-O).",
    ),
)
