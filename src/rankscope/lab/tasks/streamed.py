"""Images to classes where the images are too many for memory: decoded while training goes on."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int
from PIL import Image
from torch import Tensor, nn

from rankscope.lab.data.crops import Crops
from rankscope.lab.data.patterns import Patterns
from rankscope.lab.data.shards import ImageShards, ShardedImages
from rankscope.lab.tasks.batches import EVALUATION_BATCH
from rankscope.lab.tasks.classification import Classifier, ImageProblem, require_classes
from rankscope.lab.training.order import BlockOrder
from rankscope.lab.training.prefetch import Prefetched
from rankscope.lab.training.task import Batch, Place

# Of ImageNet's training images, in parts of 255: red, green, blue.
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
# What the fixed samples are from, at most. Each file may be a download that step 0 waits for.
FIXED_FILES = 4
FIXED_BLOCKS = 64  # row groups


@dataclass(frozen=True)
class StreamedClassification:
    """Cross-entropy of the classes of `images`; validation on the images of `test`.

    Random crops and mirror images to learn from, centre crops for all that is measured. Pixels are
    shifted and scaled by ImageNet's mean and deviation, whatever the images.
    window: row groups whose images are shuffled together; each process keeps twice as many in
        memory, still encoded. At ImageNet's 100 images in each, the default shuffles 12,800 at a
        time, in 3 GB for each process.
    """

    images: ShardedImages | Patterns
    test: ShardedImages | Patterns
    model: Classifier
    crops: Crops = Crops()  # noqa: RUF009
    window: int = 128

    def __post_init__(self) -> None:
        require_classes(self.model, self.images.classes, self.test.classes)
        if self.window < 1:
            raise ValueError(f"a window has at least one row group, got {self.window}")

    def build(self, place: Place, *, seed: int) -> "StreamedProblem":
        return StreamedProblem(
            self,
            self.images.open(place.data, keep=2 * self.window),
            self.test.open(place.data),
            self.model.build(seed=seed),
            device=torch.device(place.device),
        )


class StreamedProblem(ImageProblem):
    """Only row groups that are in use are in memory, and a few batches.

    The training loss at snapshots is that of images of a few files, so that a training that fetches
    its shards can begin before it has them all.
    The constant loss is that of classes that come equally often, since counting them would take
    every shard; ImageNet's nearly do.
    """

    ahead = 3  # batches

    def __init__(
        self,
        task: StreamedClassification,
        train: ImageShards,
        test: ImageShards,
        model: nn.Module,
        *,
        device: torch.device,
    ) -> None:
        mean, deviation = (
            255 * torch.tensor(each, device=device)[:, None, None] for each in (MEAN, DEVIATION)
        )
        super().__init__(model, mean=mean, deviation=deviation)
        self.samples = len(train)
        self.constant_loss = math.log(task.images.classes)
        self._train, self._test = train, test
        self._crops, self._window = task.crops, task.window
        self._device = device

    def order(self, batch: int, *, seed: int) -> BlockOrder:
        return BlockOrder(self._train.blocks, batch, seed=seed, window=self._window)

    def draw(self, indices: Int[Tensor, " batch"], generator: torch.Generator) -> Batch:
        """On the CPU: the loop takes it to the device.

        How an image is cropped follows from the generator and the image, not from which others
        are in the batch.
        """
        seed = int(torch.randint(2**31, (), generator=generator))

        def look(image: Image.Image, index: int) -> Any:
            return self._crops.random(image, torch.Generator().manual_seed(seed + index))

        return self._train.images(indices, look, size=self._crops.size)

    def fixed(self, samples: int) -> Iterable[Batch]:
        spread = self._train.spread(samples, files=FIXED_FILES, blocks=FIXED_BLOCKS)
        return self._seen(self._train, spread)

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        loss = torch.zeros((), dtype=torch.float64, device=self._device)
        right = torch.zeros((), dtype=torch.int64, device=self._device)
        for batch in self._seen(self._test, torch.arange(len(self._test))):
            logits = model(*self.inputs(*batch)).float()
            loss += F.cross_entropy(logits, batch[1], reduction="sum")
            right += (logits.argmax(1) == batch[1]).sum()
        return {
            "validation_loss": float(loss) / len(self._test),
            "validation_accuracy": float(right) / len(self._test),
        }

    def _seen(self, images: ImageShards, indices: Int[Tensor, " n"]) -> Iterable[Batch]:
        """Centre crops on the device, the next batch decoded while one is used."""
        parts = indices.tensor_split(-(-len(indices) // EVALUATION_BATCH))

        def draw(part: int) -> Batch:
            return images.images(
                parts[part], lambda image, _: self._crops.middle(image), size=self._crops.size
            )

        with Prefetched(draw, range(len(parts)), ahead=1, device=self._device) as batches:
            yield from batches
