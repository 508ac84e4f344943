"""Classification of images, with true or random labels (yunis2024, app. B and C.1)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from rankscope.lab.data.images import ImageData, Images
from rankscope.lab.data.splits import split
from rankscope.lab.tasks.augmentation import CropFlip
from rankscope.lab.tasks.batches import batches
from rankscope.lab.tasks.constant import frequency_entropy
from rankscope.lab.training.task import Batch, Machine, Problem, Shown

LABEL_SEED = 1_000_003  # added to the seed, so that random labels are independent of the split


@runtime_checkable
class Classifier(Protocol):
    """The declaration of a network from images to logits, such as `VggConfig`.

    The network that it builds has a method `shown()`, see `Shown`.
    """

    @property
    def classes(self) -> int: ...

    def build(self, seed: int) -> nn.Module: ...


@dataclass(frozen=True)
class Classification:
    """Cross-entropy of the classes of `images`.

    Pixels are shifted and scaled to mean 0 and standard deviation 1 over the training part, per
    channel. The papers do not state their normalisation.
    random_labels: permute all labels once, before the split, by the seed.
    test: images for validation; by default a random tenth of `images`, drawn by the seed.
    augmentation: applied to training batches, but not to losses at snapshots.
    """

    images: ImageData
    model: Classifier
    random_labels: bool = False
    test: ImageData | None = None
    augmentation: CropFlip | None = None

    def build(self, machine: Machine, *, seed: int) -> "ClassificationProblem":
        images = self.images.build(machine.data)
        if self.random_labels:
            images = permuted(images, seed=seed)
        if self.test is None:
            train, validation = (images[part] for part in split(len(images.labels), seed=seed))
        else:
            train, validation = images, self.test.build(machine.data)
        require_classes(self.model, train.classes, validation.classes)
        return ClassificationProblem(
            train,
            validation,
            self.model.build(seed=seed),
            device=torch.device(machine.device),
            augmentation=self.augmentation,
        )


def permuted(images: Images, *, seed: int) -> Images:
    """Return the images with their labels in random order."""
    generator = torch.Generator().manual_seed(seed + LABEL_SEED)
    order = torch.randperm(len(images.labels), generator=generator)
    return Images(images.inputs, images.labels[order], images.classes)


def require_classes(model: Classifier, images: int, test: int) -> None:
    """Raise ValueError unless the numbers of classes agree.

    On a GPU, a label without a logit would kill the process.
    """
    if not model.classes == images == test:
        raise ValueError(
            f"images have {images} classes, those for validation {test}, the model "
            f"{model.classes}; all three must be the same"
        )


class ImageProblem(Problem):
    """Classification of images that are stored as bytes and normalised batch by batch."""

    unit = "images"

    def __init__(
        self, model: nn.Module, *, mean: Float[Tensor, "c 1 1"], deviation: Float[Tensor, "c 1 1"]
    ) -> None:
        """`mean` and `deviation` are those of pixels, on the device."""
        self.model = model.to(mean.device)
        self.shown = Shown(*model.shown())  # type: ignore[operator]
        self._mean, self._deviation = mean, deviation

    def inputs(self, *batch: Tensor) -> tuple[Any, ...]:
        return ((batch[0].float() - self._mean) / self._deviation,)

    def loss(self, model: nn.Module, *batch: Tensor) -> Float[Tensor, ""]:
        # Under autocast cross_entropy would leave log-probabilities in bfloat16.
        return F.cross_entropy(model(*self.inputs(*batch)).float(), batch[1])


class ClassificationProblem(ImageProblem):
    """Classification with all images on the device."""

    def __init__(
        self,
        train: Images,
        validation: Images,
        model: nn.Module,
        *,
        device: torch.device,
        augmentation: CropFlip | None = None,
    ) -> None:
        mean, deviation = channel_moments(train.inputs)
        super().__init__(model, mean=mean.to(device), deviation=deviation.to(device))
        self.samples = len(train.labels)
        self.constant_loss = frequency_entropy(train.labels)
        self._augmentation = augmentation
        self._train, self._validation = (
            (part.inputs.to(device), part.labels.to(device)) for part in (train, validation)
        )

    def draw(self, indices: Int[Tensor, " batch"], generator: torch.Generator) -> Batch:
        chosen = indices.to(self._train[0].device, non_blocking=True)
        images, labels = (tensor[chosen] for tensor in self._train)
        if self._augmentation is not None:
            images = self._augmentation(images, generator)
        return images, labels

    def fixed(self, samples: int) -> Iterable[Batch]:
        return batches(tuple(tensor[:samples] for tensor in self._train))

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        logits = torch.cat(
            [model(*self.inputs(*batch)).float() for batch in batches(self._validation)]
        )
        labels = self._validation[1]
        return {
            "validation_loss": float(F.cross_entropy(logits, labels)),
            "validation_accuracy": float((logits.argmax(1) == labels).double().mean()),
        }


def channel_moments(
    inputs: UInt8[Tensor, "n c h w"],
) -> tuple[Float[Tensor, "c 1 1"], Float[Tensor, "c 1 1"]]:
    """Mean and standard deviation of each channel; the deviation of a constant channel is 1."""
    # Counting the 256 values is exact and needs no images as floats.
    counts = torch.stack(
        [channel.flatten().bincount(minlength=256) for channel in inputs.unbind(1)]
    )
    share = counts.double() / counts.sum(1, keepdim=True)  # (c, 256)
    values = torch.arange(256, dtype=torch.float64)
    mean = share @ values
    deviation = (share * (values - mean[:, None]).square()).sum(1).sqrt()
    deviation = torch.where(deviation > 0, deviation, 1.0)
    return mean.float()[:, None, None], deviation.float()[:, None, None]
