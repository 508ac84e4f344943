from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from lab.training.test_training_run import executed
from rankscope.lab.data.digits import Digits
from rankscope.lab.models.vit import Vit, VitConfig
from rankscope.lab.tasks.classification import Classification
from rankscope.lab.training.optimizers import AdamW
from rankscope.lab.training.step import mixed_precision
from rankscope.lab.training.task import Machine
from rankscope.lab.training.training_run import TrainingRun
from rankscope.matrices import named_tensors, views
from rankscope.tracker import Every

SMALL = VitConfig(
    image=(4, 6),
    channels=2,
    patch=2,
    depth=2,
    heads=3,
    width=10,
    hidden=7,
    head_width=4,
    classes=5,
)


def images(count: int = 3, seed: int = 0) -> Tensor:
    return torch.randn(count, 2, 4, 6, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def disturbed(config: VitConfig) -> Vit:
    """A model in float64 with all parameters away from their initial values."""
    model, generator = config.build().double(), torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter += 0.3 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
    return model


def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight + bias


def dense_logits(w: dict[str, Tensor], image: Tensor) -> Tensor:
    """The network of one image written out patch by patch and head by head, all tokens throughout.

    Attention in the paper's form: softmax(X K^T Q X^T), by the products of each head.
    """
    corners = [(row, column) for row in (0, 2) for column in (0, 2, 4)]
    patches = [image[:, r : r + 2, c : c + 2].reshape(-1) for r, c in corners]
    mapped = [w["patches.weight"] @ patch + w["patches.bias"] for patch in patches]
    x = torch.stack([w["class_token"], *mapped]) + w["position"]
    for i in range(2):
        b = {name.removeprefix(f"blocks.{i}."): tensor for name, tensor in w.items()}
        y = norm(x, b["norm_1.weight"], b["norm_1.bias"])
        q, k, v, o = (b[f"attention.{role}.weight"] for role in "qkvo")
        mixed = b["attention.o.bias"].expand_as(x)
        for rows in torch.arange(12).reshape(3, 4):
            scores = y @ q[rows].T @ k[rows] @ y.T / 2  # the square root of 4 units
            weights = scores.exp() / scores.exp().sum(1, keepdim=True)
            mixed = mixed + weights @ y @ v[rows].T @ o[:, rows].T
        x = x + mixed
        y = norm(x, b["norm_2.weight"], b["norm_2.bias"]) @ b["fc1.weight"].T + b["fc1.bias"]
        gelu = y * (1 + torch.erf(y / 2**0.5)) / 2
        x = x + gelu @ b["fc2.weight"].T + b["fc2.bias"]
    return norm(x[0], w["norm.weight"], w["norm.bias"]) @ w["head.weight"].T + w["head.bias"]


@torch.no_grad()
def test_forward_pass_is_the_network_written_out() -> None:
    model = disturbed(SMALL)
    logits, weights = model(images().double()), dict(model.named_parameters())
    want = torch.stack([dense_logits(weights, image) for image in images().double()])
    torch.testing.assert_close(logits, want, rtol=1e-10, atol=1e-10)


@torch.no_grad()
def test_a_bias_of_keys_alone_changes_nothing() -> None:
    """It adds the same number to all scores of a query; one of queries or values does matter."""
    for role, matters in (("k", False), ("q", True), ("v", True)):
        model = disturbed(replace(SMALL, qkv_bias=True))
        before = model(images().double())
        model.get_submodule(f"blocks.0.attention.{role}").bias += 1.0
        assert torch.allclose(before, model(images().double())) is not matters


@torch.no_grad()
def test_the_order_of_patches_is_known_by_position_alone() -> None:
    model, whole = disturbed(SMALL), images().double()
    moved = whole.roll(-2, dims=-1)  # by one column of patches
    assert not torch.allclose(model(whole), model(moved))
    model.position[1:] = 0
    torch.testing.assert_close(model(whole), model(moved))


def test_init_scale_multiplies_linear_layers_but_the_patch_map() -> None:
    config = replace(SMALL, qkv_bias=True)
    plain = dict(config.build(3).named_parameters())
    scaled = dict(replace(config, init_scale=0.1).build(3).named_parameters())
    for name, tensor in plain.items():
        unscaled = "norm" in name or name.split(".")[0] in ("patches", "position", "class_token")
        assert torch.equal(scaled[name], tensor if unscaled else 0.1 * tensor), name


def test_weights_are_torchs_default_and_tokens_normal() -> None:
    model = VitConfig(patch=2, depth=1, heads=2, width=64, head_width=8, token_std=0.5).build(0)
    for layer, bound in ((model.patches, 12**-0.5), (model.head, 1 / 8)):
        assert 0.9 * bound < layer.weight.abs().max().item() <= bound
    assert (model.norm.weight == 1).all() and (model.norm.bias == 0).all()
    # 257 x 64 draws: mean and deviation are off by less than 5 of their standard errors.
    error = 0.5 / model.position.numel() ** 0.5
    assert abs(model.position.mean().item()) < 5 * error
    assert abs(model.position.std().item() - 0.5) < 5 * error


def test_every_head_has_its_two_products_of_the_heads_width() -> None:
    model = disturbed(SMALL)
    products = views(model).manifest.products
    assert [head_product.name for head_product in products] == [
        f"blocks.{i}.attention.h{h}.{kind}"
        for i in range(2)
        for h in range(3)
        for kind in ("kq", "vo")
    ]
    tensors = named_tensors(model)
    for head_product in products:
        block, _, rest = head_product.name.partition(".h")
        rows = slice(4 * int(rest[0]), 4 * int(rest[0]) + 4)
        q, k, v, o = (tensors[f"{block}.{role}.weight"] for role in "qkvo")
        want = k[rows].T @ q[rows] if head_product.kind == "kq" else o[:, rows] @ v[rows]
        product = head_product.product(tensors)
        assert product.left.shape == product.right.shape == (10, 4)
        torch.testing.assert_close(product.left @ product.right.mT, want)


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@torch.backends.mkldnn.flags(enabled=False)  # which dies of bfloat16 on some processors
def test_products_in_bfloat16_give_nearly_the_same_logits_and_gradients() -> None:
    model = SMALL.build()
    sums = {}
    for precision in ("float32", "bfloat16"):
        model.zero_grad()
        with mixed_precision(torch.device("cpu"), precision):
            logits = model(images(64))
            loss = logits.float().square().mean()
        loss.backward()
        gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        assert gradients.dtype == torch.float32
        sums[precision] = logits.detach().float(), gradients
    for plain, rounded in zip(sums["float32"], sums["bfloat16"], strict=True):
        error = (plain - rounded).norm() / plain.norm()
        assert 0 < error < 0.02  # a product in bfloat16 is off by 2^-9 of itself


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated")  # torch.compile's
def test_a_step_replayed_on_a_gpu_is_that_of_the_cpu(tmp_path: Path) -> None:
    model = replace(SMALL, image=8, channels=1, classes=10)
    run = TrainingRun(
        Classification(Digits(), model), AdamW(1e-3), steps=40, batch=64, snapshots=Every(20)
    )
    losses = {}
    for device, precision in (("cpu", "float32"), ("cuda", "float32"), ("cuda", "bfloat16")):
        placed = replace(run, precision=precision, machine=Machine(device=device))
        with torch.compiler.set_stance("force_eager"):  # shapes are checked, see test_step.py
            ds = executed(placed, tmp_path / f"{device}-{precision}")
        losses[device, precision] = ds["training_loss"].to_numpy()
    np.testing.assert_allclose(losses["cuda", "float32"], losses["cpu", "float32"], rtol=1e-2)
    np.testing.assert_allclose(losses["cuda", "bfloat16"], losses["cpu", "float32"], rtol=3e-2)


def test_images_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(2, 4, 6\), got \(2, 6, 4\); give VitConfig the shape"):
        SMALL.build()(images().transpose(2, 3))
    with pytest.raises(ValueError, match=r"\(2, 4, 6\), got \(1, 4, 6\)"):
        SMALL.build()(images()[:, :1])
