"""Log-mel features of speech, the inputs of the recogniser of yunis2024 (app. C.3)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

FLOOR = 1e-8  # smallest energy, below the hiss of a quiet recording; avoids log 0


@dataclass(frozen=True)
class LogMel:
    """Log energies in triangular filters, centred and scaled over each utterance.

    The defaults are the paper's: 40 filters, a window of 25 ms every 10 ms, audio at 16 kHz.
    """

    filters: int = 40
    window: float = 0.025
    hop: float = 0.01
    rate: int = 16000

    def __post_init__(self) -> None:
        if min(self.filters, self.rate, self.hop_samples) < 1 or self.window_samples < 2:
            raise ValueError(f"filters, window, hop and rate must be positive, got {self}")

    @property
    def window_samples(self) -> int:
        return round(self.window * self.rate)

    @property
    def hop_samples(self) -> int:
        return round(self.hop * self.rate)

    def __call__(self, audio: Float[Tensor, " samples"]) -> Float[Tensor, "frames filters"]:
        """(x - mean) / deviation over frames, for x = log(energy) of each filter.

        There are 1 + (samples - window) // hop frames, as many as whole windows fit. A filter with
        constant energy gives zeros.
        """
        if len(audio) < self.window_samples:
            raise ValueError(
                f"audio must be at least one window of {self.window_samples} samples long, got "
                f"{len(audio)}; leave it out"
            )
        x = self.energies(audio).clamp(min=FLOOR).log()
        deviation = x.std(0, correction=0)
        return (x - x.mean(0)) / torch.where(deviation > 1e-5, deviation, 1.0)

    def energies(self, audio: Float[Tensor, " samples"]) -> Float[Tensor, "frames filters"]:
        """Power spectrum of each Hann window, summed in each filter."""
        size = 1 << (self.window_samples - 1).bit_length()  # 512 for 400: bins every 31 Hz
        # stft centres the window in `size` samples. With this padding the first window begins at
        # the first sample and the last one ends inside the audio.
        before = (size - self.window_samples) // 2
        padded = torch.nn.functional.pad(audio, (before, size - self.window_samples - before))
        spectrum = torch.stft(
            padded,
            n_fft=size,
            hop_length=self.hop_samples,
            win_length=self.window_samples,
            window=torch.hann_window(self.window_samples, dtype=audio.dtype, device=audio.device),
            center=False,
            return_complex=True,
        )  # (bins, frames)
        bank = filter_bank(self.filters, size, rate=self.rate).to(audio)
        return spectrum.abs().square().mT @ bank.mT


def filter_bank(filters: int, size: int, *, rate: int) -> Float[Tensor, "filters bins"]:
    """Triangles of height 1 over the bins of a Fourier transform of `size` samples.

    Corners are equally spaced from 0 to rate / 2 on the scale mel(f) = 2595 log10(1 + f/700). Each
    triangle rises from the centre of the one below and falls to the centre of the one above,
    linearly in f. Between the first and the last centre the filters sum to 1.
    """
    top = mel(torch.tensor(rate / 2, dtype=torch.float64))
    corners = hertz(torch.linspace(0, float(top), filters + 2, dtype=torch.float64))
    frequency = torch.linspace(0, rate / 2, size // 2 + 1, dtype=torch.float64)
    below, centre, above = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    rise, fall = (frequency - below) / (centre - below), (above - frequency) / (above - centre)
    return torch.minimum(rise, fall).clamp(min=0)


def mel(frequency: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    return 2595 * torch.log10(1 + frequency / 700)


def hertz(mels: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """The inverse of `mel`."""
    return 700 * (10 ** (mels / 2595) - 1)
