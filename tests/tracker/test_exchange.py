"""Messages between ranks through a store: whole, in order, bounded, waited for with a limit."""

import threading

import pytest
import torch.distributed as dist

from rankscope.tracker import distributed, exchange
from rankscope.tracker.exchange import Exchange


def two(store: dist.Store | None = None) -> tuple[Exchange, Exchange]:
    store = store or dist.HashStore()
    return Exchange(store, rank=0, ranks=2), Exchange(store, rank=1, ranks=2)


@pytest.mark.parametrize("kind", ["hash", "file", "tcp"])
def test_messages_arrive_whole_and_in_order(tmp_path, kind, monkeypatch) -> None:
    monkeypatch.setattr(exchange, "CHUNK", 1000)
    if kind == "hash":
        store = dist.HashStore()
    elif kind == "file":
        store = dist.FileStore(str(tmp_path / "store"), 2)
    else:
        store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    here, there = two(dist.PrefixStore("some/path", store))
    messages = [b"", b"one", bytes(range(256)) * 40, b"x" * 1000, b"y" * 2000]
    for message in messages:
        here.send(1, memoryview(message))
        there.send(0, b"answer")
    assert [there.receive(0) for _ in messages] == messages
    assert here.receive(1) == b"answer"


def test_few_chunks_exist_at_a_time(monkeypatch) -> None:
    monkeypatch.setattr(exchange, "CHUNK", 10)
    monkeypatch.setattr(exchange, "MOST_CHUNKS", 3)
    store = dist.HashStore()
    here, there = two(store)
    message = bytes(range(250))
    sender = threading.Thread(target=here.send, args=(1, message))
    sender.start()
    most, parts = 0, []
    for chunk in there.chunks(0):
        most = max(most, store.num_keys())
        parts.append(chunk)
    sender.join()
    assert b"".join(parts) == message
    assert most <= 3 and store.num_keys() == 0


def test_a_rank_that_ends_is_told_after_what_it_sent() -> None:
    here, there = two()
    there.send(0, b"last")
    there.end("could not measure its share (OSError: broken)")
    there.end("has closed its tracker")
    assert here.receive(1) == b"last"
    with pytest.raises(RuntimeError, match=r"rank 1 could not measure .*broken"):
        here.receive(1)


@pytest.mark.parametrize("deed", ["receive", "send"])
def test_silence_has_its_limit(monkeypatch, deed: str) -> None:
    monkeypatch.setattr(distributed, "PATIENCE", 0.05)
    monkeypatch.setattr(exchange, "MOST_CHUNKS", 1)
    here, _ = two()
    with pytest.raises(RuntimeError, match=r"rank 1 .* silent for 0\.05 seconds"):
        if deed == "receive":
            here.receive(1)
        else:
            here.send(1, b"read")
            here.send(1, b"not read")


def test_a_rank_that_never_observes_is_told_as_soon_as_one_without_a_tracker(
    monkeypatch, tmp_path
) -> None:
    store, group = dist.HashStore(), dist.distributed_c10d
    monkeypatch.setattr(group, "_get_default_store", lambda: store)
    monkeypatch.setattr(dist, "get_world_size", lambda: 1)
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    meetings, waited = distributed.Meetings(tmp_path), []
    for _ in ("the tracker is made", "its first snapshot", "a later one"):
        assert meetings.absent() == []
        waited.append(meetings.patience)
    assert waited == [distributed.START_PATIENCE] * 2 + [distributed.PATIENCE]
