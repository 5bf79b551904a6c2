"""A file of more than 5 GiB, made on the spot: what stands across 2**31 and 2**32 is counted, once and in its place.

And chunks of more than 2 GiB, of zeros that the system gives without having them.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from budget import thorough

from cbpe import ChunkStore, CorpusTooLargeError
from cbpe.encoding.encoder import Encoder
from cbpe.patterns import GPT2_SPLIT_PATTERN
from cbpe.splitting import splitter_for

SIZE = 5 << 30
BLOCK = "".join(f"line {i} of a block, {i * i} and no more\n" for i in range(25_000)).encode()
ACROSS = {1 << 31: b"mark31", 1 << 32: b"mark32", SIZE: b"mark5g"}      # where each stands, three bytes on either side


def write_file(path: Path) -> tuple[int, list[bytes]]:
    """Writes blocks with a mark across each border; returns the number of blocks, and the lines that fill the gaps."""
    n_blocks, fillers, at = 0, [], 0
    with open(path, "wb") as file:
        for border, mark in ACROSS.items():
            while at + len(BLOCK) < border - 4:
                at += file.write(BLOCK)
                n_blocks += 1
            fillers.append(b"y" * (border - 4 - at) + b"\n")
            at += file.write(fillers[-1] + mark + b"\n")
    return n_blocks, fillers


@thorough
def test_c08_a_file_beyond_five_gigabytes(tmp_path: Path) -> None:
    if shutil.disk_usage(tmp_path).free < 2 * SIZE:
        pytest.skip("too little room on the disk")
    path = tmp_path / "huge.txt"
    try:
        n_blocks, fillers = write_file(path)
        size = path.stat().st_size
        store = ChunkStore.from_files(path, num_threads=2)
    finally:
        path.unlink(missing_ok=True)
    assert size > SIZE
    assert store.total_bytes == size
    expected: Counter[bytes] = Counter()
    once = [*fillers, *(mark + b"\n" for mark in ACROSS.values())]
    for text, times in [(BLOCK, n_blocks), *((line, 1) for line in once)]:
        for chunk, count in ChunkStore.from_iterator([text.decode()]):
            expected[chunk] += count * times
    assert dict(store) == expected
    places = dict(zip((chunk for chunk, _ in store), store.places.tolist(), strict=True))
    begins = [border - 3 - len(line) for border, line in zip(ACROSS, fillers, strict=True)]
    assert [places[line[:-1]] for line in fillers] == begins


@thorough
def test_a_chunk_that_is_too_long_is_refused_with_the_limit() -> None:
    text, splitter = bytes((1 << 31) + 1), splitter_for(GPT2_SPLIT_PATTERN)
    with pytest.raises(CorpusTooLargeError, match=r"the chunk at byte 0 is longer than the limit, 2\*\*31 bytes"):
        splitter.split(text)
    encoder = Encoder(np.empty((0, 2), np.uint32), np.empty(0, np.uint32))
    with pytest.raises(CorpusTooLargeError, match=r"chunk at offset 0 .* the limit is 2,147,483,647"):
        encoder.count(text, splitter)
