"""Entry point of Lightning: a callback for each Trainer while RANKSCOPE_RUN names a run.

Lightning imports this module whenever a Trainer is made, so it imports the rest when it is needed.
"""

import os
from typing import Any

VARIABLE = "RANKSCOPE_RUN"


def callbacks() -> list[Any]:
    """Return a callback that tracks into the run named by RANKSCOPE_RUN; none if it is not set.

    Whoever sets the variable may not know the code that trains, so a mistake is only a warning.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return []
    from rankscope.integrations.lightning import RankCallback

    return [RankCallback(path, forgiving=True)]
