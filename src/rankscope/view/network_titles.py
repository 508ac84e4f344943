"""Networks of the laboratory as they are written for people; its own names would bring torch."""

NETWORKS = {
    "vgg": "VGG",
    "unet": "UNet",
    "lstm": "LSTM",
    "lm": "Transformer",
    "grok": "grokking",
    "mlp": "MLP",
    "teacher-1": "head, teacher 1",
    "teacher-0.5": "head, teacher 1/2",
    "alike": "Transformer, alike heads",
    "bases": "Transformer, own bases",
    "aligned": "aligned teacher",
    "gaussian": "Gaussian teacher",
    "aligned-1e-4": "aligned 1e-4",
    "gaussian-1e-8": "Gaussian 1e-8",
    "gaussian-1e-32": "Gaussian 1e-32",
    "boix2023/vit-cifar10/vit": "ViT, CIFAR-10",
    "boix2023/vit-cifar100/vit": "ViT, CIFAR-100",
    "boix2023/vit-imagenet/vit": "ViT, ImageNet",
    "findings/clock/vit": "ViT, CIFAR-10",
    "findings/needed-rank/vit": "ViT, CIFAR-10",
    "findings/grokking-rank/grok": "modular addition",
}


def network_title(experiment: str, network: str) -> str:
    """Return how a network is written; its name if it has no title."""
    return NETWORKS.get(f"{experiment}/{network}") or NETWORKS.get(network, network)
