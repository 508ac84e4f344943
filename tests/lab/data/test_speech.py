import io
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import soundfile
import torch

from lab.data.parquet import encoded_column
from lab.data.parquet import write as write_columns
from rankscope.lab.data.features import LogMel
from rankscope.lab.data.speech import ALPHABET, LibriSpeech, encode, held_out, pad, too_short


def sound(samples: int, rate: int = 16000, channels: int = 1) -> bytes:
    noise = np.random.default_rng(samples).uniform(-0.5, 0.5, (samples, channels))
    buffer = io.BytesIO()
    soundfile.write(buffer, noise.squeeze(), rate, format="FLAC")
    return buffer.getvalue()


Row = tuple[bytes | None, str | None]


def write(folder: Path, split: str, rows: list[Row], file: str = "0000") -> None:
    path = folder / "openslr/librispeech_asr/all" / split / f"{file}.parquet"
    text = pa.array([text for _, text in rows], pa.string())
    write_columns(path, audio=encoded_column([data for data, _ in rows]), text=text)


def test_the_alphabet_is_the_papers() -> None:
    assert len(ALPHABET) == 29 and len(set(ALPHABET)) == 29
    assert encode("A z'").tolist() == [2, 1, 27, 28]
    assert [ALPHABET[i] for i in encode("It's two")] == list("it's two")
    assert encode("").dtype == torch.int64
    with pytest.raises(ValueError, match=r"characters \['3', 'é'\] of 'é 3'"):
        encode("é 3")


def test_utterances_are_padded_to_the_longest() -> None:
    padded = pad([torch.ones(2, 3), torch.ones(4, 3)], [encode("abc"), encode("z")])
    assert padded.features[:, :, 0].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert padded.frame_lengths.tolist() == [2, 4]
    assert padded.targets.tolist() == [[2, 3, 4], [27, 0, 0]]
    assert padded.target_lengths.tolist() == [3, 1]
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        pad([torch.ones(2, 3), torch.ones(4, 3)], [encode("abc")])


def test_texts_without_the_frames_for_them_are_found() -> None:
    # aa needs a blank between its letters: three frames; a text that ends needs none after it
    texts = ["ab", "aa", "", "a", "aab", "abba"]
    frames = [2, 2, 2, 2, 4, 4]
    utterances = pad([torch.zeros(count, 1) for count in frames], [encode(text) for text in texts])
    assert too_short(utterances) == [1, 2, 5]
    assert too_short(pad([torch.zeros(2, 1)], [encode("")])) == [0]


def test_librispeech_is_read_in_order_of_its_shards(tmp_path: Path) -> None:
    texts = ["HE SAID", "IT'S", "NO"]
    sounds = [sound(2000), sound(1600), sound(3000)]
    write(tmp_path, "train.clean.5", list(zip(sounds[:2], texts[:2], strict=True)))
    write(tmp_path, "train.clean.5", [(sounds[2], texts[2])], file="0001")
    write(tmp_path, "validation.clean", [(sounds[1], texts[1])])
    for _ in range(2):  # decoded, then from the cache
        speech = LibriSpeech("train.clean.5").build(folder=tmp_path, seed=0)
        rows = zip(*(t.tolist() for t in speech.train.tensors()[2:]), strict=True)
        texts = ["".join(ALPHABET[i] for i in row[:length]) for row, length in rows]
        assert texts == ["he said", "it's", "no"]
        for i, data in enumerate(sounds):
            samples = torch.from_numpy(soundfile.read(io.BytesIO(data), dtype="float32")[0])
            length = int(speech.train.frame_lengths[i])
            torch.testing.assert_close(speech.train.features[i, :length], LogMel()(samples))
            assert (speech.train.features[i, length:] == 0).all()
        assert speech.validation.target_lengths.tolist() == [4]


def test_a_tenth_is_held_out_by_the_seed() -> None:
    frames = [torch.full((1, 1), float(i)) for i in range(30)]
    whole = pad(frames, [encode("a")] * 30)
    first, same, other = (held_out(whole, share=0.1, seed=seed) for seed in (1, 1, 2))
    both = torch.cat([first.train.features, first.validation.features]).flatten()
    assert len(first.validation) == 3 and sorted(both.tolist()) == list(range(30))
    assert torch.equal(first.validation.features, same.validation.features)
    assert not torch.equal(first.validation.features, other.validation.features)


