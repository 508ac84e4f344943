"""Endpoints of panels: arrays and their description, each as one frame."""

from collections.abc import Callable

from rankscope.view.alignment import alignment
from rankscope.view.compare import compare
from rankscope.view.heat import heads, heat, lines
from rankscope.view.query import Query
from rankscope.view.series import scalars
from rankscope.view.spectra import spectra
from rankscope.view.spectrum import spectrum
from rankscope.view.theory import flow

PANELS: dict[str, Callable[[Query], bytes]] = {
    "heat": heat,
    "lines": lines,
    "scalars": scalars,
    "spectra": spectra,
    "spectrum": spectrum,
    "alignment": alignment,
    "heads": heads,
    "compare": compare,
    "theory/flow": flow,
}
