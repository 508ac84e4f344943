"""Vision and diffusion models, and adapters, of other libraries, in tiny shapes."""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from zoo.case import Case
from zoo.language import from_config, tokens

VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3}
SWIN = {"img_size": 32, "window_size": 4, "embed_dim": 12, "depths": (2, 2), "num_heads": (2, 3)}
STAGES = {"embed_dims": (8, 16, 32, 64), "num_heads": (1, 2, 4, 8), "depths": (1, 1, 1, 1)}
DAVIT = {"embed_dims": (12, 24, 36, 48), "num_heads": (2, 2, 3, 4), "depths": (1, 1, 1, 1)}
SMALL_VIT = {
    "image_size": 32,
    "patch_size": 8,
    "num_classes": 4,
    "dim": 24,
    "depth": 2,
    "heads": 3,
    "mlp_dim": 16,
}


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def pictures(size: int) -> Callable[[], Tensor]:
    return lambda: normal(1, 3, size, size)


def timm(name: str, heads: int, size: int = 32, wrong: bool = False, **settings: Any) -> Case:
    def build() -> nn.Module:
        return importlib.import_module("timm").create_model(name, num_classes=4, **settings)

    return Case(build, pictures(size), heads, wrong)


def vit_pytorch(path: str, verified: int, /, *, wrong: bool = False, **settings: Any) -> Case:
    module, name = path.split(".")

    def build() -> nn.Module:
        model = getattr(importlib.import_module(f"vit_pytorch.{module}"), name)
        return model(**SMALL_VIT, **settings)

    return Case(build, pictures(32), verified, wrong)


def x_transformers(heads: int = 8, wrong: bool = False, **settings: Any) -> Case:
    def build() -> nn.Module:
        encoder = importlib.import_module("x_transformers").Encoder
        return encoder(dim=24, depth=2, heads=4, attn_dim_head=6, **settings)

    return Case(build, lambda: normal(1, 7, 24), heads, wrong)


def torchvision_vit() -> nn.Module:
    from torchvision.models import VisionTransformer

    return VisionTransformer(32, 8, 2, 3, 24, 16)


def torchvision_swin() -> nn.Module:
    from torchvision.models.swin_transformer import SwinTransformer

    return SwinTransformer([4, 4], 12, [2, 2], [2, 3], [4, 4])


def torchvision_swin_v2() -> nn.Module:
    from torchvision.models import swin_transformer as swin

    block, merging = swin.SwinTransformerBlockV2, swin.PatchMergingV2
    return swin.SwinTransformer(
        [4, 4], 12, [2, 2], [2, 3], [4, 4], block=block, downsample_layer=merging
    )


def torchvision_maxvit() -> nn.Module:
    from torchvision.models import MaxVit

    return MaxVit((64, 64), 8, 2, [16, 16], [1, 1], head_dim=8, stochastic_depth_prob=0.0)


