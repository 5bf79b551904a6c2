"""StreamDecoder: what it gives out, end to end, is what decode gives for all ids, and no piece is half a character."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from budget import examples
from hypothesis import given
from hypothesis import strategies as st

from cbpe import BasicTokenizer, GPT4Tokenizer, RegexTokenizer, StreamDecoder, UnknownIdError

pytestmark = pytest.mark.native

# bytes that begin, continue and spoil characters
nasty = st.lists(st.sampled_from(bytes.fromhex("41 80 A0 BD BF C0 C2 E0 E2 82 AC ED F0 9F 98 F4 FF")), max_size=12)


@examples(500)
@given(nasty, st.lists(st.integers(0, 12), max_size=5))
def test_pieces_end_to_end_are_decode_C44(ids: list[int], cuts: list[int]) -> None:
    tokenizer = BasicTokenizer()
    stream = StreamDecoder(tokenizer)
    for _ in range(2):                                          # after flush it begins anew
        assert "".join(map(stream.feed, ids)) + stream.flush() == tokenizer.decode(ids)
    borders = sorted({0, len(ids), *(cut for cut in cuts if cut < len(ids))})
    pieces = [ids[a:b] for a, b in itertools.pairwise(borders)]
    assert "".join(map(stream.feed, pieces)) + stream.flush() == tokenizer.decode(ids)


@examples(200)
@given(st.text("aé猫👍🏽 न\n1"))
def test_text_is_given_out_a_character_at_a_time(text: str) -> None:
    tokenizer = GPT4Tokenizer()
    stream = StreamDecoder(tokenizer)
    shown = ""
    for number in tokenizer.encode(text):
        shown += stream.feed(number)
        assert text.startswith(shown)                           # no U+FFFD in between
    assert shown == text
    assert stream.flush() == ""


def test_cases_of_unfinished_characters_C44() -> None:
    stream = StreamDecoder(BasicTokenizer())
    assert [stream.feed(i) for i in "€".encode()] == ["", "", "€"]
    assert stream.feed([0xE2, 0x82]) == ""
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""
    assert stream.feed(0xE2) + stream.feed(0x28) + stream.feed(0xA1) == "\ufffd(\ufffd"
    assert stream.flush() == ""


def test_whatever_holds_ids_C43() -> None:
    tokenizer = RegexTokenizer()
    tokenizer.register_special_tokens({"<e>": 300})
    stream = StreamDecoder(tokenizer)
    for ids in (97, np.uint16(97), np.array(97), [97], (97,), iter([97]), np.array([97], ">i4"), range(97, 98)):
        assert stream.feed(ids) == "a"
    assert stream.feed([]) == ""
    assert stream.feed(300) == "<e>"


def test_a_wrong_id_changes_nothing() -> None:
    stream = StreamDecoder(BasicTokenizer())
    assert stream.feed([0xE2, 0x82]) == ""
    for wrong in (256, -1, 2**40, [0xAC, 999]):
        with pytest.raises(UnknownIdError):
            stream.feed(wrong)
    for wrong in ("a", None, 97.5, [None]):
        with pytest.raises(TypeError):
            stream.feed(wrong)          # type: ignore[arg-type]
    assert stream.feed(0xAC) == "€"
