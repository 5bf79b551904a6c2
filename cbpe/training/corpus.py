"""Corpora: from paths or strings to stretches of bytes, without ever holding more of a file than a window.

In: paths, or an iterable of str; each file and each str is its own text. Out: parts, which threads take one after
another; a part is one text, or a stretch of one between two cuts. A part of a file is read through a Window.

Cuts change nothing that is counted. A text is cut only between a newline and a character that is not whitespace,
where the GPT-2 and GPT-4 patterns always end a chunk; and the splitter is shown a few bytes beyond the cut, because
what stands there decides how the whitespace before it is split. Under any other pattern a text is one part.

Files are read into a small buffer rather than mapped. On 2 GB from the page cache that takes 0.32 s against 0.26 s
for mapped windows of 16 MB, hidden behind seconds of counting; in return a file that shrinks meanwhile is an error
and not a dead process, pipes are read like files, and nothing stays mapped. Bytes are taken as they are: no newline
is translated.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import FileIO

from cbpe.errors import CorpusDecodeError, CorpusTooLargeError
from cbpe.special import check_word
from cbpe.splitting.split import Splitter, next_cut
from cbpe.training.chunks import ChunkCounter

PAD = 64                    # bytes behind a text that native splitters may read
WINDOW = 1 << 18            # bytes of a file in memory at once, per thread
MAX_WINDOW = 0xFFFFFF00     # positions in a window are 32 bits wide
PART = 1 << 22              # bytes that a thread takes at a time, up to the next cut
LOOK_AHEAD = 4              # bytes shown beyond a cut: the longest character
SOURCE_BITS = 24            # a place is source << 40 | byte offset
OFFSET_BITS = 64 - SOURCE_BITS

StrPath = str | os.PathLike[str]


@dataclass(frozen=True)
class Part:
    """Bytes start to stop of a source, and LOOK_AHEAD more to look at: of the file at path, or of text[0:].

    A stop of None is the source's end. separators: None, or what finds the special tokens, which are not counted.
    """

    name: str
    start: int
    stop: int | None
    place: int                      # of the byte at start
    text: bytes | None = None       # what stands from start on; None: the file called name holds it
    separators: re.Pattern[bytes] | None = None


class Window:
    """A buffer that slides over a part of a file: fill it, use up some of it, fill it again.

    buffer: size valid bytes and at least PAD more; offset: where buffer[0] stands in the file; limit: how many of
    the valid bytes belong to the part.
    """

    def __init__(self, file: FileIO, part: Part, size: int) -> None:
        self._file = file
        self._part = part
        self.offset = part.start
        self._refuse_beyond_limit(size)
        self.buffer = bytearray(size + PAD)
        self.size = self.limit = 0
        if part.stop is not None:
            file.seek(part.start)

    def fill(self) -> bool:
        """Reads until the buffer is full or the part ends; tells whether it ends at limit.

        Raises OSError if the file has become shorter.
        """
        room = len(self.buffer) - PAD
        stop = self._part.stop
        if stop is not None:
            left = stop - self.offset
            # what lies beyond the cut is read with the last window only
            room = left + LOOK_AHEAD if left + LOOK_AHEAD <= room else min(left, room)
        ended = False
        with memoryview(self.buffer) as view:
            while self.size < room and not ended:
                n = self._file.readinto(view[self.size : room])
                ended = not n
                self.size += n or 0
        self.limit = self.size
        if stop is None:
            return ended
        end = self.offset + self.size
        if ended and end < stop:
            raise OSError(f"{self._part.name}: became shorter while it was read: it ends at byte {end:,}")
        self.limit = min(self.size, stop - self.offset)
        return ended or end > stop

    def advance(self, done: int) -> None:
        """Lets go of the first bytes. None done: too little is there to settle anything, so the buffer doubles."""
        if done == 0:
            self._refuse_beyond_limit(2 * (len(self.buffer) - PAD))
            self.buffer += bytes(len(self.buffer) - PAD)
            return
        left = self.size - done
        self.buffer[:left] = self.buffer[done : self.size]
        self.offset += done
        self.size = left

    def _refuse_beyond_limit(self, size: int) -> None:
        if size > MAX_WINDOW:
            raise CorpusTooLargeError(
                f"{self._part.name}: more than {MAX_WINDOW:,} bytes from offset {self.offset:,} on without a place "
                "where the pattern lets a text be cut; cut it into several files"
            )


def check_paths(paths: StrPath | Iterable[StrPath]) -> list[str]:
    """The paths as a list of str. Raises OSError naming the first that cannot be opened, TypeError."""
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    names = [os.fspath(path) for path in paths]
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"paths are str or os.PathLike, not {type(name).__name__}")
        status = os.stat(name)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(21, "is a directory; name the files in it", name)
        if stat.S_ISREG(status.st_mode):        # opening a pipe would wait for its writer
            open(name, "rb").close()
    if len(names) > 1 << SOURCE_BITS:
        raise CorpusTooLargeError(f"{len(names):,} files: {1 << SOURCE_BITS:,} can be numbered, so join some of them")
    return names


def separators_of(special_tokens: Iterable[str]) -> re.Pattern[bytes] | None:
    """What finds special tokens in UTF-8. An earlier one wins where two could start: ["<a>", "<a>b"] never finds
    "<a>b".

    Raises SpecialTokenError for one that is empty or not a str.
    """
    words = [check_word(word).encode() for word in special_tokens]
    return re.compile(b"|".join(map(re.escape, words))) if words else None


def file_parts(
    names: Sequence[str], splitter: Splitter, separators: re.Pattern[bytes] | None, shard: tuple[int, int] = (0, 1)
) -> Iterator[Part]:
    """The parts of files, in reading order; a file's number in names is its source number.

    shard (i, n): the i-th of n about equal shares of each file; together the shares hold every byte once.
    """
    may_cut = splitter.cuttable and not (separators and b"\n" in separators.pattern)
    index, n_shards = shard
    for source, name in enumerate(names):
        place = source << OFFSET_BITS
        status = os.stat(name)
        if not stat.S_ISREG(status.st_mode):
            if source % n_shards == index:
                yield Part(name, 0, None, place, separators=separators)
            continue
        size = status.st_size
        if size >> OFFSET_BITS:
            raise CorpusTooLargeError(f"{name}: longer than {1 << OFFSET_BITS:,} bytes; cut it into several files")
        if not may_cut:
            if size and source % n_shards == index:
                yield Part(name, 0, size, place, separators=separators)
            continue
        with open(name, "rb", buffering=0) as file:
            start = _cut_in_file(file, size * index // n_shards, size, separators)
            end = _cut_in_file(file, size * (index + 1) // n_shards, size, separators)
            while start < end:
                stop = min(_cut_in_file(file, start + PART, size, separators), end)
                yield Part(name, start, stop, place + start, separators=separators)
                start = stop


def _cut_in_file(file: FileIO, wanted: int, size: int, separators: re.Pattern[bytes] | None) -> int:
    """The first place at or behind wanted where the file may be cut: 0, a cut, or its end."""
    if wanted <= 0:
        return 0
    start = wanted - 1                  # of the block; the newline of a cut at wanted
    block = b""
    margin = LOOK_AHEAD if separators is None else max(LOOK_AHEAD, len(separators.pattern))
    while start + len(block) < size:
        file.seek(start + len(block))
        more = file.read(1 << 16)
        if not more:
            break
        block += more
        cut = _next_cut(block, 1, separators)
        if 0 < cut <= len(block) - margin or (cut > 0 and start + len(block) >= size):
            return start + cut
        start += max(0, len(block) - margin - 1)
        block = block[-margin - 1 :]
    return size


def _next_cut(text: bytes, start: int, separators: re.Pattern[bytes] | None) -> int:
    """The first cut at or behind start that no special token follows (the text before one ends there), or -1."""
    cut = next_cut(text, start)
    while cut > 0 and separators and separators.match(text, cut):
        cut = next_cut(text, cut + 1)
    return cut


def text_parts(texts: Iterable[str], splitter: Splitter, separators: re.Pattern[bytes] | None) -> Iterator[Part]:
    """The parts of strings, in order. Places number the bytes of all texts through.

    Raises TypeError for what is not a str, UnicodeEncodeError for a lone surrogate.
    """
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"an iterable of str is wanted, not one {type(texts).__name__}; put it into a list")
    may_cut = splitter.cuttable and not (separators and b"\n" in separators.pattern)
    place = 0
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"text number {number} is {type(text).__name__}, not str")
        data = text.encode()
        if len(data) > MAX_WINDOW and not may_cut:
            raise CorpusTooLargeError(
                f"text number {number} has {len(data):,} bytes; {MAX_WINDOW:,} is the limit under this pattern"
            )
        start = 0
        while start < len(data):
            stop = len(data)
            if may_cut and stop - start > PART:
                cut = _next_cut(data, start + PART, separators)
                stop = cut if cut > 0 else stop
            piece = data if stop - start == len(data) else data[start : stop + LOOK_AHEAD]
            yield Part(f"text number {number}", start, stop, place + start, piece, separators)
            start = stop
        place += len(data)


def count_part(counter: ChunkCounter, splitter: Splitter, part: Part, strict: bool) -> Iterator[int]:
    """Counts a part; yields the numbers of bytes done with, as it goes.

    Raises CorpusDecodeError if strict and the part is not UTF-8, OSError.
    """
    if part.text is not None:
        assert part.stop is not None
        limit = part.stop - part.start
        yield from _count_pieces(counter, splitter, part, part.text + bytes(PAD), len(part.text), limit, strict)
        return
    at_once = part.separators is not None or not splitter.cuttable
    size = WINDOW if part.stop is None or not at_once else part.stop - part.start + LOOK_AHEAD
    with open(part.name, "rb", buffering=0) as file:
        window = Window(file, part, size)
        is_last = False
        while not is_last:
            is_last = window.fill()
            done = 0
            if not at_once:
                place = part.place + window.offset - part.start
                done = counter.count(window.buffer, window.size, window.limit, is_last, place, strict)
                _check(done, part, window.buffer, window.offset)
                yield done
            elif is_last:
                yield from _count_pieces(counter, splitter, part, window.buffer, window.size, window.limit, strict)
            if not is_last:
                window.advance(done)


def _count_pieces(
    counter: ChunkCounter,
    splitter: Splitter,
    part: Part,
    buffer: bytes | bytearray,
    size: int,
    limit: int,
    strict: bool,
) -> Iterator[int]:
    """Counts what stands between special tokens, each piece as a text of its own; without any, the part as it is.

    A native splitter sees behind the last piece what lies beyond the cut.
    """
    begin = 0
    for match in part.separators.finditer(buffer, 0, limit) if part.separators else ():
        yield from _count_piece(counter, splitter, part, buffer, begin, match.start(), match.start(), strict)
        begin = match.end()
        yield len(match[0])
    yield from _count_piece(counter, splitter, part, buffer, begin, size, limit, strict)


def _count_piece(
    counter: ChunkCounter,
    splitter: Splitter,
    part: Part,
    buffer: bytes | bytearray,
    begin: int,
    end: int,
    limit: int,
    strict: bool,
) -> Iterator[int]:
    """Counts buffer[begin:limit], a text of its own except that it goes on to end if that is more."""
    if begin == limit:
        return
    place = part.place + begin
    if splitter.cuttable:
        piece = buffer[begin:end] + bytes(PAD)
        _check(counter.count(piece, end - begin, limit - begin, True, place, strict), part, piece, part.start + begin)
    else:
        piece = bytes(buffer[begin:limit])
        if not strict:
            piece = piece.decode("utf-8", "replace").encode()
        try:
            for kept, ends in splitter.batches(piece):
                counter.add(kept + bytes(PAD), ends, place)
                place += len(kept)
                yield 0
        except UnicodeDecodeError as fault:
            _check(-2 - fault.start, part, piece, part.start + begin)
    yield limit - begin


def _check(done: int, part: Part, buffer: bytes | bytearray, offset: int) -> None:
    """Raises what a result of ChunkCounter.count says is wrong."""
    if done < -1:
        wrong = -2 - done
        raise CorpusDecodeError(part.name, offset + wrong, bytes(buffer[wrong : wrong + 4]))
