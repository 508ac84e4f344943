import math

import pytest
import torch

from rankscope.lab.data.features import LogMel, filter_bank, hertz, mel


def tone(frequency: float, seconds: float = 0.5) -> torch.Tensor:
    return torch.sin(2 * math.pi * frequency * torch.arange(int(16000 * seconds)) / 16000)


@pytest.mark.parametrize("filter", [3, 12, 25, 39])
def test_a_tone_sounds_in_the_filter_around_it(filter: int) -> None:
    centre = 700 * (10 ** ((filter + 1) * 2595 * math.log10(1 + 8000 / 700) / 41 / 2595) - 1)
    energies = LogMel().energies(tone(centre))
    assert (energies.argmax(1) == filter).all()


def test_filters_share_every_frequency_out() -> None:
    bank = filter_bank(40, 512, rate=16000)
    assert bank.shape == (40, 257) and (bank >= 0).all() and (bank.sum(1) > 0).all()
    frequency = torch.arange(257) * 31.25
    first, last = (700 * (10 ** (i * math.log10(1 + 8000 / 700) / 41) - 1) for i in (1, 40))
    between = (frequency >= first) & (frequency <= last)
    torch.testing.assert_close(
        bank.sum(0)[between], torch.ones(int(between.sum()), dtype=torch.float64)
    )


def test_the_mel_scale_is_the_usual_one() -> None:
    # 1000 Hz are about 1000 mel: the scale is made so.
    assert float(mel(torch.tensor(1000.0))) == pytest.approx(1000, abs=0.1)
    frequencies = torch.tensor([0.0, 440.0, 8000.0])
    torch.testing.assert_close(hertz(mel(frequencies)), frequencies, atol=1e-2, rtol=1e-4)


def test_energies_are_the_windowed_transform_written_out() -> None:
    audio = torch.randn(900, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    energies = LogMel().energies(audio)
    window = 0.5 - 0.5 * torch.cos(2 * math.pi * torch.arange(400).double() / 400)
    assert energies.shape == (4, 40)
    for frame, row in enumerate(energies):
        power = torch.fft.rfft(window * audio[160 * frame : 160 * frame + 400], n=512).abs() ** 2
        torch.testing.assert_close(row, filter_bank(40, 512, rate=16000) @ power)


@pytest.mark.parametrize("samples", [400, 559, 560, 16000])
def test_frames_are_the_whole_windows(samples: int) -> None:
    starts = [start for start in range(0, samples, 160) if start + 400 <= samples]
    assert LogMel()(torch.ones(samples)).shape == (len(starts), 40)


def test_each_filter_is_centred_and_scaled_whatever_the_loudness() -> None:
    audio = torch.randn(8000, generator=torch.Generator().manual_seed(1))
    features = LogMel()(audio)
    torch.testing.assert_close(features.mean(0), torch.zeros(40), atol=1e-4, rtol=0)
    torch.testing.assert_close(features.square().mean(0), torch.ones(40), atol=1e-3, rtol=0)
    torch.testing.assert_close(LogMel()(7 * audio), features, atol=1e-3, rtol=1e-3)


def test_silence_gives_zeros() -> None:
    assert (LogMel()(torch.zeros(1000)) == 0).all()


def test_what_is_too_short_or_impossible_is_named() -> None:
    with pytest.raises(ValueError, match="at least one window of 400 samples long, got 399"):
        LogMel()(torch.zeros(399))
    with pytest.raises(ValueError, match="must be positive"):
        LogMel(hop=0.0)
