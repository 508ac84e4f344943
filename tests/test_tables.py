"""Tables of matrices against NumPy's SVD, for a model, a checkpoint and a run."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import rankscope as rs
from rankscope.tables import movement


def model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Embedding(12, 6), nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 4))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, nn.Module, nn.Module]:
    """A run of three snapshots, with the networks at its start and at its end."""
    path, start, net = tmp_path_factory.mktemp("runs") / "first", model(), model()
    with rs.Tracker(net, path, schedule=[0, 1, 2]) as tracker:
        for step in range(3):
            tracker.observe(step, loss=1.0 / (step + 1))
            with torch.no_grad():
                net[1].weight.mul_(0.5) if step < 2 else None
                net[3].weight[0] += 3 if step < 2 else 0
    return path, start, net


def test_a_row_holds_what_numpy_says() -> None:
    net = model()
    table = rs.summary(net)
    assert table.index.tolist() == ["0", "1", "3"] and "change" not in table
    assert table["kind"].tolist() == ["embedding", "linear", "linear"]
    assert table["shape"].tolist() == ["6 x 12", "9 x 6", "4 x 9"]
    for name in ("1", "3"):
        S = np.linalg.svd(net[int(name)].weight.detach().double().numpy(), compute_uv=False)
        p = S / S.sum()
        row = table.loc[name]
        assert row["norm"] == pytest.approx(np.sqrt((S**2).sum()))
        assert row["effective_rank"] == pytest.approx(np.exp(-(p * np.log(p)).sum()))
        assert row["stable_rank"] == pytest.approx((S**2).sum() / S[0] ** 2)
        assert row["tail_exponent"] > 1


def test_a_reference_gives_the_change() -> None:
    net, start = model(1), model(0)
    table = rs.summary(net, reference=start, sort="change")
    W, W0 = net[1].weight.detach().double(), start[1].weight.detach().double()
    assert table.loc["1", "change"] == pytest.approx(float((W - W0).norm() / W.norm()))
    assert table["change"].is_monotonic_decreasing


def test_a_run_gives_its_last_snapshot(run: tuple[Path, nn.Module, nn.Module]) -> None:
    path, start, net = run
    expected = rs.summary(net, reference=start)
    for source in (path, str(path), rs.open(path)):
        table = rs.summary(source)
        assert table.columns.tolist() == expected.columns.tolist()
        assert table["shape"].tolist() == expected["shape"].tolist()
        for column in ("norm", "effective_rank", "stable_rank", "change"):
            np.testing.assert_allclose(table[column], expected[column], rtol=1e-5)


def test_a_checkpoint_file(tmp_path: Path) -> None:
    torch.save(model().state_dict(), tmp_path / "model.pt")
    table = rs.summary(tmp_path / "model.pt", sort="norm")
    assert table["norm"].is_monotonic_decreasing and len(table) == 3


def test_movement_names_what_moved_first(run: tuple[Path, nn.Module, nn.Module]) -> None:
    table = rs.movement(rs.open(run[0]))
    assert table.index[0] == "3" and table.loc["1", "moved"] == pytest.approx(0, abs=1e-6)
    assert table.loc["3", "moved"] == pytest.approx(
        table.loc["3", "first"] - table.loc["3", "last"]
    )


def test_mistakes_are_one_sentence(run: tuple[Path, nn.Module, nn.Module], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"sort is a column, one of kind, shape, .*got 'rank'"):
        rs.summary(model(), sort="rank")
    with pytest.raises(ValueError, match="reference of its own"):
        rs.summary(run[0], reference=model())
    with pytest.raises(ValueError, match="none of these matrices"):
        rs.summary(model(), reference={"other.weight": torch.ones(3, 4)})
    with rs.Tracker(model(), tmp_path / "empty"):
        pass
    with pytest.raises(ValueError, match="no snapshot"):
        rs.summary(tmp_path / "empty")


def test_a_zero_matrix_has_no_relative_change(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 5))
    nn.init.zeros_(net[1].weight)
    with rs.Tracker(net, tmp_path / "run") as tracker:
        tracker.observe(0)
    for table in (rs.summary(tmp_path / "run"), rs.summary(net, reference=net)):
        assert table.loc["0", "change"] == 0 and np.isnan(table.loc["1", "change"])


def test_without_matrices_or_snapshots_a_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no matrix to sum up"):
        rs.summary(nn.LayerNorm(3))
    rs.Tracker(model(), tmp_path / "run").close()
    with pytest.raises(ValueError, match="no snapshot"):
        movement(rs.open(tmp_path / "run"))
