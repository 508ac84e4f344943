import math

import numpy as np
import pytest
import torch
from PIL import Image

from rankscope.lab.data import crops as module
from rankscope.lab.data.crops import Crops, centre_box, random_box, resized


def drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gradient(width: int, height: int) -> Image.Image:
    """Red grows to the right, green downwards."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0], pixels[..., 1] = np.arange(width), np.arange(height)[:, None]
    return Image.fromarray(pixels)


@pytest.mark.parametrize("shape", [(100, 80), (37, 200)])
def test_random_boxes_are_inside_and_of_the_declared_area_and_ratio(shape: tuple[int, int]) -> None:
    boxes = [random_box(shape, drawn(seed)) for seed in range(300)]
    areas = []
    for left, upper, right, lower in boxes:
        width, height = right - left, lower - upper
        assert 0 <= left < right <= shape[0] and 0 <= upper < lower <= shape[1]
        assert (width - 0.5) / (height + 0.5) <= 4 / 3 and (width + 0.5) / (height - 0.5) >= 3 / 4
        areas.append((width + 0.5) * (height + 0.5) / (shape[0] * shape[1]))
    assert min(areas) > 0.08 and len(set(boxes)) > 150


def test_areas_and_places_are_uniform(monkeypatch: pytest.MonkeyPatch) -> None:
    """Squares in a square all fit: nothing is drawn twice. Bounds are four deviations."""
    monkeypatch.setattr(module, "RATIO", (1.0, 1.0))
    boxes = np.array([random_box((1000, 1000), drawn(seed)) for seed in range(400)])
    side = boxes[:, 2] - boxes[:, 0]
    assert abs(np.mean((side / 1000) ** 2) - 0.54) < 4 * 0.92 / math.sqrt(12 * 400)
    for start in boxes[:, :2].T:
        assert abs(np.mean(start / (1000 - side + 1)) - 0.5) < 4 / math.sqrt(12 * 400)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [((100, 10), (43, 0, 56, 10)), ((9, 100), (0, 44, 9, 56)), ((1, 1), (0, 0, 1, 1))],
)
def test_where_no_crop_fits_it_is_the_largest_at_the_centre(
    shape: tuple[int, int],
    expected: tuple[int, int, int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "AREA", (1.0, 1.0))
    assert random_box(shape, drawn(0)) == expected


def test_crops_follow_the_generator() -> None:
    image = gradient(120, 90)
    first, again, other = (Crops(size=24).random(image, drawn(seed)) for seed in (5, 5, 6))
    assert first.shape == (24, 24, 3) and first.dtype == np.uint8
    assert np.array_equal(first, again) and not np.array_equal(first, other)


def test_half_of_them_are_mirrored() -> None:
    crops = [Crops(size=8).random(gradient(120, 90), drawn(seed)) for seed in range(400)]
    mirrored = sum(bool(crop[0, 0, 0] > crop[0, -1, 0]) for crop in crops)
    assert abs(mirrored - 200) < 4 * math.sqrt(100)  # four deviations of a fair coin
    assert all(crop[0, 0, 1] < crop[-1, 0, 1] for crop in crops)  # never upside down


def test_centre_is_what_resizing_and_cutting_gives() -> None:
    image = gradient(200, 150).resize((600, 512), Image.Resampling.BICUBIC)
    side = Image.Resampling.BILINEAR
    scaled = image.resize((300, 256), side).crop((38, 16, 262, 240))
    difference = Crops().middle(image).astype(int) - np.asarray(scaled).astype(int)
    assert abs(difference).max() <= 1
    assert centre_box((600, 512), 0.5) == (172, 128, 428, 384)


def test_shrinking_averages() -> None:
    """A fine checkerboard becomes grey; taking every eighth pixel it would stay black or white."""
    board = np.repeat(200 * (np.indices((64, 64)).sum(0) % 2).astype(np.uint8)[..., None], 3, 2)
    assert abs(resized(Image.fromarray(board), (0, 0, 64, 64), 8).astype(int) - 100).max() <= 5


def test_declaration_is_checked() -> None:
    with pytest.raises(ValueError, match="at least one pixel, got Crops"):
        Crops(size=0)
