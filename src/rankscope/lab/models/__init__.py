"""Networks: each module has a frozen config with `build()` beside its network."""

from rankscope.lab.models.lstm import BiLstm, BiLstmConfig
from rankscope.lab.models.mlp import Mlp, MlpConfig
from rankscope.lab.models.modular import ModularConfig, ModularTransformer
from rankscope.lab.models.transformer import Transformer, TransformerConfig
from rankscope.lab.models.unet import Unet, UnetConfig
from rankscope.lab.models.vgg import Vgg, VggConfig
from rankscope.lab.models.vit import Vit, VitConfig

__all__ = [
    "BiLstm",
    "BiLstmConfig",
    "Mlp",
    "MlpConfig",
    "ModularConfig",
    "ModularTransformer",
    "Transformer",
    "TransformerConfig",
    "Unet",
    "UnetConfig",
    "Vgg",
    "VggConfig",
    "Vit",
    "VitConfig",
]
