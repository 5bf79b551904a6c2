"""Merges: what is learned from counted chunks, against the slow twin, and the bounds that keep it safe."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
import reference
from hypothesis import example, given
from hypothesis import strategies as st

from cbpe.errors import CorpusTooLargeError
from cbpe.training import ChunkStore, learn_merges
from cbpe.training.merges import learn
from cbpe.training.pairs import MAX_CELLS, Arena

pytestmark = pytest.mark.native

# How far above its threshold a stage starts: 0 and 0.2 begin a stage nearly every merge, 1e9 watches every pair.
SPREADS = (0.0, 0.2, 4.0, 1e9)


def arrays(counted):
    chunks = [chunk for chunk, _ in counted]
    counts = np.array([count for _, count in counted], np.uint64)
    offsets = np.cumsum([0, *map(len, chunks)]).astype(np.uint64)
    return counts, offsets, np.frombuffer(b"".join(chunks), np.uint8)


def learned(counted, num_merges, min_frequency=1, spread=4.0):
    """What learn yields, in the form in which reference.learn_counted gives it."""
    merges, counts = {}, []
    for pairs, pair_counts, _ in learn(*arrays(counted), num_merges, min_frequency, spread):
        for (left, right), count in zip(pairs.tolist(), pair_counts.tolist(), strict=True):
            merges[left, right] = 256 + len(merges)
            counts.append(count)
    return merges, counts


def store_of(counted, pattern=None):
    counts, offsets, data = arrays(counted)
    return ChunkStore(pattern, counts, np.arange(len(counted), dtype=np.uint64), offsets, data)


# Few letters, so that ties and runs are common; duplicates become counts, as in a store.
chunks_of_few_letters = st.dictionaries(
    st.text(alphabet="ab", max_size=40).map(str.encode) | st.text(alphabet="abcd", max_size=12).map(str.encode),
    st.integers(1, 3) | st.sampled_from([2**21, 2**22 - 1, 2**22, 3_000_000_000, 2**32 + 3, 2**53 + 1]),
    max_size=12,
).map(lambda counted: list(counted.items()))


@given(chunks_of_few_letters, st.integers(0, 60), st.sampled_from([1, 1, 2, 5, 2**22]), st.sampled_from(SPREADS))
@example([(b"aaaa", 1)], 10, 1, 0.0)
@example([(b"abababab", 1), (b"ba", 7)], 10, 1, 0.0)
@example([(b"cba", 3_000_000_000), (b"ccaba", 2), (b"cbb", 4_194_304)], 100, 1, 0.2)
def test_merges_are_the_reference_s(counted, num_merges, min_frequency, spread):
    expected = reference.learn_counted(counted, num_merges, min_frequency)
    assert learned(counted, num_merges, min_frequency, spread) == expected


@given(chunks_of_few_letters, st.integers(0, 60), st.sampled_from(SPREADS))
@example([(b"aaa", 2), (b"aaaa", 2**53), (b"baaaaab", 1)], 10, 0.0)
def test_each_merge_removes_what_encoding_with_it_does(counted, num_merges, spread):
    merges, removed = {}, []
    for pairs, _, more in learn(*arrays(counted), num_merges, 1, spread):
        removed += more.tolist()
        for pair in pairs.tolist():
            merges[tuple(pair)] = 256 + len(merges)
    totals = reference.token_totals(counted, merges)
    assert removed == [before - after for before, after in itertools.pairwise(totals)]


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("seed", range(4))
def test_merges_are_the_reference_s_on_longer_text(seed, spread):
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefgh", k=rng.randint(1, 9))) for _ in range(200)]
    counted = {}
    for word in rng.choices(words, k=2000):
        counted[word.encode()] = counted.get(word.encode(), 0) + 1
    counted = list(counted.items())
    expected = reference.learn_counted(counted, 300)
    assert learned(counted, 300, spread=spread) == expected


@pytest.mark.parametrize(("scan", "steps"), [(1, 1), (7, 40), (100, 3)])
@pytest.mark.parametrize("spread", [0.2, 4.0])
def test_looks_around_leave_no_trace(monkeypatch, scan, steps, spread):
    rng = random.Random(scan)
    words = sorted({"".join(rng.choices("abcd", k=rng.randint(1, 12))).encode() for _ in range(80)})
    counted = [(word, rng.choice([1, 2, 3, 2**22, 2**33])) for word in words]
    pairs = list(learned(counted, 60)[0])
    known = np.array(pairs[:20], np.uint32)
    for begun in (None, known):
        expected = list(learn(*arrays(counted), 120, spread=spread, known=begun))
        monkeypatch.setattr("cbpe.training.merges.SCAN", scan)
        monkeypatch.setattr("cbpe.training.merges.STEPS", steps)
        in_steps = list(learn(*arrays(counted), 120, spread=spread, known=begun))
        monkeypatch.undo()
        assert len(in_steps) > len(expected) + 5
        for column in range(3):
            right, found = (np.concatenate([batch[column] for batch in batches]) for batches in (expected, in_steps))
            assert found.tolist() == right.tolist()
    assert learned(counted, 120, spread=spread) == reference.learn_counted(counted, 120)


def test_the_winner_has_the_highest_count_at_every_step_C06():
    counted = [(b"ab", 1), (b" abc", 1), (b" bcd", 1), (b" bc", 1)]
    merges, _ = learned(counted, 6)
    assert list(merges) == [(98, 99), (32, 256), (97, 98), (32, 97), (259, 256), (257, 100)]
    assert len(learned(counted, 100)[0]) == 6
    sequences = [(list(chunk), count) for chunk, count in counted]
    for pair, new_id in merges.items():
        stats = {}
        for ids, count in sequences:
            reference.get_stats(ids, stats, count)
        assert stats[pair] == max(stats.values()) >= 1
        sequences = [(reference.merge(ids, pair, new_id), count) for ids, count in sequences]


@pytest.mark.parametrize("weight", [3_000_000_000, 2**32 + 3, 2**53 + 1])
def test_counts_are_exact_beyond_32_and_53_bits_C07(weight):
    merges, counts = learned([(b"bc", 5), (b"aa", weight), (b"ad", weight - 1)], 2)
    assert list(merges) == [(97, 97), (97, 100)]
    assert counts == [weight, weight - 1]


def test_overlapping_pairs_count_C01():
    assert learned([(b"abbb", 1)], 1) == ({(98, 98): 256}, [2])
    assert list(learned([(b"\1\1\1\1\2\1\2\1\2", 1)], 1)[0]) == [(1, 1)]


def test_no_more_merges_than_there_are_and_absurd_numbers_of_them():
    pairs, counts, removed = learn_merges(store_of([(b"abcd", 1)]), 2**40)
    assert pairs.tolist() == [[97, 98], [256, 99], [257, 100]]
    assert pairs.dtype == np.uint32
    assert counts.dtype == np.int64
    assert counts.tolist() == [1, 1, 1]
    assert removed.dtype == np.int64
    assert removed.tolist() == [1, 1, 1]
    for counted in ([], [(b"a", 5)], [(b"a", 5), (b"b", 1)]):
        pairs, counts, removed = learn_merges(store_of(counted), 2**63)
        assert pairs.shape == (0, 2)
        assert counts.shape == removed.shape == (0,)


def test_what_takes_too_many_cells_is_refused():
    counts, data = np.ones(2, np.uint64), np.zeros(1, np.uint8)
    for ends in ([0, 2, MAX_CELLS], [0, MAX_CELLS, 2**33]):
        with pytest.raises(CorpusTooLargeError, match="4,294,967,280 is the limit"):
            Arena(counts, np.array(ends, np.uint64), data, 10)          # which has not looked at the bytes yet


def test_spellings_are_those_of_the_bytes():
    with pytest.raises(ValueError, match="of 256 ids, not of 1"):
        list(learn(*arrays([(b"ab", 1)]), 1, spellings=[b"a"]))


def test_counts_that_cannot_be_summed_are_refused():
    with pytest.raises(CorpusTooLargeError, match=r"2\*\*63"):
        store_of([(b"ab", 2**62)])


def test_verbose_prints_minbpe_s_lines(capsys):
    learn_merges(store_of([(b"aaab", 2)]), 2, verbose=True)
    assert capsys.readouterr().out == (
        "merge 1/2: (97, 97) -> 256 (b'aa') had 4 occurrences\nmerge 2/2: (256, 97) -> 257 (b'aaa') had 2 occurrences\n"
    )


def test_the_store_can_be_let_go_of_early():
    store = store_of([(b"aaab", 2)])
    pairs, _, _ = learn_merges(store, 1, close_store=True)
    assert pairs.tolist() == [[97, 97]]
    assert len(store) == 0
