"""Scans against NumPy's SVD; series with accidents; formats of one model agree to the bit."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

import rankscope as rs
from rankscope.scanning.scanner import members_of
from scanning.cases import model, saved, series, weights


def test_a_row_holds_what_numpy_says(tmp_path: Path) -> None:
    tensors = weights()
    scan = rs.scan(saved(tmp_path / "x.safetensors", tensors))
    table = scan.table()
    assert table.index.tolist() == ["0", "1", "3"]
    assert table["shape"].tolist() == ["40 x 16", "24 x 16", "12 x 24"]
    for name in ("1", "3"):
        S = np.linalg.svd(tensors[f"{name}.weight"].double().numpy(), compute_uv=False)
        p, energy = S / S.sum(), np.cumsum(S**2) / (S**2).sum()
        row = table.loc[name]
        assert row["norm"] == pytest.approx(np.sqrt((S**2).sum()), rel=1e-12)
        assert row["effective_rank"] == pytest.approx(np.exp(-(p * np.log(p)).sum()))
        assert row["stable_rank"] == pytest.approx((S**2).sum() / S[0] ** 2)
        for share in (50, 90, 99):
            assert row[f"r{share}"] == 1 + (energy < share / 100).sum()
        assert row["tail_exponent"] == pytest.approx(float(rs.metrics.tail_exponent(S)))


def test_a_base_gives_the_spectrum_of_the_change(tmp_path: Path) -> None:
    before, after = weights(0), weights(1)
    base = saved(tmp_path / "base.pt", before)
    scan = rs.scan(saved(tmp_path / "tuned.safetensors", after), base=base)
    for matrix in scan.checkpoints[0].matrices:
        W, W0 = (state[f"{matrix.name}.weight"].double().numpy() for state in (after, before))
        np.testing.assert_allclose(matrix.S, np.linalg.svd(W, compute_uv=False)[:16], rtol=1e-6)
        expected = np.linalg.svd(W - W0, compute_uv=False)
        np.testing.assert_allclose(matrix.change, expected, rtol=1e-5)
        row = scan.table().loc[matrix.name]
        assert row["change"] == pytest.approx(np.linalg.norm(W - W0) / np.linalg.norm(W), rel=1e-6)
        assert row["norm"] == pytest.approx(np.linalg.norm(W - W0), rel=1e-6)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "module.model."])
def test_a_base_is_matched_with_and_without_prefixes(tmp_path: Path, prefix: str) -> None:
    wrapped = {prefix + name: tensor for name, tensor in weights(0).items()}
    base = saved(tmp_path / "base.safetensors", wrapped)
    scan = rs.scan(saved(tmp_path / "x.safetensors", weights(1)), base=base)
    assert scan.table()["change"].notna().all()


def test_a_resized_vocabulary_is_compared_where_both_have_tokens(tmp_path: Path) -> None:
    before, after = weights(0), weights(1)
    after["0.weight"] = torch.cat([after["0.weight"], torch.randn(3, 16)])
    scan = rs.scan(
        saved(tmp_path / "x.safetensors", after), base=saved(tmp_path / "b.safetensors", before)
    )
    row = scan.table().loc["0"]
    assert "first 40" in row["stands_out"]
    change = after["0.weight"][:40] - before["0.weight"]
    assert row["norm"] == pytest.approx(float(change.double().norm()))


def test_formats_of_one_model_agree_to_the_bit(tmp_path: Path) -> None:
    tensors = {name: tensor.bfloat16() for name, tensor in weights().items()}
    tensors["3.weight"][1] = tensors["3.weight"][0]  # rank-deficient
    saved(tmp_path / "x.safetensors", tensors)
    saved(tmp_path / "x.pt", {"model": dict(reversed(tensors.items()))})
    with pytest.warns(UserWarning):
        dcp.save({"model": tensors}, checkpoint_id=tmp_path / "dcp", no_dist=True)
    expected, *others = (rs.scan(tmp_path / name) for name in ("x.safetensors", "x.pt", "dcp"))
    for other in others:
        rows = {matrix.name: matrix for matrix in other.checkpoints[0].matrices}
        for matrix in expected.checkpoints[0].matrices:
            assert np.array_equal(matrix.S, rows[matrix.name].S)
            assert matrix.norm == rows[matrix.name].norm
    assert "1 of 12 directions are zero" in expected.table().loc["3", "stands_out"]


def test_norms_alone(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.safetensors", weights())
    table = rs.scan(path, leading=0).table()
    assert list(table.columns) == ["kind", "shape", "norm", "stands_out"]
    assert table["norm"].tolist() == pytest.approx(rs.scan(path).table()["norm"].tolist())


def test_include_and_exclude(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.safetensors", weights())
    assert rs.scan(path, include=["1", "3"]).table().index.tolist() == ["1", "3"]
    scan = rs.scan(path, exclude="0")
    assert scan.table().index.tolist() == ["1", "3"]
    assert scan.coverage["0.weight"].status == "excluded"
    with pytest.raises(ValueError, match="pattern 'nothing' matches no matrix"):
        rs.scan(path, include="nothing")


def test_a_series_is_read_in_the_order_of_its_steps(tmp_path: Path) -> None:
    states = series(tmp_path, 12)
    scan = rs.scan(tmp_path)
    assert [checkpoint.step for checkpoint in scan.checkpoints] == sorted(states)
    table = scan.table()
    assert len(table) == 36 and set(table["step"]) == set(states)
    norms = table[table["step"] == 110].loc["1", "norm"]
    assert norms == pytest.approx(float(states[110]["1.weight"].double().norm()))


def test_accidents_in_a_series_are_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    states = series(tmp_path, 6)
    (tmp_path / "step10.safetensors").write_bytes(b"\x10")
    saved(tmp_path / "step20.safetensors", states[0])
    broken = {**states[30], "1.weight": torch.full((24, 16), torch.nan)}
    saved(tmp_path / "step30.safetensors", broken)
    other = {**states[40], "3.weight": torch.randn(12, 20), "new.weight": torch.randn(3, 3)}
    saved(tmp_path / "step40.safetensors", other)
    del states[50]["0.weight"]
    saved(tmp_path / "step50.safetensors", states[50])
    saved(tmp_path / "step050.safetensors", states[50])
    (tmp_path / "notes.txt").write_text("x")
    scan = rs.scan(tmp_path)
    assert [checkpoint.step for checkpoint in scan.checkpoints] == [0, 20, 30, 40, 50]
    (lost,) = scan.problems
    assert "step 10 is left out" in lost and "damaged" in lost
    assert scan.notes == (
        "step050.safetensors and step50.safetensors are both of step 50; the second is left out",
        "step 20 holds the same weights as step 0",
        "step 30 has NaN or Inf in 1",
        "step 40 has in addition: new",
        "step 40 has in another shape: 3",
        "step 50 lacks: 0 and 1 more",
        "step 50 has in another shape: 3",
    )
    assert scan.checkpoints[-1].source == str(tmp_path / "step050.safetensors")
    table = scan.table()
    assert table[table["step"] == 30].loc["1", "stands_out"] == "NaN or Inf"


def test_equal_checkpoints_are_named_wherever_they_are(tmp_path: Path) -> None:
    states = series(tmp_path, 4)
    states[10]["1.weight"][0, 0] = torch.nan
    for step, same in ((10, 10), (40, 0), (50, 10), (60, 0)):
        saved(tmp_path / f"step{step}.safetensors", states[same])
    notes = [note for note in rs.scan(tmp_path).notes if "same weights" in note]
    pairs = ((40, 0), (50, 10), (60, 0))
    assert notes == [f"step {new} holds the same weights as step {old}" for new, old in pairs]
    norms = rs.scan(tmp_path, leading=0)
    assert [note for note in norms.notes if "same weights" in note] == notes


def test_a_checkpoint_that_cannot_be_read_costs_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"\x10")
    with pytest.raises(ValueError, match="is damaged"):
        rs.scan(tmp_path / "x.safetensors")
    saved(tmp_path / "y.safetensors", {"a": torch.zeros(3, 3, dtype=torch.int8)})
    with pytest.raises(ValueError, match="has no matrix to scan: a: int8"):
        rs.scan(tmp_path / "y.safetensors")
    with pytest.raises(ValueError, match="give the path of a checkpoint"):
        rs.scan()


def test_a_sort_is_a_column(tmp_path: Path) -> None:
    scan = rs.scan(saved(tmp_path / "x.safetensors", weights()))
    assert scan.table(sort="norm")["norm"].is_monotonic_decreasing
    with pytest.raises(ValueError, match="sort is a column, one of kind, shape"):
        scan.table(sort="size")


@pytest.mark.parametrize(
    ("names", "pattern", "steps"),
    [
        (["step1000", "step200"], None, [200, 1000]),
        (["checkpoint-500", "checkpoint-1000", "runs"], None, [500, 1000]),
        (["epoch_0000.pt", "epoch_0100.pt", "final.pt"], None, [0, 100]),
        (["epoch=3-step=200.ckpt", "epoch=10-step=700.ckpt"], None, [200, 700]),
        (["model_1k.bin", "model_10k.bin"], None, [1000, 10_000]),
        (["iter_0001", "iter_0002", "checkpoint-5"], "iter_*", [1, 2]),
        (["global_step10", "global_step20", "zero_to_fp32.py", "latest"], None, [10, 20]),
        (["step10.pt", ".step20.pt", ".m2"], None, [10]),
        (["step10.pt", ".step20.pt"], "*.pt", [10]),
    ],
)
def test_names_of_series(
    tmp_path: Path, names: list[str], pattern: str | None, steps: list[int]
) -> None:
    for name in names:
        (tmp_path / name).touch() if "." in name else (tmp_path / name).mkdir()
    members, _ = members_of([str(tmp_path)], pattern=pattern)
    assert [member.step for member in members] == steps


def test_folders_that_hold_several_series_or_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no checkpoint that is known"):
        members_of([str(tmp_path)], pattern=None)
    for name in ("a_1.pt", "a_2.pt", "b_1.pt", "b_2.pt"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match="several series: 'a_\\*', 'b_\\*'; choose one by"):
        members_of([str(tmp_path)], pattern=None)
    for number, parts in enumerate(
        (("consolidated.00.pth", "consolidated.01.pth"), ("mp_rank_00", "mp_rank_01"))
    ):
        for name in parts:
            (tmp_path / str(number) / name).mkdir(parents=True)
        with pytest.raises(ValueError, match=rf"parts of one checkpoint, such as {parts[0]} and"):
            members_of([str(tmp_path / str(number))], pattern=None)
    with pytest.raises(ValueError, match="pattern chooses within one folder"):
        members_of(["a", "b"], pattern="a*")


def test_folders_of_unnumbered_checkpoints_are_listed(tmp_path: Path) -> None:
    for name in ("critic.pt", "generator.pt"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r"pass one of what it holds: critic.pt, generator.pt$"):
        members_of([str(tmp_path)], pattern=None)
    with pytest.raises(ValueError, match=r"such as critic.pt and generator.pt; pass one of them"):
        rs.open_checkpoint(tmp_path)


def test_names_that_no_terminal_should_show_are_left_out(tmp_path: Path) -> None:
    series(tmp_path)
    for name in ("step7\x1b[31m.pt", "step8\n.pt", "last\u202e.pt"):
        (tmp_path / name).touch()
    scan = rs.scan(tmp_path)
    assert len(scan.checkpoints) == 4 and not scan.problems
    (note,) = scan.notes
    assert note.startswith("3 files of ") and note.isprintable()
    for path in tmp_path.glob("step?0.*"):
        path.unlink()
    (tmp_path / "step0.safetensors").unlink()
    with pytest.raises(ValueError, match="holds no checkpoint that is known") as refusal:
        rs.scan(tmp_path)
    assert str(refusal.value).isprintable()


def test_the_series_beside_a_final_model_is_named(tmp_path: Path) -> None:
    """The trainer of transformers writes both into one folder."""
    saved(tmp_path / "model.safetensors", weights(0))
    for step in (500, 1000):
        (tmp_path / f"checkpoint-{step}").mkdir()
        saved(tmp_path / f"checkpoint-{step}" / "model.safetensors", weights(step))
    scan = rs.scan(tmp_path)
    assert len(scan.checkpoints) == 1
    assert scan.notes == (
        f"{tmp_path} is scanned as one model; --pattern 'checkpoint-*' scans the series of 2 "
        "within it",
    )
    scan = rs.scan(tmp_path, pattern="checkpoint-*")
    assert [checkpoint.step for checkpoint in scan.checkpoints] == [500, 1000]


def test_layers_count_up_though_a_safetensors_file_sorts_by_letters(tmp_path: Path) -> None:
    layers = {f"layers.{number}.weight": torch.randn(3, 4) for number in range(12)}
    scan = rs.scan(saved(tmp_path / "x.safetensors", layers))
    assert list(scan.table().index) == [name.removesuffix(".weight") for name in layers]


def test_paths_that_are_listed_are_a_series(tmp_path: Path) -> None:
    assert [m.step for m in members_of(["x/step30", "x/step4"], pattern=None)[0]] == [4, 30]
    assert [m.path for m in members_of(["b.pt", "a.pt"], pattern=None)[0]] == ["b.pt", "a.pt"]


def test_views_of_a_file_are_those_of_the_model(tmp_path: Path) -> None:
    net = model()
    path = saved(tmp_path / "x.safetensors", weights())
    for name, view in rs.views(path, like=net).items():
        assert torch.equal(view.W, rs.views(net)[name].W)


def test_leading_values_are_the_first_of_all(tmp_path: Path) -> None:
    torch.manual_seed(0)
    W = torch.randn(300, 280) @ torch.diag(0.9 ** torch.arange(280.0))
    path = saved(tmp_path / "x.safetensors", {"a.weight": W, "b.weight": torch.randn(8, 5)})
    whole, part = rs.scan(path), rs.scan(path, leading=20)
    for one, other in zip(whole.checkpoints[0].matrices, part.checkpoints[0].matrices, strict=True):
        np.testing.assert_allclose(other.S, one.S[:20], rtol=1e-6)
        assert other.norm == one.norm
    table, full = part.table(), whole.table()
    assert table.loc["a", "stable_rank"] == pytest.approx(full.loc["a", "stable_rank"])
    assert table.loc["a", "r50"] == full.loc["a", "r50"]
    assert np.isnan(table.loc["a", "effective_rank"]) and np.isnan(table.loc["a", "tail_exponent"])


def test_half_precision_whose_sum_overflows_is_finite(tmp_path: Path) -> None:
    W = (torch.randn(400, 300) + 3).half()
    assert W.sum().isinf()
    row = rs.scan(saved(tmp_path / "x.safetensors", {"a.weight": W})).table().loc["a"]
    S = np.linalg.svd(W.double().numpy(), compute_uv=False)
    assert row["stable_rank"] == pytest.approx((S**2).sum() / S[0] ** 2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.safetensors", weights())
    with pytest.raises(ValueError, match="torch sees none"):
        rs.scan(path, device="cuda")
