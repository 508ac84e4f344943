from collections import Counter

from rankscope.lab.data.digit_pairs import DigitPairs
from rankscope.lab.data.digits import Digits


def test_pairs_are_two_digits_and_the_number_they_make() -> None:
    single, pairs = Digits().build(), DigitPairs().build()
    assert pairs.inputs.shape == (898, *DigitPairs().shape) == (898, 1, 8, 16)
    labels = Counter(
        (image.numpy().tobytes(), int(label))
        for image, label in zip(single.inputs, single.labels, strict=True)
    )
    halves = Counter(
        (half.contiguous().numpy().tobytes(), digit)
        for image, label in zip(pairs.inputs, pairs.labels.tolist(), strict=True)
        for half, digit in zip(image.split(8, dim=2), divmod(label, 10), strict=True)
    )
    assert halves <= labels and sum(halves.values()) == 1796  # no digit twice, one left over


def test_all_hundred_classes_are_there() -> None:
    pairs = DigitPairs().build()
    counts = pairs.labels.bincount(minlength=100)
    assert len(counts) == pairs.classes == 100 and counts.min() > 0


def test_pairs_are_enlarged_like_single_digits() -> None:
    pairs = DigitPairs(Digits(size=16, enlarge="nearest"))
    small = DigitPairs().build().inputs
    assert (pairs.build().inputs == small.repeat_interleave(2, 2).repeat_interleave(2, 3)).all()
