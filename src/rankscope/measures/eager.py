"""Forward passes without torch.compile, which ignores hooks that come after it.

Compiled code stays as it is and is used again afterwards; nothing is compiled anew.
"""

import sys
from typing import Any


class EagerForward:
    """Lets compiled functions run as plain Python while at least one gauge looks."""

    def __init__(self) -> None:
        self._count = 0
        self._stance: Any = None

    def begin(self) -> None:
        self._count += 1
        # Without dynamo there is no compiled function, and importing it takes seconds.
        if self._count == 1 and "torch._dynamo" in sys.modules:
            from torch.compiler import set_stance

            self._stance = set_stance("force_eager")

    def end(self) -> None:
        self._count -= 1
        if self._count == 0 and self._stance is not None:
            self._stance.__exit__(None, None, None)
            self._stance = None


EAGER = EagerForward()
