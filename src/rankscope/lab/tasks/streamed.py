"""Classification of images too many for memory, decoded during training."""

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
from rankscope.lab.training.task import Batch, Machine

# Red, green and blue over ImageNet's training images, as shares of 255.
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
# Largest numbers of files and row groups for the fixed samples. Step 0 may wait for downloads.
FIXED_FILES = 4
FIXED_BLOCKS = 64


@dataclass(frozen=True)
class StreamedClassification:
    """Cross-entropy of the classes of `images`; validation on the images of `test`.

    Training uses random crops and mirror images, measurements use centre crops. Pixels are always
    shifted and scaled by ImageNet's mean and deviation.
    window: number of row groups whose images are shuffled together. Each process holds twice as
        many in memory, still encoded. A row group of ImageNet has 100 images, so the default
        shuffles 12,800 at a time and needs 3 GB for each process.
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

    def build(self, machine: Machine, *, seed: int) -> "StreamedProblem":
        return StreamedProblem(
            self,
            self.images.open(machine.data, keep=2 * self.window),
            self.test.open(machine.data),
            self.model.build(seed=seed),
            device=torch.device(machine.device),
        )


class StreamedProblem(ImageProblem):
    """Classification with only a few row groups and batches in memory.

    The training loss at snapshots uses images of a few files, so training can start before all
    shards are downloaded.
    The constant loss assumes equally frequent classes, since counting them would take every shard.
    ImageNet's classes are nearly equally frequent.
    """

    noise_per_sample = True
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
            255 * torch.tensor(colours, device=device)[:, None, None]
            for colours in (MEAN, DEVIATION)
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
        """Decode a batch on the CPU, with random crops.

        The crop of an image follows from the generator and the image. It does not depend on the
        rest of the batch, so several processes see the crops that one would see.
        """
        seed = int(torch.randint(2**31, (), generator=generator))

        def look(image: Image.Image, index: int) -> Any:
            return self._crops.random(image, torch.Generator().manual_seed(seed + index))

        return self._train.images(indices, look, size=self._crops.size)

    def fixed(self, samples: int) -> Iterable[Batch]:
        spread = self._train.spread(samples, files=FIXED_FILES, blocks=FIXED_BLOCKS)
        return self._centre_crops(self._train, spread)

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        loss = torch.zeros((), dtype=torch.float64, device=self._device)
        right = torch.zeros((), dtype=torch.int64, device=self._device)
        for batch in self._centre_crops(self._test, torch.arange(len(self._test))):
            logits = model(*self.inputs(*batch)).float()
            loss += F.cross_entropy(logits, batch[1], reduction="sum")
            right += (logits.argmax(1) == batch[1]).sum()
        return {
            "validation_loss": float(loss) / len(self._test),
            "validation_accuracy": float(right) / len(self._test),
        }

    def _centre_crops(self, images: ImageShards, indices: Int[Tensor, " n"]) -> Iterable[Batch]:
        """Yield centre crops on the device, decoding the next batch while one is used."""
        parts = indices.tensor_split(-(-len(indices) // EVALUATION_BATCH))

        def draw(part: int) -> Batch:
            return images.images(
                parts[part], lambda image, _: self._crops.middle(image), size=self._crops.size
            )

        with Prefetched(draw, range(len(parts)), ahead=1, device=self._device) as batches:
            yield from batches
