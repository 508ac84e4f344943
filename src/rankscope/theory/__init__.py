"""Incremental learning in networks with diagonal weights: flows, Algorithm 1, its assumptions."""

from rankscope.theory.descent import descend as descend
from rankscope.theory.flow import flow as flow
from rankscope.theory.full_flow import FullTrajectory as FullTrajectory
from rankscope.theory.full_flow import descend_full as descend_full
from rankscope.theory.full_flow import flow_full as flow_full
from rankscope.theory.full_head import FullHead as FullHead
from rankscope.theory.full_head import attention as attention
from rankscope.theory.incremental import Certificate as Certificate
from rankscope.theory.incremental import Stage as Stage
from rankscope.theory.incremental import incremental as incremental
from rankscope.theory.incremental import time_until_active as time_until_active
from rankscope.theory.instances import attention_head as attention_head
from rankscope.theory.instances import diagonal_attention as diagonal_attention
from rankscope.theory.instances import diagonal_transformer as diagonal_transformer
from rankscope.theory.instances import linear_network as linear_network
from rankscope.theory.instances import whitened_network as whitened_network
from rankscope.theory.networks import Coordinate as Coordinate
from rankscope.theory.networks import DiagonalNetwork as DiagonalNetwork
from rankscope.theory.networks import square_error as square_error
from rankscope.theory.rises import Rises as Rises
from rankscope.theory.rises import rise_times as rise_times
from rankscope.theory.trajectory import Crossing as Crossing
from rankscope.theory.trajectory import Trajectory as Trajectory
