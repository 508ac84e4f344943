"""Images of two handwritten digits: a hundred classes without a download."""

from dataclasses import dataclass
from pathlib import Path

import torch

from rankscope.lab.data.digits import Digits
from rankscope.lab.data.images import Images

PAIRING = 7  # seed of the pairing, the same for every run


@dataclass(frozen=True)
class DigitPairs:
    """Two digits to an image; the class is the number they form, 0 to 99.

    Each digit is in at most one pair, so held-out pairs show digits not seen in training.
    """

    digits: Digits = Digits()  # noqa: RUF009

    @property
    def classes(self) -> int:
        return 100

    @property
    def shape(self) -> tuple[int, int, int]:
        channels, rows, columns = self.digits.shape
        return channels, rows, 2 * columns

    def build(self, folder: Path | None = None) -> Images:
        """Build the images from scikit-learn's digits; `folder` is ignored."""
        digits = self.digits.build()
        order = torch.randperm(len(digits.labels), generator=torch.Generator().manual_seed(PAIRING))
        tens, units = order[: 2 * (len(order) // 2)].reshape(-1, 2).unbind(1)
        inputs = torch.cat([digits.inputs[tens], digits.inputs[units]], dim=3)
        return Images(inputs, 10 * digits.labels[tens] + digits.labels[units], self.classes)