def diffusers(name: str, **settings: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(importlib.import_module("diffusers"), name)(**settings)


def lora(kind: str, targets: list[str]) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        peft = importlib.import_module("peft")
        config = peft.LoraConfig(r=4, target_modules=targets, fan_in_fan_out=kind == "gpt2")
        return peft.get_peft_model(from_config(kind), config)

    return build


TIMM = {
    "vit": timm("vit_tiny_patch16_224", 6, **VIT),
    "deit3": timm("deit3_small_patch16_224", 6, **VIT),
    "vit_relpos": timm("vit_relpos_small_patch16_224", 6, **VIT),
    "vit_srelpos": timm("vit_srelpos_small_patch16_224", 6, **VIT),
    "beit": timm("beit_base_patch16_224", 6, **VIT),
    "eva02": timm("eva02_tiny_patch14_224", 6, **VIT),
    "flexivit": timm("flexivit_small", 6, **VIT),
    "siglip": timm("vit_base_patch16_siglip_224", 9, **VIT),
    "vit_rope": timm("vit_base_patch16_rope_reg1_gap_256", 6, **VIT),
    "dinov3": timm("vit_small_patch16_dinov3", 6, **VIT),
    "samvit": timm("samvit_base_patch16_224", 6, 64, **{**VIT, "img_size": 64, "patch_size": 16}),
    "swin": timm("swin_tiny_patch4_window7_224", 10, **SWIN),
    "swinv2": timm("swinv2_tiny_window8_256", 10, **SWIN),
    "swinv2_cr": timm("swinv2_cr_tiny_224", 10, **SWIN),
    "pvt_v2": timm("pvt_v2_b0", 15, 64, **STAGES),
    "twins_svt": timm("twins_svt_small", 15, 64, img_size=64, **STAGES),
    "twins_pcpvt": timm("twins_pcpvt_small", 15, 64, img_size=64, **STAGES),
    "cait, talking heads": timm("cait_xxs24_224", 3, wrong=True, depth_token_only=1, **VIT),
    "xcit, channels": timm("xcit_nano_12_p16_224", 6, wrong=True, **VIT),
    "davit, channels": timm("davit_tiny", 11, 64, wrong=True, **DAVIT),
    "edgenext, channels": timm("edgenext_xx_small", 0, 64, wrong=True),
    "lambda_resnet": timm("lambda_resnet26t", 0, 128, wrong=True),
}
VIT_PYTORCH = {
    "ViT": vit_pytorch("vit.ViT", 6),
    "SimpleViT": vit_pytorch("simple_vit.SimpleViT", 6),
    "small dataset": vit_pytorch("vit_for_small_dataset.ViT", 6),
    "memory": vit_pytorch("learnable_memory_vit.ViT", 6),
    "qk norm": vit_pytorch("simple_vit_with_qk_norm.SimpleViT", 6),
    "registers": vit_pytorch("simple_vit_with_register_tokens.SimpleViT", 6),
    "parallel": vit_pytorch("parallel_vit.ViT", 12),
    "decorrelation": vit_pytorch("vit_with_decorr.ViT", 6),
    "value residual": vit_pytorch("simple_vit_with_value_residual.SimpleViT", 6),
    "DeepViT, mixed heads": vit_pytorch("deepvit.DeepViT", 0, wrong=True),
    "CaiT, mixed heads": vit_pytorch("cait.CaiT", 0, wrong=True, cls_depth=1),
    "XCiT, channels": vit_pytorch(
        "xcit.XCiT", 3, wrong=True, cls_depth=1, local_patch_kernel_size=3
    ),
}
X_TRANSFORMERS = {
    "plain": x_transformers(),
    "one key head": x_transformers(attn_one_kv_head=True),
    "two key heads": x_transformers(attn_kv_heads=2),
    "rotary": x_transformers(rotary_pos_emb=True),
    "qk norm": x_transformers(attn_qk_norm=True),
    "alibi": x_transformers(alibi_pos_bias=True),
    "memory": x_transformers(attn_num_mem_kv=3),
    "gated values": x_transformers(attn_gate_values=True),
    "relative positions": x_transformers(rel_pos_bias=True),
    "flash": x_transformers(attn_flash=True),
    "value width": x_transformers(attn_value_dim_head=5),
    "talking heads": x_transformers(
        0, wrong=True, attn_pre_talking_heads=True, attn_post_talking_heads=True
    ),
}
TORCHVISION = {
    "vit": Case(torchvision_vit, pictures(32), 6),
    "swin": Case(torchvision_swin, pictures(32), 10),
    "swin_v2": Case(torchvision_swin_v2, pictures(32), 10),
    "maxvit": Case(torchvision_maxvit, pictures(64), 8),
}
DIFFUSERS = {
    "DiT": Case(
        diffusers(
            "DiTTransformer2DModel",
            num_attention_heads=3,
            attention_head_dim=8,
            in_channels=4,
            num_layers=2,
            sample_size=8,
            norm_num_groups=2,
        ),
        lambda: {
            "hidden_states": normal(1, 4, 8, 8),
            "timestep": torch.tensor([3]),
            "class_labels": torch.tensor([1]),
        },
        6,
    ),
    "AutoencoderKL": Case(
        diffusers(
            "AutoencoderKL",
            block_out_channels=(8, 8),
            norm_num_groups=4,
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
        ),
        pictures(16),
        2,
    ),
}
PEFT = {
    "gpt2": Case(lora("gpt2", ["c_attn", "c_proj"]), lambda: {"input_ids": tokens()}, 4),
    "llama": Case(lora("llama", ["q_proj", "o_proj"]), lambda: {"input_ids": tokens()}, 4),
}
EVERYTHING = {
    f"{library} {name}": case
    for library, cases in (
        ("timm", TIMM),
        ("vit-pytorch", VIT_PYTORCH),
        ("x-transformers", X_TRANSFORMERS),
        ("torchvision", TORCHVISION),
        ("diffusers", DIFFUSERS),
        ("peft", PEFT),
    )
    for name, case in cases.items()
}
