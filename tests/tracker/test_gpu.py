"""The tracker beside a GPU: what it stages is what was there, wherever it is measured."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import rankscope as rs
from tracker.tracked import track

pytestmark = pytest.mark.gpu

WAYS = [("cpu", "process"), ("cpu", "thread"), ("cuda", "thread")]


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(512, 512), nn.MultiheadAttention(512, 4)).cuda()


@pytest.mark.parametrize(("device", "beside"), WAYS)
def test_weights_overwritten_right_after_observe_are_not_seen(tmp_path, device, beside) -> None:
    """Copies are queued on the training stream, so later kernels cannot overtake them."""
    model = net()
    long = torch.randn(4096, 4096, device="cuda")
    expected = []
    with rs.Tracker(
        model, tmp_path / "run", schedule=1, device=device, beside=beside, strict=True
    ) as tracker:
        for step in range(6):
            for _ in range(20):  # keeps the stream busy, so that the copy has to wait its turn
                long = long @ long / 64
            with torch.no_grad():
                model[0].weight.copy_(torch.eye(512, device="cuda") * (step + 1))
            tracker.observe(step, loss=long.mean())
            with torch.no_grad():
                model[0].weight.zero_()
            expected.append(step + 1.0)
    ds = rs.open(tmp_path / "run")
    measured = ds.singular_values.sel(matrix="0").values
    np.testing.assert_allclose(measured, np.outer(expected, np.ones(512)), rtol=1e-6)


def test_all_ways_agree(tmp_path) -> None:
    first, *others = (
        track(tmp_path / f"{device}-{beside}", net(), steps=range(3), device=device, beside=beside)
        for device, beside in WAYS
    )
    for name in ("singular_values", "change_singular_values", "product_change_singular_values"):
        largest = np.nanmax(first[name].values)
        for other in others:
            np.testing.assert_allclose(
                other[name].values, first[name].values, atol=1e-6 * largest, err_msg=name
            )


def test_observe_does_not_wait_for_the_device(tmp_path) -> None:
    model, long = net(), torch.randn(8192, 8192, device="cuda")
    with rs.Tracker(model, tmp_path / "run", schedule=1) as tracker:
        # The first launch of a kernel loads it, and CUDA may wait for the device to do so.
        tracker.observe(0, loss=(long @ long / 90).mean())
        tracker.flush()
        end = torch.cuda.Event()
        for _ in range(40):
            long = long @ long / 90
        tracker.observe(1, loss=long.mean())
        end.record()
        assert not end.query(), "the device was already idle when observe returned"


def test_trackers_take_no_stream_that_may_train(tmp_path) -> None:
    """torch hands out 32 streams in turn; a graph may be captured on any of them."""
    streams = {torch.cuda.Stream().cuda_stream for _ in range(64)}
    used = []

    class Looking:
        directions: ClassVar[dict[str, int]] = {}

        def __call__(self, tensors, directions):
            used.append(torch.cuda.current_stream().cuda_stream)
            return {}

    with rs.Tracker(
        net(), tmp_path / "run", schedule=1, device="cuda", probe=Looking(), strict=True
    ) as tracker:
        tracker.observe(0)
    assert len(used) == 1 and used[0] not in streams | {torch.cuda.default_stream().cuda_stream}


def test_capture_inside_paused(tmp_path) -> None:
    model, static = net(), torch.randn(64, 512, device="cuda")
    with rs.Tracker(model, tmp_path / "run", schedule=1, device="cuda", strict=True) as tracker:
        tracker.observe(0)
        with tracker.paused():
            model[0](static)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                model[0](static)
        graph.replay()
        tracker.observe(1)
    assert list(rs.open(tmp_path / "run").step.values) == [0, 1]
