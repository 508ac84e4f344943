"""rs.verify refutes heads that were read wrongly, confirms the others and changes nothing."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import rankscope as rs
from rankscope.matrices import Manifest
from verification.attentions import RIGHT, WIDTH, WRONG, Fused, HeadFirst, SlotAttention, by_head


@pytest.fixture
def example() -> Tensor:
    return torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("build", WRONG)
def test_wrong_readings_are_refuted(build: Callable[[], nn.Module], example: Tensor) -> None:
    (line,) = rs.verify(nn.Sequential(build()), example)
    assert (line.name, line.status) == ("0", "refuted")
    assert WRONG[build] in line.why


@pytest.mark.parametrize("build", RIGHT)
def test_right_readings_are_verified(build: Callable[[], nn.Module], example: Tensor) -> None:
    (line,) = rs.verify(nn.Sequential(build()), example)
    assert line.status == "verified", line.why


@pytest.mark.parametrize("fast_path", [True, False])
def test_multihead_attention_with_other_key_and_value_widths(fast_path: bool) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cross = nn.MultiheadAttention(12, 3, kdim=8, vdim=10)
            self.encode = nn.TransformerEncoderLayer(12, 3, 16, batch_first=True)

        def forward(self, x: Tensor, k: Tensor, *, v: Tensor) -> Tensor:
            return self.encode(self.cross(x, k, v)[0])

    shapes = {"x": (5, 2, 12), "k": (6, 2, 8), "v": (6, 2, 10)}
    example = {name: torch.randn(shape) for name, shape in shapes.items()}
    torch.backends.mha.set_fastpath_enabled(fast_path)
    try:
        verification = rs.verify(Net(), example)
        assert torch.backends.mha.get_fastpath_enabled() == fast_path
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    assert [line.status for line in verification] == ["verified", "verified"]


def test_weights_that_are_zero_do_not_hide_the_layout(example: Tensor) -> None:
    for build, status in ((Fused, "verified"), (HeadFirst, "refuted")):
        model = build().requires_grad_(False)
        model.inward.weight.zero_()
        model.outward.weight.zero_()
        assert rs.verify(model, example)[""].status == status


def test_what_cannot_be_checked_is_assumed(example: Tensor) -> None:
    class Lazy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = Fused(), Fused()

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    verification = rs.verify(Lazy(), example[:, :1])
    assert "several tokens" in verification["used"].why
    assert "not reach" in verification["unused"].why
    assert {line.status for line in verification} == {"assumed"}
    assert verification.summary == "2 attention modules: 2 assumed"
    (slots,) = rs.verify(SlotAttention(), example)
    assert slots.status == "assumed" and "which projection is the query" in slots.why
    (zero,) = rs.verify(Fused(), torch.zeros_like(example))
    assert zero.status == "assumed" and "no softmax or product" in zero.why


def test_fused_kernels_are_seen_and_foreign_ones_assumed(example: Tensor) -> None:
    class Flash(Fused):
        def attention(self, qkv: Tensor) -> Tensor:
            q, k, v = (by_head(part) for part in qkv.chunk(3, -1))
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                mixed = nn.functional.scaled_dot_product_attention(q, k, v)
            return mixed.transpose(1, 2).flatten(2)

    class Foreign(Fused):
        def attention(self, qkv: Tensor) -> Tensor:
            def kernel(array: np.ndarray) -> Tensor:
                return Fused.attention(self, torch.from_numpy(array))

            with torch.utils._python_dispatch._disable_current_modes():
                return kernel(qkv.numpy())

    assert rs.verify(Flash(), example)[""].status == "verified"
    foreign = rs.verify(Foreign(), example)[""]
    assert foreign.status == "assumed" and "no softmax or product" in foreign.why


def test_a_module_that_cannot_be_copied_is_assumed(example: Tensor) -> None:
    model = Fused()
    model.lock = (item for item in ())  # deepcopy refuses generators
    (line,) = rs.verify(model, example)
    assert line.status == "assumed" and "generator" in line.why


def test_an_example_that_does_not_fit_is_a_value_error(example: Tensor) -> None:
    with pytest.raises(ValueError, match="forward pass of Fused failed on the example"):
        rs.verify(Fused(), (example, example))


def test_a_refuted_module_is_not_given(example: Tensor) -> None:
    model = nn.Sequential(Fused(), HeadFirst())
    whole = rs.manifest(model)
    verified = whole.verified(rs.verify(model, example))
    assert [attention.name for attention in verified.attentions] == ["0"]
    assert verified.coverage["0.inward.weight"].how.endswith("3 heads of width 4, verified")
    assert ", refuted (not given): no logit" in verified.coverage["1.outward.weight"].how
    assert {name[0] for name in rs.products(model, like=verified)} == {"0"}
    restored = Manifest.from_json(verified.to_json())
    assert restored == verified and restored.verification["1"].status == "refuted"
    assert len(whole.verification) == 0


def test_manifests_from_before_verification_load() -> None:
    written = rs.manifest(Fused()).to_json()
    older = written.replace(',"verification":{"lines":[]}', "")
    assert older != written and Manifest.from_json(older) == Manifest.from_json(written)


def test_the_table_names_module_status_and_reason(example: Tensor) -> None:
    lines = str(rs.verify(nn.Sequential(Fused(), HeadFirst()), example)).splitlines()
    assert lines[0] == "2 attention modules: 1 verified, 1 refuted"
    assert lines[2].split()[:2] == ["0", "verified"] and lines[3].split()[:2] == ["1", "refuted"]
