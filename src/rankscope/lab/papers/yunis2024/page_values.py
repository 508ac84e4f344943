"""Numbers in the sentences of the documentation that come from the evidence on yunis2024."""

from rankscope.lab.papers.yunis2024.runs import BASE
from rankscope.lab.reporting.numbers import number
from rankscope.lab.reporting.page_values import PageValue, Row, as_factor, as_percent

LARGEST = {"vgg": "0.01", "unet": "10", "lstm": "10", "lm": "10"}  # decay; the VGG collapses above


def grokked(row: Row) -> bool:
    """Return whether a row is of the decay at which the network groks."""
    return row["decay"] == "1"


VALUES = (
    *(
        PageValue(f"{network} lead", "Y1", network, "median lead", show=as_factor)
        for network in BASE
    ),
    PageValue("falling matrices", "Y2", column="share", reduce=min, show=as_percent),
    PageValue("vgg change of rank", "Y2", "vgg", "median change"),
    PageValue("lm change of rank", "Y2", "lm", "median change"),
    PageValue("overlap at the start", "Y3", column="mean a(0) / background", show=number),
    PageValue(
        "overlap left of its peak", "Y3b", column="end over peak", reduce=max, show=as_percent
    ),
    *(PageValue(f"{network} rank, decay 0", "Y4", network, "NER at 0") for network in BASE),
    *(
        PageValue(f"{network} rank, largest decay", "Y4", network, f"NER at {decay}")
        for network, decay in LARGEST.items()
    ),
    PageValue("vgg rank, base decay", "Y4", "vgg", "NER at 0.0001"),
    PageValue("lm rank, base decay", "Y4", "lm", "NER at 0.1"),
    *(PageValue(f"{network} alignment", "Y5", network) for network in BASE),
    PageValue("vgg alignment, highest", "Y5", "vgg", reduce=max, show=number),
    PageValue("vgg alignment, lowest", "Y5", "vgg", reduce=min, show=number),
    *(
        PageValue(f"{network} top half", "Y6", f"{network}, top half", show=as_percent)
        for network in BASE
    ),
    PageValue("lm gain", "Y7", "lm", show=as_percent),
    *(PageValue(f"middle layer {i}", "Y8", f"mlp, middle layer {i}") for i in (1, 2)),
    *(
        PageValue(
            f"alignment left, {labels}", "Y8b", "mlp", f"a(end) / max a, {labels}", show=as_percent
        )
        for labels in ("true", "random")
    ),
    PageValue("grokking delay", "Y9", reduce=max),
    PageValue("rank before grokking", "Y9", "grok", "NER start", grokked),
    PageValue("rank after grokking", "Y9", "grok", "NER end", grokked),
)
