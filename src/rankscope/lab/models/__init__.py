"""Networks of the experiments: each a frozen config with `build()` beside its module."""

from rankscope.lab.models.transformer import Transformer, TransformerConfig

__all__ = ["Transformer", "TransformerConfig"]
