from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from rankscope.lab.data.mixed_speech import MixedSpeech
from rankscope.lab.data.speech import Speech, Utterances, encode, pad


def spoken(*texts: str) -> Utterances:
    """Three frames for every character; all hold the number of characters."""
    heard = [torch.full((3 * len(text), 2), float(len(text))) for text in texts]
    return pad(heard, [encode(text) for text in texts])


@dataclass(frozen=True)
class Given:
    train: tuple[str, ...]
    validation: tuple[str, ...]

    def build(self, *, folder: Path | None, seed: int) -> Speech:
        return Speech(spoken(*self.train), spoken(*self.validation))


LONG = Given(("abcde", "ab"), ("abcd", "abc"))
SHORT = Given(("b", "ba", "bac"), ("c",))


def same(one: Utterances, other: Utterances) -> bool:
    return all(map(torch.equal, one.tensors(), other.tensors()))


def test_all_parts_are_learnt_and_each_holds_out_its_own() -> None:
    speech = MixedSpeech((SHORT, LONG)).build(folder=None, seed=0)
    assert same(speech.train, spoken("b", "ba", "bac", "abcde", "ab"))
    assert same(speech.validation, spoken("c", "abcd", "abc"))


def test_what_is_too_long_is_left_out_and_no_padding_stays_for_it() -> None:
    speech = MixedSpeech((LONG, SHORT), longest=9).build(folder=None, seed=0)
    assert same(speech.train, spoken("ab", "b", "ba", "bac"))
    assert same(speech.validation, spoken("abc", "c"))


def test_a_part_that_is_left_out_whole_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="no utterance has at most 6 frames, the shortest has 9"):
        MixedSpeech((SHORT, LONG), longest=6).build(folder=None, seed=0)
    for parts, longest in (((), 5), ((SHORT,), 0)):
        with pytest.raises(ValueError, match="one part or more and longest >= 1"):
            MixedSpeech(parts, longest=longest)
