"""Snapshots of a network: every spectrum, change, product and overlap at one moment.

A `Plan` says what to measure, `measure` measures it, `layout` says how the result is stored. The
tracker uses them while a network trains; they also work on weights from elsewhere.
"""

from rankscope.snapshot.measuring import Snapshot as Snapshot
from rankscope.snapshot.measuring import measure as measure
from rankscope.snapshot.planning import Plan as Plan
from rankscope.snapshot.planning import plan as plan
from rankscope.snapshot.storage import STATUS as STATUS
from rankscope.snapshot.storage import Coordinates as Coordinates
from rankscope.snapshot.storage import layout as layout
