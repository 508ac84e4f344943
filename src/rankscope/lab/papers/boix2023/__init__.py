"""The paper of Boix-Adsera, Littwin, Abbe, Bengio and Susskind, as a study."""

from rankscope.lab.experiment import Scale, Study
from rankscope.lab.papers.boix2023 import (
    assumptions,
    diag_transformer,
    toy_diag,
    toy_full,
    vit_cifar10,
    vit_cifar100,
    vit_imagenet,
    vit_variants,
)
from rankscope.lab.papers.boix2023.claims.assumptions import B5, B5_FIRST
from rankscope.lab.papers.boix2023.claims.full_matrices import B6, B6_FIRST
from rankscope.lab.papers.boix2023.claims.growth import B7, B7_FIRST
from rankscope.lab.papers.boix2023.claims.init_scales import B8, B8_FIRST
from rankscope.lab.papers.boix2023.claims.losses import B1, B1_FIRST
from rankscope.lab.papers.boix2023.claims.low_rank import B9, B9_FIRST, B9_VALUES
from rankscope.lab.papers.boix2023.claims.stages import B2, B2_FIRST, B3, B3_FIRST
from rankscope.lab.papers.boix2023.page_values import TEXTS, VALUES
from rankscope.lab.papers.boix2023.runs import TITLES

CLAIMS = (
    *(B1, B1_FIRST, B2, B2_FIRST, B3, B3_FIRST, B5, B5_FIRST, B6, B6_FIRST),
    *(B7, B7_FIRST, B8, B8_FIRST, B9, B9_FIRST, B9_VALUES),
)
TOYS = (toy_diag, diag_transformer, assumptions, toy_full)
VITS = (vit_cifar10, vit_cifar100, vit_imagenet, vit_variants)
# Seeds of scale paper that had been seen when the changed rules were made. No ViT had been run on
# other data than CIFAR-10, nor at other sizes.
SEEN = {
    **dict.fromkeys(("toy-diag", "diag-transformer", "assumptions", "toy-full"), (0, 1, 2)),
    "vit-cifar10": (0,),
}


def study(scale: Scale) -> Study:
    """Return the experiments, claims and figures of the paper at one scale."""
    # Imported here, so that claims can be read without plotting.
    from rankscope.lab.papers.boix2023.figures.captions import FIGURES

    return Study(
        name="boix2023",
        title="Transformers learn through gradual rank increase",
        scale=scale,
        experiments=tuple(module.experiment(scale) for module in (*TOYS, *VITS)),
        claims=CLAIMS,
        figures=FIGURES,
        page_values=VALUES,
        page_texts=TEXTS,
        network_titles=TITLES,
        highlights=("staircase-entries", "figure-12"),
        seen={f"boix2023/{n}": s for n, s in SEEN.items()} if scale == "paper" else {},
    )
