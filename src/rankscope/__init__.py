"""rankscope: watch the rank of neural networks while they learn."""

__version__ = "0.1.0"

from rankscope import accessor as accessor
from rankscope import metrics as metrics
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
