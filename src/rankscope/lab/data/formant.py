"""Synthetic speech from words: a source-filter synthesiser with one sound per letter.

Voice pulses and noise pass through three resonators whose frequencies glide from letter to letter.
Pitch, vocal tract, tempo and hiss differ between speakers. Words sound as they are spelled, so a
small recogniser can learn them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from rankscope.lab.data.features import LogMel
from rankscope.lab.data.speech import Speech, Utterances, encode, held_out, pad

# No doubled letters: without a gap they sound like one long letter.
LIST = (
    "a and as at big blue but by can cat come day do dog down eat find fish for from game gold "
    "hand he her him his home hot hour house i in it jump just king know lake last life like live "
    "long love make man milk month more move my name new night no not now of old on one open or "
    "over own put quick red river run said say she ship sing six so star stone sun take tax ten "
    "than that the they this time to two under up us very walk want was water way we west what "
    "white who wind with wolf word work year yes you zero zone"
)
WORDS = tuple(LIST.split())
STEP = 128  # samples between two settings of the synthesiser, 8 ms at 16 kHz
SIZE = 4 * STEP  # samples in one filter window


class Sound(NamedTuple):
    """Loudness of voice and noise, and resonances in Hz; a stop is silent before it bursts."""

    voice: float
    noise: float
    formants: tuple[float, float, float]
    stop: bool = False


SILENCE = Sound(0.0, 0.0, (500, 1500, 2500))
SOUNDS = {
    " ": SILENCE,
    "a": Sound(1.0, 0.0, (730, 1090, 2440)),
    "b": Sound(0.5, 0.1, (200, 900, 2200), stop=True),
    "c": Sound(0.0, 0.4, (1800, 3300, 4500)),
    "d": Sound(0.5, 0.1, (200, 1700, 2700), stop=True),
    "e": Sound(0.9, 0.0, (530, 1840, 2480)),
    "f": Sound(0.0, 0.2, (1000, 4500, 7400)),
    "g": Sound(0.5, 0.1, (250, 2200, 2400), stop=True),
    "h": Sound(0.0, 0.3, (600, 1400, 2500)),
    "i": Sound(0.8, 0.0, (290, 2290, 3010)),
    "j": Sound(0.4, 0.3, (300, 2400, 3400)),
    "k": Sound(0.0, 0.5, (900, 1900, 2300), stop=True),
    "l": Sound(0.6, 0.0, (360, 1200, 2900)),
    "m": Sound(0.4, 0.0, (250, 950, 2200)),
    "n": Sound(0.4, 0.0, (280, 1600, 2600)),
    "o": Sound(1.0, 0.0, (520, 800, 2410)),
    "p": Sound(0.0, 0.5, (500, 900, 1800), stop=True),
    "q": Sound(0.0, 0.5, (400, 1300, 3000), stop=True),
    "r": Sound(0.7, 0.0, (430, 1300, 1650)),
    "s": Sound(0.0, 0.5, (4800, 5900, 7000)),
    "t": Sound(0.0, 0.5, (3000, 4000, 5500), stop=True),
    "u": Sound(0.9, 0.0, (320, 680, 2240)),
    "v": Sound(0.4, 0.15, (240, 1100, 4500)),
    "w": Sound(0.6, 0.0, (290, 600, 3300)),
    "x": Sound(0.0, 0.4, (2200, 2700, 6500)),
    "y": Sound(0.7, 0.0, (280, 2050, 3500)),
    "z": Sound(0.35, 0.35, (260, 5000, 6500)),
}


@dataclass(frozen=True)
class FormantSpeech:
    """`utterances` of one to `words` random words each; a random tenth is held out.

    Held-out utterances are other renderings of the same words, mostly in other combinations.
    seed: of the audio; the seed of the run draws the held-out utterances.
    """

    utterances: int = 400
    words: int = 2
    mel: LogMel = LogMel(hop=0.02)  # noqa: RUF009
    validation_share: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.utterances < 2 or self.words < 1 or not 0 < self.validation_share < 1:
            raise ValueError(
                f"expected utterances >= 2, words >= 1, 0 < validation_share < 1, got {self}"
            )

    def build(self, *, folder: Path | None = None, seed: int) -> Speech:
        """Synthesise the speech; `folder` is ignored."""
        return held_out(self.render(), share=self.validation_share, seed=seed)

    def render(self) -> Utterances:
        generator = torch.Generator().manual_seed(self.seed)
        texts = [draw_text(self.words, generator) for _ in range(self.utterances)]
        audio = [
            samples
            for start in range(0, len(texts), 64)  # bounds the memory
            for samples in speak(texts[start : start + 64], generator, rate=self.mel.rate)
        ]
        return pad([self.mel(samples) for samples in audio], [encode(text) for text in texts])


def draw_text(most: int, generator: torch.Generator) -> str:
    count = int(torch.randint(1, most + 1, (), generator=generator))
    chosen = torch.randint(len(WORDS), (count,), generator=generator)
    return " ".join(WORDS[i] for i in chosen)


def speak(
    texts: Sequence[str], generator: torch.Generator, *, rate: int = 16000
) -> list[Float[Tensor, " samples"]]:
    """Synthesise audio of each text, with a random speaker for each."""
    tracks = [settings(text, generator, rate=rate) for text in texts]
    padded = torch.stack(
        [F.pad(track, (0, 0, 0, max(map(len, tracks)) - len(track))) for track in tracks]
    )  # (n, steps, 5), silent after the end
    tract = uniform(0.9, 1.1, (len(texts), 1, 1), generator)
    sources = voice(padded.shape[1], len(texts), generator, rate=rate)
    hiss = torch.randn(sources.shape, generator=generator)
    shape = resonance(padded[..., 2:].clamp(min=100) * tract, rate=rate)  # (n, steps, bins)
    audio = filtered(sources, shape * tilt(rate), padded[..., 0])
    audio = audio + filtered(hiss, shape, padded[..., 1])
    room = torch.randn(audio.shape, generator=generator)
    audio = 0.1 * (audio + uniform(0.003, 0.03, (len(texts), 1), generator) * room)
    return [row[: len(track) * STEP] for row, track in zip(audio, tracks, strict=True)]


def settings(text: str, generator: torch.Generator, *, rate: int) -> Float[Tensor, "steps 5"]:
    """Voice, noise and three resonances at each step, with glides of 40 ms between sounds.

    A letter lasts 75 ms on average. Tempo varies by a fifth between speakers, and the length of
    letters by a fifth more.
    """
    silent = torch.tensor([0.0, 0.0, *SILENCE.formants])
    tempo = float(uniform(0.8, 1.2, (1,), generator))
    lengths = 0.075 * rate / STEP * tempo * uniform(0.8, 1.2, (len(text),), generator)
    parts = [silent.expand(4, 5)]
    for letter, length in zip(text, lengths.tolist(), strict=True):
        sound = SOUNDS[letter]
        row = torch.tensor([sound.voice, sound.noise, *sound.formants])
        closed = round(0.4 * length) if sound.stop else 0
        parts += [
            (row * torch.tensor([0.0, 0.0, 1, 1, 1])).expand(closed, 5),
            row.expand(round(length) - closed, 5),
        ]
    targets = torch.cat([*parts, silent.expand(4, 5)])
    kernel = torch.hann_window(7, periodic=False)[1:-1]  # (5,): 40 ms
    padded = F.pad(targets.T[:, None], (2, 2), mode="replicate")  # (5, 1, steps + 4)
    return F.conv1d(padded, (kernel / kernel.sum())[None, None])[:, 0].T


def voice(
    steps: int, n: int, generator: torch.Generator, *, rate: int
) -> Float[Tensor, "n samples"]:
    """Pulses of mean power 1, with a pitch that falls by a fifth and trembles a little."""
    time = torch.arange(steps * STEP)[None] / rate
    pitch = 100 * 2 ** uniform(0.0, 1.1, (n, 1), generator)
    tremble = torch.sin(2 * math.pi * (5 * time + uniform(0.0, 1.0, (n, 1), generator)))
    pitch = pitch * (1.1 - 0.2 * time / time[0, -1]) * (1 + 0.02 * tremble)
    cycles = (pitch.double() / rate).cumsum(1).floor()
    pulses = cycles.diff(dim=1, prepend=torch.zeros(n, 1, dtype=torch.float64))
    return (pulses * (rate / pitch).sqrt()).float()


def resonance(
    formants: Float[Tensor, "n steps formants"], *, rate: int
) -> Float[Tensor, "n steps bins"]:
    """|H(f)| of a chain of resonators 1 / (1 - 2 r cos(w) z + r^2 z^2), with mean power 1.

    There is one resonator per formant, 80 Hz plus a twentieth of its frequency wide.
    """
    z = torch.exp(-2j * math.pi * torch.arange(SIZE // 2 + 1) / SIZE)
    shape = torch.ones(*formants.shape[:-1], len(z))
    for frequency in formants.clamp(max=0.49 * rate).unbind(-1):
        r = torch.exp(-math.pi * (80 + frequency / 20) / rate)[..., None]
        cosine = torch.cos(2 * math.pi * frequency / rate)[..., None]
        shape = shape / (1 - 2 * r * cosine * z + r**2 * z**2).abs()
    return shape / shape.square().mean(-1, keepdim=True).sqrt()


def tilt(rate: int) -> Float[Tensor, " bins"]:
    """Spectrum of a voice, which falls by 6 dB an octave above 700 Hz."""
    frequency = torch.arange(SIZE // 2 + 1) * rate / SIZE
    return (1 + (frequency / 700) ** 2).rsqrt()


def filtered(
    source: Float[Tensor, "n samples"],
    shape: Float[Tensor, "n steps bins"],
    loudness: Float[Tensor, "n steps"],
) -> Float[Tensor, "n samples"]:
    """Filter the source in overlapping windows, with another filter at every step."""
    window = torch.hann_window(SIZE)
    spectrum = torch.stft(
        source, SIZE, STEP, window=window, center=True, pad_mode="constant", return_complex=True
    )  # (n, bins, steps + 1)
    gain = F.pad((shape * loudness[..., None]).mT, (0, 1))
    return torch.istft(spectrum * gain, SIZE, STEP, window=window, length=source.shape[1])


def uniform(
    low: float, high: float, shape: tuple[int, ...], generator: torch.Generator
) -> Float[Tensor, "..."]:
    return low + (high - low) * torch.rand(shape, generator=generator)
