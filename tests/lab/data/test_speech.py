import io
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
import torch

from rankscope.lab.data.features import LogMel
from rankscope.lab.data.speech import ALPHABET, LibriSpeech, decode, encode, held_out, pad


def sound(samples: int, rate: int = 16000, channels: int = 1) -> bytes:
    noise = np.random.default_rng(samples).uniform(-0.5, 0.5, (samples, channels))
    buffer = io.BytesIO()
    soundfile.write(buffer, noise.squeeze(), rate, format="FLAC")
    return buffer.getvalue()


def write(folder: Path, split: str, rows: list[tuple[bytes, str]], file: str = "0000") -> None:
    path = folder / "openslr/librispeech_asr/all" / split / f"{file}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    audio = [{"bytes": data, "path": "a.flac"} for data, _ in rows]
    pq.write_table(pa.table({"audio": audio, "text": [text for _, text in rows]}), path)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKSCOPE_CACHE", str(tmp_path / "cache"))


def test_the_alphabet_is_the_papers() -> None:
    assert len(ALPHABET) == 29 and len(set(ALPHABET)) == 29
    assert encode("A z'") == [2, 1, 27, 28]
    assert decode(encode("It's two")) == "it's two"
    with pytest.raises(ValueError, match=r"characters \['3', 'é'\] of 'é 3'"):
        encode("é 3")


def test_utterances_are_padded_to_the_longest() -> None:
    found = pad([torch.ones(2, 3), torch.ones(4, 3)], ["abc", "z"])
    assert found.features[:, :, 0].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert found.frame_lengths.tolist() == [2, 4]
    assert found.targets.tolist() == [[2, 3, 4], [27, 0, 0]]
    assert found.target_lengths.tolist() == [3, 1]


def test_librispeech_is_read_in_order_of_its_shards(tmp_path: Path) -> None:
    texts = ["HE SAID", "IT'S", "NO"]
    sounds = [sound(2000), sound(1600), sound(3000)]
    write(tmp_path, "train.clean.5", list(zip(sounds[:2], texts[:2], strict=True)))
    write(tmp_path, "train.clean.5", [(sounds[2], texts[2])], file="0001")
    write(tmp_path, "validation.clean", [(sounds[1], texts[1])])
    for _ in range(2):  # decoded, then from the cache
        speech = LibriSpeech("train.clean.5").build(folder=tmp_path, seed=0)
        rows = zip(*(t.tolist() for t in speech.train.tensors()[2:]), strict=True)
        assert [decode(row[:length]) for row, length in rows] == ["he said", "it's", "no"]
        for i, data in enumerate(sounds):
            samples = torch.from_numpy(soundfile.read(io.BytesIO(data), dtype="float32")[0])
            length = int(speech.train.frame_lengths[i])
            torch.testing.assert_close(speech.train.features[i, :length], LogMel()(samples))
            assert (speech.train.features[i, length:] == 0).all()
        assert speech.validation.target_lengths.tolist() == [4]


def test_a_tenth_is_held_out_by_the_seed() -> None:
    frames = [torch.full((1, 1), float(i)) for i in range(30)]
    whole = pad(frames, ["a"] * 30)
    first, same, other = (held_out(whole, share=0.1, seed=seed) for seed in (1, 1, 2))
    both = torch.cat([first.train.features, first.validation.features]).flatten()
    assert len(first.validation) == 3 and sorted(both.tolist()) == list(range(30))
    assert torch.equal(first.validation.features, same.validation.features)
    assert not torch.equal(first.validation.features, other.validation.features)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (sound(2000)[:60] + b"broken", r"0000.parquet, row 1: not readable as audio .* again"),
        (sound(2000, rate=8000), r"row 1: expected one channel at 16000 Hz, got 1 at 8000 Hz"),
        (sound(2000, channels=2), r"row 1: expected one channel at 16000 Hz, got 2 at 16000 Hz"),
    ],
)
def test_what_is_no_speech_is_named_by_file_and_row(
    data: bytes, message: str, tmp_path: Path
) -> None:
    write(tmp_path, "train.clean.5", [(sound(2000), "A"), (data, "B")])
    with pytest.raises(ValueError, match=message):
        LibriSpeech("train.clean.5", validation=None).build(folder=tmp_path, seed=0)


@pytest.mark.skipif("RANKSCOPE_DATA" not in os.environ, reason="RANKSCOPE_DATA is not set")
def test_the_real_sample() -> None:
    speech = LibriSpeech("train.clean.5", validation=None).build(
        folder=Path(os.environ["RANKSCOPE_DATA"]), seed=0
    )
    # 154 utterances of 12.8 minutes in all, 100 frames a second
    frames = int(speech.train.frame_lengths.sum() + speech.validation.frame_lengths.sum())
    assert len(speech.train) + len(speech.validation) == 154
    assert frames / 6000 == pytest.approx(12.8, abs=0.1)
