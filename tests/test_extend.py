"""Going on with merges that are known, on other chunks or after an interruption, against the slow twin."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import reference
from hypothesis import example, given
from hypothesis import strategies as st
from test_training import SPREADS, arrays, chunks_of_few_letters

from cbpe.training.merges import learn


def extended(counted, known, num_merges, min_frequency=1, spread=4.0):
    """What learn yields after the known merges: the merges, their counts, and how many tokens there are after each."""
    merges, counts = {}, []
    totals = [sum(len(chunk) * count for chunk, count in counted)]
    known = np.array(list(known), np.uint32).reshape(-1, 2)
    for pairs, pair_counts, removed in learn(*arrays(counted), num_merges, min_frequency, spread, known):
        counts += pair_counts.tolist()
        totals += [totals[-1] - removed[: i + 1].sum().item() for i in range(len(removed))]
        for pair in pairs.tolist():
            merges[tuple(pair)] = 256 + len(merges)
    return merges, counts, totals


@st.composite
def known_merges(draw):
    """Merges as a hand would make them: each of lower ids, and no pair twice."""
    merges = {}
    for _ in range(draw(st.integers(0, 12))):
        made = st.integers(256, 255 + len(merges)) if merges else st.sampled_from(b"ab")
        either = st.sampled_from(b"abc") | made
        merges.setdefault((draw(either), draw(either)), 256 + len(merges))
    return merges


def check(counted, known, num_merges, min_frequency, spread):
    num_merges = max(num_merges, len(known))
    merges, counts = reference.learn_counted(counted, num_merges, min_frequency, known)
    expected = merges, counts, reference.token_totals(counted, merges)
    assert extended(counted, known, num_merges, min_frequency, spread) == expected


@given(
    chunks_of_few_letters,
    known_merges(),
    st.integers(0, 40),
    st.sampled_from([1, 1, 2, 2**22]),
    st.sampled_from(SPREADS),
)
@example([(b"aaaaa", 2), (b"aabaa", 1)], {(97, 97): 256, (120, 121): 257, (256, 256): 258}, 10, 1, 0.0)
@example([], {(97, 97): 256}, 3, 1, 4.0)
@example([(b"ab", 1)], {(97, 98): 256, (256, 99): 257}, 9, 1, 4.0)
def test_known_merges_are_taken_as_encoding_takes_them(counted, known, num_merges, min_frequency, spread):
    check(counted, known, num_merges, min_frequency, spread)


@given(chunks_of_few_letters, chunks_of_few_letters, st.integers(0, 20), st.integers(0, 40), st.sampled_from(SPREADS))
def test_merges_of_one_corpus_are_continued_on_another(first, second, n_known, num_merges, spread):
    check(second, reference.learn_counted(first, n_known)[0], num_merges, 1, spread)


@given(chunks_of_few_letters, st.integers(0, 40), st.integers(0, 40), st.sampled_from([1, 1, 2]))
def test_merges_of_one_corpus_are_continued_on_the_same_as_if_never_interrupted(counted, n_known, num_merges, least):
    whole = extended(counted, {}, num_merges, least)
    known = list(whole[0])[:n_known]
    assert extended(counted, known, num_merges, least) == whole


@pytest.mark.parametrize("seed", range(3))
def test_longer_texts_are_continued(seed):
    rng = random.Random(seed)

    def words(letters):
        words = ["".join(rng.choices(letters, k=rng.randint(1, 9))).encode() for _ in range(150)]
        return [(word, rng.choice([1, 2, 50, 2**23])) for word in dict.fromkeys(words)]

    known = reference.learn_counted(words("abcdefgh"), 150)[0]
    check(words("abcdefghijkl"), known, 250, 1, SPREADS[seed])


def test_merges_that_do_not_occur_take_their_places():
    known = [tuple(pair) for pair in itertools.product(range(256, 266), range(97, 107))]
    known = [(97, 98), (97, 99), *known[:60]]
    merges, counts, totals = extended([(b"cdcd", 5)], known, 1000)
    assert list(merges)[:62] == known
    assert counts[:62] == [0] * 62
    assert totals[:63] == [20] * 63
    assert list(merges)[62:] == [(99, 100), (318, 318)]