@pytest.mark.parametrize(
    ("data", "text", "message"),
    [
        (sound(2000)[:60] + b"broken", "B", r"not readable as audio .*; delete it and download"),
        (
            sound(2000, rate=8000),
            "B",
            r"expected one channel at 16000 Hz, got 1 at 8000 .* convert",
        ),
        (sound(2000, channels=2), "B", r"expected one channel .*, got 2 at 16000 Hz; convert it"),
        (sound(399), "B", r"at least one window of 400 samples long, got 399; leave it out"),
        (None, "B", r"no audio; delete it and download it again"),
        (sound(2000), None, r"expected a transcript, got None; delete it and download it again"),
        (sound(2000), "", r"expected a transcript, got ''; delete it and download it again"),
        (sound(2000), "AT 9", r"characters \['9'\] of 'AT 9' are not in the .*; spell them out"),
        (sound(2000), "A\nB", r"characters \['\\n'\] of 'A\\nB' are not in the .*; spell them out"),
        (sound(720), "BOOK", r"3 frames are too few for 'BOOK'; leave it out, or take a shorter"),
    ],
)
def test_what_is_no_speech_is_named_by_file_and_row(
    data: bytes | None, text: str | None, message: str, tmp_path: Path
) -> None:
    write(tmp_path, "train.clean.5", [(sound(2000), "A")])
    write(tmp_path, "train.clean.5", [(sound(2000), "A"), (data, text)], file="0001")
    with pytest.raises(ValueError, match=r"train.clean.5/0001.parquet, row 1: .*" + message):
        LibriSpeech("train.clean.5", validation=None).build(folder=tmp_path, seed=0)
    assert not (tmp_path / "cache").exists()  # nothing of it is kept


def test_who_lacks_the_sample_is_told_of_the_full_set(tmp_path: Path) -> None:
    write(tmp_path, "validation.clean", [(sound(2000), "A")])
    full = r'the full set is LibriSpeech\("train.clean.100", "validation.clean"\)'
    with pytest.raises(ValueError, match=r"no split 'train.clean.5' of 'all', .*" + full):
        LibriSpeech("train.clean.5").build(folder=tmp_path, seed=0)
    with pytest.raises(ValueError, match=r"no split 'train.clean.100' of 'all', .*[^)]$"):
        LibriSpeech().build(folder=tmp_path, seed=0)


def test_cache_knows_every_field_of_the_features(tmp_path: Path) -> None:
    write(tmp_path, "validation.clean", [(sound(2000), "A")])
    data = LibriSpeech("validation.clean", validation=None)
    data.read("validation.clean", folder=tmp_path)
    for name, value in {"filters": 20, "window": 0.02, "hop": 0.02}.items():
        other = replace(data, mel=replace(data.mel, **{name: value}))
        samples = torch.from_numpy(soundfile.read(io.BytesIO(sound(2000)), dtype="float32")[0])
        features = other.read("validation.clean", folder=tmp_path).features[0]
        torch.testing.assert_close(features, other.mel(samples))
    with pytest.raises(ValueError, match="expected one channel at 8000 Hz, got 1 at 16000"):
        replace(data, mel=LogMel(rate=8000)).read("validation.clean", folder=tmp_path)


@pytest.mark.skipif("RANKSCOPE_DATA" not in os.environ, reason="RANKSCOPE_DATA is not set")
def test_the_real_sample() -> None:
    speech = LibriSpeech("train.clean.5", validation=None).build(
        folder=Path(os.environ["RANKSCOPE_DATA"]), seed=0
    )
    # 154 utterances of 12.8 minutes in all, 100 frames a second
    frames = int(speech.train.frame_lengths.sum() + speech.validation.frame_lengths.sum())
    assert len(speech.train) + len(speech.validation) == 154
    assert frames / 6000 == pytest.approx(12.8, abs=0.1)
