"""Watch the rank of neural networks while they learn.

Names are imported when they are first used, so `import rankscope` loads neither torch nor xarray.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rankscope.registration import register_accessor

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rankscope import accessor as accessor
    from rankscope import figures as figures
    from rankscope import interventions as interventions
    from rankscope import matrices as matrices
    from rankscope import metrics as metrics
    from rankscope import overlaps as overlaps
    from rankscope import pairs as pairs
    from rankscope import snapshot as snapshot
    from rankscope import spectra as spectra
    from rankscope import store as store
    from rankscope import theory as theory
    from rankscope import tracker as tracker
    from rankscope.interventions import perturb as perturb
    from rankscope.interventions import perturb_relative as perturb_relative
    from rankscope.interventions import reestimate_batchnorm as reestimate_batchnorm
    from rankscope.interventions import sample_batches as sample_batches
    from rankscope.interventions import truncate as truncate
    from rankscope.matrices import Manifest as Manifest
    from rankscope.matrices import Product as Product
    from rankscope.matrices import Reading as Reading
    from rankscope.matrices import View as View
    from rankscope.matrices import attention_rule as attention_rule
    from rankscope.matrices import manifest as manifest
    from rankscope.matrices import product_change as product_change
    from rankscope.matrices import products as products
    from rankscope.matrices import view_rule as view_rule
    from rankscope.matrices import views as views
    from rankscope.overlaps import agreement as agreement
    from rankscope.overlaps import alignment as alignment
    from rankscope.overlaps import balancedness as balancedness
    from rankscope.overlaps import chance_overlap as chance_overlap
    from rankscope.overlaps import mean_alignment as mean_alignment
    from rankscope.overlaps import normalized_alignment as normalized_alignment
    from rankscope.pairs import Cut as Cut
    from rankscope.pairs import Pair as Pair
    from rankscope.pairs import discover_pairs as discover_pairs
    from rankscope.pairs import inside_pairs as inside_pairs
    from rankscope.pairs import pair_rule as pair_rule
    from rankscope.spectra import Svd as Svd
    from rankscope.spectra import decompose as decompose
    from rankscope.spectra import singular_values as singular_values
    from rankscope.spectra import svd as svd
    from rankscope.store import open as open
    from rankscope.tracker import At as At
    from rankscope.tracker import Epochs as Epochs
    from rankscope.tracker import Every as Every
    from rankscope.tracker import LogEpochs as LogEpochs
    from rankscope.tracker import LogSpaced as LogSpaced
    from rankscope.tracker import Tracker as Tracker

# Modules and the names they give to the package. A test compares this with the imports above.
EXPORTS: dict[str, tuple[str, ...]] = {
    "accessor": (),
    "figures": (),
    "interventions": (
        "perturb",
        "perturb_relative",
        "reestimate_batchnorm",
        "sample_batches",
        "truncate",
    ),
    "matrices": (
        "Manifest",
        "Product",
        "Reading",
        "View",
        "attention_rule",
        "manifest",
        "product_change",
        "products",
        "view_rule",
        "views",
    ),
    "metrics": (),
    "overlaps": (
        "agreement",
        "alignment",
        "balancedness",
        "chance_overlap",
        "mean_alignment",
        "normalized_alignment",
    ),
    "pairs": ("Cut", "Pair", "discover_pairs", "inside_pairs", "pair_rule"),
    "snapshot": (),
    "spectra": ("Svd", "decompose", "singular_values", "svd"),
    "store": ("open",),
    "theory": (),
    "tracker": ("At", "Epochs", "Every", "LogEpochs", "LogSpaced", "Tracker"),
}
MODULE_OF = {name: module for module, names in EXPORTS.items() for name in names}

__all__ = ["__version__", *EXPORTS, *MODULE_OF]


if not TYPE_CHECKING:  # with this in sight, type checkers would accept any name

    def __getattr__(name: str) -> Any:
        """Import an exported name when it is first used."""
        if name in EXPORTS:
            return import_module(f"rankscope.{name}")
        if name not in MODULE_OF:
            raise AttributeError(f"module 'rankscope' has no attribute {name!r}")
        value = getattr(import_module(f"rankscope.{MODULE_OF[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted(__all__)


register_accessor()
