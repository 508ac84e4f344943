"""Networks changed on purpose: truncated SVDs of weights or of their changes, noise, BatchNorm."""

from rankscope.interventions.batchnorm import reestimate_batchnorm as reestimate_batchnorm
from rankscope.interventions.batchnorm import sample_batches as sample_batches
from rankscope.interventions.noise import perturb as perturb
from rankscope.interventions.noise import perturb_relative as perturb_relative
from rankscope.interventions.rewriting import replace_matrices as replace_matrices
from rankscope.interventions.truncation import Part as Part
from rankscope.interventions.truncation import directions_kept as directions_kept
from rankscope.interventions.truncation import projected as projected
from rankscope.interventions.truncation import truncate as truncate
