"""Measures that a tracker takes beside the spectra of weights: updates, gradients and more."""

from rankscope.measures.activations import Activations as Activations
from rankscope.measures.attention import Attention as Attention
from rankscope.measures.gradients import Gradients as Gradients
from rankscope.measures.moments import Moments as Moments
from rankscope.measures.protocol import Gauge as Gauge
from rankscope.measures.protocol import Measure as Measure
from rankscope.measures.protocol import Moment as Moment
from rankscope.measures.protocol import OptimizerStep as OptimizerStep
from rankscope.measures.protocol import Subject as Subject
from rankscope.measures.rotation import Rotation as Rotation
from rankscope.measures.updates import Updates as Updates
