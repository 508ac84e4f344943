"""Hand-written attention: layouts that a rule reads rightly, and those it reads wrongly."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

import rankscope as rs
from rankscope.matrices import Attention, fused_attention, separate_attention

WIDTH, HEADS, DIM = 12, 3, 4


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return softmax attention of (batch, head, token, unit), with heads joined."""
    logits = q @ k.mT * q.shape[-1] ** -0.5
    return (logits.softmax(-1) @ v).transpose(1, 2).flatten(2)


def by_head(x: Tensor, heads: int = HEADS) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class Fused(nn.Module):
    """Fused projection, read as all queries, then all keys, then all values."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.outward = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.outward(self.attention(self.inward(x)))

    def attention(self, qkv: Tensor) -> Tensor:
        q, k, v = (by_head(part) for part in qkv.chunk(3, -1))
        return attend(q, k, v)


class HeadFirst(Fused):
    """Rows by head first: timm's Attention2d and AttentionCl, EfficientFormer."""

    def attention(self, qkv: Tensor) -> Tensor:
        q, k, v = by_head(qkv).chunk(3, -1)
        return attend(q, k, v)


class UnitFirst(Fused):
    """Rows by unit first: HaloAttn."""

    def attention(self, qkv: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (DIM, HEADS)).movedim(-1, 1) for part in qkv.chunk(3, -1))
        return attend(q, k, v)


class CrossCovariance(Fused):
    """Channels attend to channels: XCA and DaViT."""

    def attention(self, qkv: Tensor) -> Tensor:
        q, k, v = (by_head(part).mT for part in qkv.chunk(3, -1))
        normal = nn.functional.normalize
        return (
            (((normal(q, dim=-1) @ normal(k, dim=-1).mT).softmax(-1) @ v).mT)
            .transpose(1, 2)
            .flatten(2)
        )


class Lambda(Fused):
    """The softmax is over the positions of keys alone: LambdaLayer."""

    def attention(self, qkv: Tensor) -> Tensor:
        q, k, v = (by_head(part) for part in qkv.chunk(3, -1))
        return (q @ (k.softmax(-2).mT @ v)).transpose(1, 2).flatten(2)


class LinearAttention(Fused):
    """Feature maps in place of a softmax; keys meet values first."""

    def attention(self, qkv: Tensor) -> Tensor:
        q, k, v = (by_head(part) for part in qkv.chunk(3, -1))
        q, k = q.relu() + 0.1, k.relu() + 0.1
        return ((q @ (k.mT @ v)) / (q @ k.sum(-2)[..., None])).transpose(1, 2).flatten(2)


