"""The demonstration: a cut of `rankscope reproduce` with one seed, in a few minutes."""

from pathlib import Path

from rankscope.lab.catalogue import load_paper
from rankscope.lab.experiment import Scale
from rankscope.lab.paper import Paper, cut
from rankscope.lab.placement import Placement
from rankscope.lab.reproduction import reproduce

# A VGG that learns digits and a Transformer that learns Python source code, at two weight decays
# each; gradient flow of a diagonal attention head from three alphas, beside Algorithm 1.
RUNS: dict[str, dict[str, tuple[str, ...]]] = {
    "yunis2024": {
        "yunis2024/lm": ("lm/decay-0.1", "lm/decay-10"),
        "yunis2024/vgg": ("vgg/decay-0.0001", "vgg/decay-0.001"),
    },
    "boix2023": {
        "boix2023/toy-diag": (
            "teacher-1/alpha-1e-300",
            "teacher-1/alpha-1e-32",
            "teacher-1/alpha-1e-8",
            "teacher-1/algorithm",
        )
    },
}
NOTE = (
    "This is the demonstration: one seed and a few runs. Verdicts take three seeds, so every claim "
    "stays undecided, and networks that were not run are left out. The values are real, and the "
    "runs are those of rankscope reproduce, which will not run them again."
)


def demo(
    out: Path,
    *,
    command: str = "rankscope demo",
    jobs: int | None = None,
    placement: Placement | None = None,
) -> bool:
    """Run the cut in `out`, as `reproduce` would, and report on it in `out`/demo."""
    return reproduce(
        demo_papers("small"),
        out,
        out / "demo",
        command=command,
        note=NOTE,
        jobs=jobs,
        placement=placement,
    )


def demo_papers(scale: Scale) -> tuple[Paper, ...]:
    """The cuts of both papers."""
    return tuple(cut(load_paper(name, scale), runs, seeds=(0,)) for name, runs in RUNS.items())
