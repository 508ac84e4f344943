import io
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lab.data.parquet import png, write_images
from rankscope.lab.data.images import CIFAR10, MNIST, HubImages, decode, decoded

GREY = HubImages("some/grey", "plain", "train", "image", "label", 4, (1, 2, 3))
PIXELS = np.random.default_rng(0).integers(0, 256, (5, 2, 3), dtype=np.uint8)
SHARDS = [f"some/grey/plain/train-0000{index}-of-00002.parquet" for index in range(2)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    encoded = [png(pixels) for pixels in PIXELS]
    write_images(tmp_path / SHARDS[0], encoded[:3], [0, 1, 2])
    write_images(tmp_path / SHARDS[1], encoded[3:], [3, 0])
    return tmp_path


def test_pixels_and_labels_come_back(data: Path) -> None:
    for _ in range(2):  # decoded, then from the cache
        built = GREY.build(data)
        assert torch.equal(built.inputs, torch.from_numpy(PIXELS)[:, None])
        assert built.labels.tolist() == [0, 1, 2, 3, 0]
        assert built.classes == 4
    built.inputs[0] = 0  # a tensor of one's own, not the cache


def test_grey_and_colour_follow_the_declared_shape(data: Path) -> None:
    colour = replace(GREY, shape=(3, 2, 3)).build(data)
    assert torch.equal(colour.inputs, torch.from_numpy(PIXELS)[:, None].expand(-1, 3, -1, -1))
    red = np.zeros((2, 3, 3), np.uint8)
    red[..., 0] = 200
    assert decode(png(red), (3, 2, 3), "here")[:, 0, 0].tolist() == [200, 0, 0]
    assert decode(png(red), (1, 2, 3), "here").shape == (1, 2, 3)


@pytest.mark.parametrize("broken", [b"", b"no image", png(PIXELS[0])[:-30], None])
def test_image_that_does_not_decode_is_named(data: Path, broken: bytes | None) -> None:
    write_images(data / SHARDS[1], [png(PIXELS[3]), broken], [3, 0])
    with pytest.raises(ValueError, match=r"train-00001-of-00002.parquet, row 1: .*not decode; del"):
        GREY.build(data)


@pytest.mark.parametrize(
    ("mode", "format"), [("L", "JPEG"), ("CMYK", "JPEG"), ("RGB", "JPEG"), ("P", "PNG")]
)
def test_all_modes_become_three_colours(mode: str, format: str) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16), (102, 102, 102)).convert(mode).save(buffer, format=format)
    image = decoded(buffer.getvalue(), "here")
    assert image.mode == "RGB" and abs(np.asarray(image).astype(int) - 102).max() <= 2


def test_image_of_another_size_is_named(data: Path) -> None:
    write_images(data / SHARDS[0], [png(PIXELS[0].T.copy())], [0])
    with pytest.raises(ValueError, match=r"row 0: expected an image of 2 x 3 pixels, got 3 x 2"):
        GREY.build(data)


@pytest.mark.parametrize("label", [4, -1])
def test_label_out_of_range_is_named(data: Path, label: int) -> None:
    write_images(data / SHARDS[1], [png(pixels) for pixels in PIXELS[3:]], [3, label])
    message = (
        rf"train-00001-of-00002.parquet, row 1: label {label} is outside 0 to 3, one of 1 such"
    )
    with pytest.raises(ValueError, match=message):
        GREY.build(data)


def test_columns_of_another_kind_are_named(data: Path) -> None:
    with pytest.raises(ValueError, match=r"column 'label' holds no encoded files but int64"):
        replace(GREY, image_column="label").build(data)
    with pytest.raises(ValueError, match=r"labels must be whole numbers .* got struct"):
        replace(GREY, label_column="image").build(data)


def test_cache_knows_what_was_asked_for(data: Path) -> None:
    GREY.build(data)
    with pytest.raises(ValueError, match="label 3 is outside 0 to 2"):
        replace(GREY, classes=3).build(data)
    with pytest.raises(ValueError, match="expected an image of 3 x 2"):
        replace(GREY, shape=(1, 3, 2)).build(data)


def test_a_bar_on_a_terminal_changes_nothing(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)  # rich takes stderr for a terminal
    assert torch.equal(GREY.build(data).inputs[:, 0], torch.from_numpy(PIXELS))
    assert "decoding some/grey train-00001-of-00002.parquet" in capsys.readouterr().err


def test_declared_shape_is_checked() -> None:
    with pytest.raises(ValueError, match="1 or 3 channels"):
        replace(GREY, shape=(2, 4, 4))


@pytest.mark.skipif("RANKSCOPE_DATA" not in os.environ, reason="needs RANKSCOPE_DATA")
@pytest.mark.parametrize(("train", "mean"), [(CIFAR10, 0.4766), (MNIST, 0.1325)])
def test_real_images(train: HubImages, mean: float) -> None:
    """The means over all pixels are published: 0.4942, 0.4851, 0.4504 per channel of CIFAR-10."""
    built = replace(train, split="test").build()
    assert built.inputs.shape == (10_000, *train.shape)
    assert len(built.labels.bincount()) == 10 and built.labels.bincount().min() > 800
    histogram = torch.bincount(built.inputs.flatten()).double()
    measured = float(histogram @ torch.arange(256).double() / histogram.sum()) / 255
    assert measured == pytest.approx(mean, abs=1e-4)
