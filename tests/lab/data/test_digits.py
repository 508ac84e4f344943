import pytest
import torch

from rankscope.lab.data.digits import Digits


def test_all_digits_scaled_to_bytes() -> None:
    images = Digits().build()
    assert images.inputs.shape == (1797, 1, 8, 8) and images.labels.shape == (1797,)
    # Grey values 0 to 16 become the nearest of 17 equal steps.
    assert images.inputs.unique().tolist() == [round(value * 255 / 16) for value in range(17)]
    counts = images.labels.bincount()
    assert len(counts) == images.classes == 10 and counts.min() > 170  # all digits, about alike


def test_enlarged_digits_keep_their_pixels() -> None:
    small, large = Digits().build(), Digits(size=16, enlarge="nearest").build()
    assert large.inputs.shape == (1797, *Digits(size=16).shape)
    assert torch.equal(large.inputs, small.inputs.repeat_interleave(2, 2).repeat_interleave(2, 3))
    smooth = Digits(size=16).build().inputs.double()
    # Between two pixels, a quarter of the way: 3/4 of one and 1/4 of the other; corners stay.
    assert torch.equal(smooth[:, :, 0, 0], small.inputs[:, :, 0, 0].double())
    expected = 0.75 * small.inputs[:, :, 0, 3].double() + 0.25 * small.inputs[:, :, 0, 4].double()
    assert (smooth[:, :, 0, 7] - expected).abs().max() <= 1  # rounded twice


def test_digits_cannot_shrink() -> None:
    with pytest.raises(ValueError, match="can only be enlarged"):
        Digits(size=7)
