"""The paper of Boix-Adsera, Littwin, Abbe, Bengio and Susskind, as a study."""

from rankscope.lab.experiment import Scale, Study


def study(scale: Scale) -> Study:
    """Return the experiments, claims and figures of the paper at one scale."""
    # Imported here, so that claims can be read without plotting.
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
    from rankscope.lab.papers.boix2023.claims import assumptions as assumption_claims
    from rankscope.lab.papers.boix2023.claims import full_matrices, stages, vits
    from rankscope.lab.papers.boix2023.figures.captions import FIGURES

    modules = (
        toy_diag,
        diag_transformer,
        assumptions,
        toy_full,
        vit_cifar10,
        vit_cifar100,
        vit_imagenet,
        vit_variants,
    )
    return Study(
        name="boix2023",
        title="Transformers learn through gradual rank increase",
        scale=scale,
        experiments=tuple(module.experiment(scale) for module in modules),
        claims=(*stages.RULES, *assumption_claims.RULES, *full_matrices.RULES, *vits.RULES),
        figures=FIGURES,
    )
