"""The overview of a run as a widget in a notebook cell."""

import xarray as xr

from rankscope.extras import needed_by
from rankscope.view.overview import STYLE, bundle, overview_frame

with needed_by("run.rankscope.view()"):
    import anywidget
    import traitlets


class Overview(anywidget.AnyWidget):
    """A widget that shows one run as it is now."""

    _esm = bundle()
    _css = STYLE.read_text()
    overview = traitlets.Bytes().tag(sync=True)
    theme = traitlets.Unicode("auto").tag(sync=True)


def overview(ds: xr.Dataset, *, of: str | None = None, metric: str | None = None) -> Overview:
    """Return the widget of a run.

    of, metric: what the heat map shows, by default the normalised effective rank of weights.
    """
    return Overview(overview=overview_frame(ds, of=of, metric=metric))
