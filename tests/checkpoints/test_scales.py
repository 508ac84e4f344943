"""Float8 and MXFP4 against the libraries that define them; other integers are refused by name."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import rankscope as rs
from rankscope.checkpoints import open_checkpoint
from rankscope.checkpoints import tensors as tensors_module


def quantised(W: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (W / scale).to(torch.float8_e4m3fn)


@pytest.fixture(params=[None, 700], ids=["at once", "in parts"])
def rows_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param is not None:
        monkeypatch.setattr(tensors_module, "NUMBERS_AT_ONCE", request.param)


@pytest.mark.usefixtures("rows_at_once")
@pytest.mark.parametrize("end", ["_scale", "_scale_inv"])
@pytest.mark.parametrize("form", ["tensor", "scalar", "row", "column", "block", "uneven"])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_float8_is_read_with_its_scale(
    tmp_path: Path, form: str, end: str, kind: torch.dtype
) -> None:
    m, n = {"block": (256, 384), "uneven": (576, 300)}.get(form, (6, 4))
    shape = {
        "tensor": (1,),
        "scalar": (),
        "row": (m, 1),
        "column": (m,),
        "block": (2, 3),
        "uneven": (5, 3),
    }[form]
    scale = (torch.rand(shape) + 0.5).to(kind)
    stored = torch.randn(m, n).to(torch.float8_e4m3fn)
    save_file({"a.weight": stored, f"a.weight{end}": scale}, tmp_path / "x.safetensors")
    expected = torch.empty(m, n, dtype=torch.float64)
    for i in range(m):
        for j in range(n):
            factor = {
                "row": lambda i, j: scale[i, 0],
                "column": lambda i, j: scale[i],
                "block": lambda i, j: scale[i // 128, j // 128],
                "uneven": lambda i, j: scale[i // 128, j // 128],
            }.get(form, lambda i, j: scale.reshape(()))(i, j)
            if i % 97 and form == "uneven":
                continue
            expected[i, j] = stored[i, j].double() * factor.double()
    checkpoint = open_checkpoint(tmp_path / "x.safetensors")
    how = {"row": "per 1 x 4", "column": "per 1 x 4", "block": "per 128 x 128"}
    how |= {"uneven": how["block"]}
    note = f"float8_e4m3fn times weight{end} {how.get(form, 'of the whole tensor')}"
    assert checkpoint.tensors["a.weight"].note == note
    read = checkpoint.read("a.weight")
    rows = [i for i in range(m) if form != "uneven" or i % 97 == 0]
    torch.testing.assert_close(read[rows].double(), expected[rows], rtol=1e-6, atol=0)
    assert torch.equal(checkpoint.read_rows("a.weight", 1, m - 1), read[1 : m - 1])
    assert checkpoint.tensors["a.weight"].dtype == torch.float32
    coverage = rs.views(checkpoint).coverage
    if len(shape) == 2:
        assert coverage[f"a.weight{end}"].how == "in a.weight"


@pytest.mark.parametrize("name", ["a.scale", "a.scale_weight"])
def test_scales_beside_a_float8_weight_are_applied(tmp_path: Path, name: str) -> None:
    """As DeepSeek's own format and ComfyUI's name them."""
    weight, scale = torch.randn(6, 4).to(torch.float8_e4m3fn), torch.tensor([2.5])
    save_file({"a.weight": weight, name: scale}, tmp_path / "x.safetensors")
    checkpoint = open_checkpoint(tmp_path / "x.safetensors")
    assert torch.equal(checkpoint.read("a.weight"), weight.float() * 2.5)
    assert checkpoint.tensors[name].part_of == "a.weight"


F8, SCALE = torch.ones(6, 4).to(torch.float8_e4m3fn), torch.ones(1)
UNCLEAR = {
    "two scales": ({"weight": F8, "weight_scale": SCALE, "weight_scale_inv": SCALE}, "several"),
    "a global scale": (
        {"weight": F8, "weight_scale": SCALE, "weight_global_scale": SCALE},
        "several",
    ),
    "a zero point": ({"weight": F8, "weight_scale": SCALE, "weight_zero_point": SCALE}, "several"),
    "a second scale": ({"weight": F8, "weight_scale": SCALE, "weight_scale_2": SCALE}, "ModelOpt"),
    "NVFP4": (
        {"weight": torch.ones(6, 2).byte(), "weight_scale": F8, "weight_scale_2": SCALE},
        "ModelOpt",
    ),
    "a wide weight": ({"weight": torch.ones(6, 4), "weight_scale": SCALE}, "part of them already"),
    "a half weight": (
        {"weight": torch.ones(6, 4).half(), "weight_scale_inv": SCALE},
        "part of them already",
    ),
}


@pytest.mark.parametrize(("tensors", "reason"), UNCLEAR.values(), ids=UNCLEAR)
def test_no_scale_is_ignored(tmp_path: Path, tensors: dict[str, torch.Tensor], reason: str) -> None:
    named = {f"a.{name}": tensor.clone() for name, tensor in tensors.items()}
    save_file({**named, "b.weight": torch.ones(3, 3)}, tmp_path / "x.safetensors")
    scan = rs.scan(tmp_path / "x.safetensors")
    assert scan.table().index.tolist() == ["b"]
    assert scan.coverage["a.weight"].status == "not read"
    assert reason in scan.coverage["a.weight"].how
    save_file(named, tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match=f"no matrix to scan: a.weight.*: .*{reason}"):
        rs.scan(tmp_path / "x.safetensors")


def test_the_block_size_of_the_configuration_counts(tmp_path: Path) -> None:
    scale = torch.rand(3, 2) + 0.5
    tensors = {"a.weight": torch.randn(96, 64).to(torch.float8_e4m3fn), "a.weight_scale_inv": scale}
    save_file(tensors, tmp_path / "model.safetensors")
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [32, 32]}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    expected = tensors["a.weight"].float() * scale.repeat_interleave(32, 0).repeat_interleave(32, 1)
    assert torch.equal(open_checkpoint(tmp_path).read("a.weight"), expected)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ValueError, match="float8_e4m3fn values without a scale that is known"):
        open_checkpoint(tmp_path).read("a.weight")


@pytest.mark.usefixtures("rows_at_once")
def test_mxfp4_is_what_transformers_makes_of_it(tmp_path: Path) -> None:
    mxfp4 = pytest.importorskip("transformers.integrations.mxfp4")
    blocks = torch.randint(0, 256, (3, 8, 4, 16), dtype=torch.uint8)
    scales = torch.randint(115, 135, (3, 8, 4), dtype=torch.uint8)
    expected = mxfp4.convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    name = "layers.0.mlp.experts.gate_up_proj"
    tensors = {f"{name}_blocks": blocks, f"{name}_scales": scales}
    save_file(tensors, tmp_path / "x.safetensors")
    checkpoint = open_checkpoint(tmp_path / "x.safetensors")
    size = blocks.nbytes + scales.nbytes
    assert checkpoint.tensors[name].bytes == size == checkpoint.bytes
    read = checkpoint.read(name)
    assert read.shape == (3, 8, 128)
    assert torch.equal(read.mT, expected) or torch.equal(read, expected)
    assert torch.equal(checkpoint.read_rows(name, 1, 2), read[1:2])
    table = rs.scan(tmp_path / "x.safetensors").table()
    assert table.index.tolist() == [f"{name}.e{i}" for i in range(3)]


PACKED = {
    "GPTQ or AWQ": {
        "a.qweight": torch.zeros(4, 8, dtype=torch.int32),
        "a.qzeros": torch.zeros(2, 1, dtype=torch.int32),
        "a.scales": torch.ones(2, 8),
    },
    "bitsandbytes": {
        "a.weight": torch.zeros(32, 1, dtype=torch.uint8),
        "a.weight.absmax": torch.ones(4),
        "a.weight.quant_map": torch.ones(16),
    },
    "bitsandbytes, eight bits": {
        "a.weight": torch.zeros(4, 8, dtype=torch.int8),
        "a.SCB": torch.ones(4),
    },
    "compressed-tensors": {
        "a.weight_packed": torch.zeros(4, 8, dtype=torch.int32),
        "a.weight_scale": torch.ones(4, 2),
    },
    "HQQ": {"a.W_q": torch.zeros(4, 8, dtype=torch.uint8), "a.scale": torch.ones(4, 1)},
}


@pytest.mark.parametrize("tool", PACKED)
def test_packed_integers_are_refused_by_name(tmp_path: Path, tool: str) -> None:
    tensors = {**PACKED[tool], "lm_head.weight": torch.randn(6, 4)}
    save_file(tensors, tmp_path / "x.safetensors")
    scan = rs.scan(tmp_path / "x.safetensors")
    assert scan.table().index.tolist() == ["lm_head"]
    lines = [line for line in scan.coverage if line.tensor.startswith("a.")]
    assert lines and all(line.status == "not read" for line in lines)
    assert all(tool.partition(",")[0] in line.how for line in lines)
    save_file(PACKED[tool], tmp_path / "y.safetensors")
    with pytest.raises(ValueError, match="has no matrix to scan"):
        rs.scan(tmp_path / "y.safetensors")


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.uint8])
def test_small_numbers_without_a_scale_are_never_cast(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {"a.weight": torch.ones(4, 4).to(dtype), "b.weight": torch.ones(4, 4)}
    save_file(tensors, tmp_path / "x.safetensors")
    scan = rs.scan(tmp_path / "x.safetensors")
    assert scan.table().index.tolist() == ["b"]
    assert scan.coverage["a.weight"].status == "not read"


def test_the_scale_of_a_weight_that_is_refused_is_no_matrix(tmp_path: Path) -> None:
    """Blocks of 64 are in no configuration, so the shapes alone do not tell them."""
    weight = torch.randn(300, 200).to(torch.float8_e4m3fn)
    tensors = {"l.weight": weight, "l.weight_scale_inv": torch.ones(5, 4), "m.weight": torch.eye(3)}
    save_file(tensors, tmp_path / "x.safetensors")
    views = rs.views(tmp_path / "x.safetensors")
    assert list(views) == ["m"]
    assert (
        views.coverage["l.weight_scale_inv"].how
        == "scale of l.weight, in blocks that are not known"
    )
