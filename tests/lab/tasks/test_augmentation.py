import numpy as np
import pytest
import torch

from rankscope.lab.tasks.augmentation import CropFlip

IMAGES = torch.randint(
    1, 256, (500, 3, 5, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
)


def views(image: torch.Tensor, padding: int) -> set[bytes]:
    """Every shift of an image and of its mirror image, written out."""
    views = set()
    _, height, width = image.shape
    for mirrored in (image.numpy(), image.numpy()[:, :, ::-1]):
        padded = np.pad(mirrored, ((0, 0), (padding, padding), (padding, padding)))
        for down in range(2 * padding + 1):
            for across in range(2 * padding + 1):
                views.add(padded[:, down : down + height, across : across + width].tobytes())
    return views


@pytest.mark.parametrize("padding", [0, 2])
def test_each_view_is_a_shift_or_a_mirrored_shift(padding: int) -> None:
    seen = CropFlip(padding)(IMAGES, torch.Generator().manual_seed(1))
    for image, view in zip(IMAGES, seen, strict=True):
        assert view.contiguous().numpy().tobytes() in views(image, padding)


def test_every_view_comes_up_about_equally_often() -> None:
    same = IMAGES[:1].expand(5000, -1, -1, -1)
    seen = CropFlip(padding=1)(same, torch.Generator().manual_seed(2))
    _, counts = np.unique(seen.reshape(5000, -1).numpy(), axis=0, return_counts=True)
    assert len(counts) == len(views(IMAGES[0], 1)) == 18
    assert counts.min() > 200 and counts.max() < 360  # 278 expected, 5 deviations of 16 each way


def test_the_generator_decides() -> None:
    first, again, other = (
        CropFlip()(IMAGES, torch.Generator().manual_seed(seed)) for seed in (4, 4, 5)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_padding_cannot_be_negative() -> None:
    with pytest.raises(ValueError, match="0 or more pixels, got -1"):
        CropFlip(padding=-1)