class TalkingHeads(Fused):
    """Logits of all heads are mixed; the mixture starts as the identity."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.eye(HEADS))

    def attention(self, qkv: Tensor) -> Tensor:
        q, k, v = (by_head(part) for part in qkv.chunk(3, -1))
        logits = torch.einsum("gh,bhij->bgij", self.mix, q @ k.mT)
        return (logits.softmax(-1) @ v).transpose(1, 2).flatten(2)


class TalkingLater(TalkingHeads):
    """Probabilities of all heads are mixed."""

    def attention(self, qkv: Tensor) -> Tensor:
        q, k, v = (by_head(part) for part in qkv.chunk(3, -1))
        mixed = torch.einsum("gh,bhij->bgij", self.mix, (q @ k.mT).softmax(-1))
        return (mixed @ v).transpose(1, 2).flatten(2)


class Activated(Fused):
    """An activation follows the projection."""

    def attention(self, qkv: Tensor) -> Tensor:
        q, k, v = (by_head(part) for part in qkv.chunk(3, -1))
        return attend(nn.functional.silu(q), k, v)


class ActivatedValues(Fused):
    """An activation stands before the output projection: LeViT."""

    def attention(self, qkv: Tensor) -> Tensor:
        return nn.functional.hardswish(super().attention(qkv))


class ReversedKeys(Fused):
    """Query unit u meets key unit d - u."""

    def attention(self, qkv: Tensor) -> Tensor:
        q, k, v = (by_head(part) for part in qkv.chunk(3, -1))
        return attend(q, k.flip(-1), v)


class ReversedValues(Fused):
    """Value unit u reaches output column d - u of its head."""

    def attention(self, qkv: Tensor) -> Tensor:
        q, k, v = (by_head(part) for part in qkv.chunk(3, -1))
        return attend(q, k, v.flip(-1))


class KeysFirst(Fused):
    """Rows of the keys stand before those of the queries."""

    def attention(self, qkv: Tensor) -> Tensor:
        k, q, v = (by_head(part) for part in qkv.chunk(3, -1))
        return attend(q, k, v)


class KeysFirstFused(Fused):
    """The same, in one call of PyTorch's attention with a causal mask."""

    def attention(self, qkv: Tensor) -> Tensor:
        k, q, v = (by_head(part) for part in qkv.chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.transpose(1, 2).flatten(2)


class SlotAttention(Fused):
    """The softmax runs over queries, and weights are normalised over keys after it."""

    def attention(self, qkv: Tensor) -> Tensor:
        q, k, v = (by_head(part) for part in qkv.chunk(3, -1))
        weights = (q @ k.mT).softmax(-2)
        return ((weights / weights.sum(-1, keepdim=True)) @ v).transpose(1, 2).flatten(2)


class OneQuery(Fused):
    """The first token alone asks, as in the last blocks of CaiT."""

    def attention(self, qkv: Tensor) -> Tensor:
        q, k, v = (by_head(part) for part in qkv.chunk(3, -1))
        return attend(q[:, :, :1], k, v)


class OneQueryKeysFirst(Fused):
    """The same, with the rows of the keys first."""

    def attention(self, qkv: Tensor) -> Tensor:
        k, q, v = (by_head(part) for part in qkv.chunk(3, -1))
        return attend(q[:, :, :1], k, v)


class PairedOutputs(Fused):
    """Differences of the outputs of two heads reach the output projection: DiffLlama."""

    def attention(self, qkv: Tensor) -> Tensor:
        mixed = super().attention(qkv)
        return mixed - 0.5 * mixed.roll(DIM, -1)


class Capped(Fused):
    """Normalised queries over all heads, capped logits, a causal mask and a norm of the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.query_norm, self.norm = nn.RMSNorm(WIDTH), nn.LayerNorm(WIDTH)

    def attention(self, qkv: Tensor) -> Tensor:
        q, k, v = qkv.chunk(3, -1)
        q, k, v = by_head(self.query_norm(q)), by_head(k), by_head(v)
        logits = 5 * torch.tanh(nn.functional.normalize(q, dim=-1) @ k.mT / 5)
        causal = torch.full(logits.shape[-2:], float("-inf")).triu(1)
        return self.norm(((logits + causal).softmax(-1) @ v).transpose(1, 2).flatten(2))


class Grouped(nn.Module):
    """Two key heads for four query heads; query head h is read as meeting key head h // 2."""

    def __init__(self, *, modulo: bool) -> None:
        super().__init__()
        self.modulo = modulo
        sizes = {"a": 4 * DIM, "b": 2 * DIM, "c": 2 * DIM}
        for name, size in sizes.items():
            self.add_module(name, nn.Linear(WIDTH, size))
        self.d = nn.Linear(4 * DIM, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = by_head(self.a(x), 4), by_head(self.b(x), 2), by_head(self.c(x), 2)
        repeat = (lambda t: t.repeat(1, 2, 1, 1)) if self.modulo else self._in_turn
        return self.d(attend(q, repeat(k), repeat(v)))

    @staticmethod
    def _in_turn(heads: Tensor) -> Tensor:
        return heads.repeat_interleave(2, 1)


@rs.attention_rule.register(Fused)
def _fused(module: Fused, name: str) -> Attention:
    return fused_attention(module, name, fused="inward", output="outward", heads=HEADS)


@rs.attention_rule.register(Grouped)
def _grouped(module: Grouped, name: str) -> Attention:
    return separate_attention(module, name, query="a", key="b", value="c", output="d", heads=4)


def modulo() -> nn.Module:
    """Return grouped heads in which query head h meets key head h % 2, as in x-transformers."""
    return Grouped(modulo=True)


def in_turn() -> nn.Module:
    """Return grouped heads in which query head h meets key head h // 2."""
    return Grouped(modulo=False)


WRONG: dict[Callable[[], nn.Module], str] = {
    HeadFirst: "no logit depends on both",
    UnitFirst: "queries of several heads",
    CrossCovariance: "some units of a query head only",
    Lambda: "no logit depends on both",
    LinearAttention: "some units of a query head only",
    TalkingHeads: "queries of several heads",
    TalkingLater: "depend on several heads",
    Activated: "not linear in the query weights",
    ActivatedValues: "not linear in the value weights",
    ReversedKeys: "meet other key units",
    ReversedValues: "other output columns",
    PairedOutputs: "depend on several heads",
    KeysFirst: "queries were read as keys",
    KeysFirstFused: "queries were read as keys",
    OneQueryKeysFirst: "queries were read as keys",
    modulo: "query head 1 meets key head 1, read as meeting 0",
}
RIGHT = (Fused, Capped, OneQuery, in_turn)
