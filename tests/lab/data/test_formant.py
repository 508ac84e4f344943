import itertools

import pytest
import torch

from rankscope.lab.data.features import LogMel
from rankscope.lab.data.formant import (
    SIZE,
    SOUNDS,
    WORDS,
    FormantSpeech,
    filtered,
    resonance,
    speak,
    voice,
)
from rankscope.lab.data.speech import ALPHABET


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_words_are_spelled_in_sounds_that_differ() -> None:
    assert 50 <= len(set(WORDS)) == len(WORDS)
    assert set("".join(WORDS)) <= set(SOUNDS) and len(set(SOUNDS.values())) == len(SOUNDS) == 27
    assert not any(a == b for word in WORDS for a, b in itertools.pairwise(word))


def test_everything_comes_from_the_seed() -> None:
    before = torch.get_rng_state()
    first, same, other = (FormantSpeech(6, seed=seed).render() for seed in (3, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first.features, same.features)
    assert first.features.shape != other.features.shape or not torch.equal(
        first.features, other.features
    )


def test_utterances_are_one_or_two_words_with_frames_for_each_letter() -> None:
    speech = FormantSpeech(40).build(seed=0)
    assert len(speech.train) == 36 and len(speech.validation) == 4
    counts = set()
    for row, length in zip(
        speech.train.targets.tolist(), speech.train.target_lengths.tolist(), strict=True
    ):
        words = "".join(ALPHABET[i] for i in row[:length]).split(" ")
        counts.add(len(words))
        assert set(words) <= set(WORDS)
    assert counts == {1, 2}
    assert (speech.train.frame_lengths > speech.train.target_lengths).all()
    inside = torch.arange(speech.train.features.shape[1]) < speech.train.frame_lengths[:, None]
    assert torch.isfinite(speech.train.features).all()
    assert (speech.train.features[~inside] == 0).all()


def test_resonances_are_where_they_are_asked_for() -> None:
    formants = torch.tensor([[[500.0, 1500.0, 4000.0]]])
    shape = resonance(formants, rate=16000)[0, 0]
    peaks = [
        i for i in range(1, len(shape) - 1) if shape[i] > shape[i - 1] and shape[i] > shape[i + 1]
    ]
    assert [round(i * 16000 / SIZE) for i in peaks] == pytest.approx([500, 1500, 4000], abs=40)
    assert float(shape.square().mean()) == pytest.approx(1, rel=1e-5)


def test_a_voice_pulses_at_its_pitch_with_power_one() -> None:
    pulses = voice(250, 20, seeded(), rate=16000)  # 2 s
    counts = (pulses > 0).sum(1) / 2
    assert ((counts >= 95) & (counts <= 220)).all()
    torch.testing.assert_close(pulses.square().mean(1), torch.ones(20), atol=0.05, rtol=0)


def test_a_flat_filter_changes_only_the_loudness() -> None:
    source = torch.randn(2, 2048, generator=seeded())
    flat, loudness = torch.ones(2, 16, SIZE // 2 + 1), torch.tensor([[0.5], [2.0]]).expand(2, 16)
    inside = slice(SIZE, -SIZE)
    torch.testing.assert_close(
        filtered(source, flat, loudness)[:, inside],
        (source * loudness[:, :1])[:, inside],
        atol=1e-5,
        rtol=1e-4,
    )


def test_letters_have_the_spectra_of_their_sounds() -> None:
    """An s hisses above 4 kHz, an o sounds below 1 kHz, between words nothing does."""
    bank = LogMel()
    for text, lowest, highest in (("sssss", 4000, 8000), ("ooooo", 0, 1500)):
        (audio,) = speak([text], seeded())
        power = torch.fft.rfft(audio).abs().square()
        frequency = torch.linspace(0, 8000, len(power))
        within = power[(frequency >= lowest) & (frequency <= highest)].sum() / power.sum()
        assert within > 0.9
    (audio,) = speak(["o     o"], seeded())
    energies = bank.energies(audio).sum(1)
    assert energies[len(energies) // 2] < 0.01 * energies.max()


def test_impossible_declarations_are_refused() -> None:
    with pytest.raises(ValueError, match="utterances >= 2"):
        FormantSpeech(utterances=1)
