"""Corpora: from sources or strings to stretches of bytes, without ever holding more of a file than a window.

In: sources, or an iterable of str; a file of text and a str are texts of their own, and so is each line of JSONL and
each row of Parquet. Out: parts, which threads take one after another: a text, a stretch of one between two cuts, or a
block of lines or rows. A part of a file is read through a Window by the thread that counts it. What can only be read
from its beginning (pipes, packed files, URLs) is cut into parts by whoever takes the next one.

Cuts change nothing that is counted. A text is cut only between a newline and a character that is not whitespace,
where the GPT-2 and GPT-4 patterns always end a chunk; and the splitter is shown a few bytes beyond the cut, because
what stands there decides how the whitespace before it is split. Under any other pattern a text is one part.

Files are read into a small buffer rather than mapped. On 2 GB from the page cache that takes 0.32 s against 0.26 s
for mapped windows of 16 MB, hidden behind seconds of counting; in return a file that shrinks meanwhile is an error
and not a dead process, pipes are read like files, and nothing stays mapped. Bytes are taken as they are: no newline
is translated.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cbpe.encoding.finder import SpecialFinder
from cbpe.errors import CorpusDecodeError, CorpusTooLargeError
from cbpe.inputs.documents import Faults, LineBlock, RowBlock, RowGroups, Texts, check_offset, stretch_blocks
from cbpe.inputs.sources import OFFSET_BITS, Source, Stretch
from cbpe.inputs.streams import open_stream, open_stream_at, open_to_jump, read_fully
from cbpe.special import check_word
from cbpe.splitting.split import Splitter, next_cut
from cbpe.training.chunks import ChunkCounter

PAD = 64                    # bytes behind a text that native splitters may read
WINDOW = 1 << 18            # bytes of a file in memory at once, per thread
MAX_WINDOW = 0xFFFFFF00     # positions in a window are 32 bits wide
PART = 1 << 22              # bytes that a thread takes at a time, up to the next cut
LOOK_AHEAD = 4              # bytes shown beyond a cut: the longest character
PATIENCE = 16               # parts of a stream that are held while no cut is found


@dataclass(frozen=True)
class Part:
    """Bytes start to stop of a text, and LOOK_AHEAD more to look at: of text[0:], of a source, or of a stream.

    A stop of None is the text's end. separators: None, or what finds the special tokens, which are not counted. cost:
    bytes of the source that were read for it, if they are not those of the part.
    """

    name: str
    start: int
    stop: int | None
    place: int                      # of the byte at start
    text: bytes | None = None       # what stands from start on, or of a stream what has been read of that
    separators: SpecialFinder | None = None
    source: Source | None = None
    stream: Any = None              # to be read to its end, and closed
    cost: int | None = None

    @property
    def size(self) -> int | None:
        return None if self.stop is None else self.stop - self.start


@dataclass(frozen=True)
class DocumentPart:
    """Whole texts, still as lines or rows."""

    block: LineBlock | RowBlock
    separators: SpecialFinder | None

    @property
    def size(self) -> int:
        return self.block.size


class Window:
    """A buffer that slides over a part of a file: fill it, use up some of it, fill it again.

    buffer: size valid bytes and at least PAD more; offset: where buffer[0] stands in the file; limit: how many of
    the valid bytes belong to the part. The file stands where the part begins, behind what the part has of its text.
    """

    def __init__(self, file: Any, part: Part, size: int) -> None:
        head = part.text or b""
        size = max(size, len(head))
        self._file = file
        self._part = part
        self.offset = part.start
        self._refuse_beyond_limit(size)
        self.buffer = bytearray(size + PAD)
        self.buffer[: len(head)] = head
        self.size = self.limit = len(head)

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


def separators_of(special_tokens: Iterable[str]) -> SpecialFinder | None:
    """What finds special tokens in UTF-8. An earlier one wins where two could start: ["<a>", "<a>b"] never finds
    "<a>b".

    Raises SpecialTokenError for one that is empty or not a str, TypeError for a single one.
    """
    if isinstance(special_tokens, (str, bytes)):
        raise TypeError(f"special_tokens must be a list of str, not a single {type(special_tokens).__name__}")
    words = {check_word(word).encode(): number for number, word in enumerate(special_tokens)}
    return SpecialFinder(words) if words else None


def source_parts(
    sources: Sequence[Source],
    splitter: Splitter,
    separators: SpecialFinder | None,
    text_field: str = "text",
    shard: tuple[int, int] = (0, 1),
) -> Iterator[Part | DocumentPart]:
    """The parts of sources, in reading order; a source's number is its index.

    shard (i, n): the i-th of n shares, which together hold every byte once. A text that can be read from any byte on
    is shared out, each other source falls to one share as a whole.
    """
    return stretch_parts(_share(sources, may_cut(splitter, separators), shard), splitter, separators, text_field)


def _share(sources: Sequence[Source], may_cut: bool, shard: tuple[int, int]) -> Iterator[Stretch]:
    index, n_shards = shard
    for number, source in enumerate(sources):
        if source.kind == "text" and may_cut and (source.is_plain or _is_worth_seeking(source)):
            size = source.size or 0
            yield Stretch(number, source, size * index // n_shards, size * (index + 1) // n_shards)
        elif number % n_shards == index:
            yield Stretch(number, source)


def stretch_parts(
    stretches: Iterable[Stretch], splitter: Splitter, separators: SpecialFinder | None, text_field: str = "text"
) -> Iterator[Part | DocumentPart]:
    """The parts of stretches, in order."""
    can_cut = may_cut(splitter, separators)
    with RowGroups() as row_groups:
        for stretch in stretches:
            number, source = stretch.number, stretch.source
            check_offset(source, source.size or 0)
            place = number << OFFSET_BITS
            if source.kind == "parquet":
                for rows in row_groups.blocks(number, source, text_field):
                    yield DocumentPart(rows, separators)
            elif source.kind == "jsonl":
                for lines in stretch_blocks(stretch, text_field):
                    yield DocumentPart(lines, separators)
            elif stretch.end is not None:
                yield from _parts_between(source, place, separators, stretch.begin, stretch.end)
            elif can_cut and not _is_short(source):
                yield from _stream_parts(source, place, separators)
            else:
                stop = source.size if source.compression is None else None
                yield Part(source.name, 0, stop, place, separators=separators, source=source)


def may_cut(splitter: Splitter, separators: SpecialFinder | None) -> bool:
    """Whether texts may be cut where lines begin: not if a special token could be cut there too."""
    return splitter.cuttable and not (separators and separators.has_byte(10))


def _counts_natively(splitter: Splitter) -> bool:
    """Whether the counter can split by itself, window by window. Words (splitting/words.py) may be cut, but not so."""
    return splitter.cuttable and splitter.compiled is None


def _is_short(source: Source) -> bool:
    """Whether it is a part as it is. Of files elsewhere these are long: each part costs a few requests."""
    return source.compression is None and source.size is not None and source.size <= PATIENCE * PART


def _is_worth_seeking(source: Source) -> bool:
    """Whether it is a long text elsewhere that can be read from any byte on."""
    if source.compression is not None or source.size is None or _is_short(source):
        return False
    file = open_to_jump(source)
    if file is None:
        return False
    file.close()
    return True


def _parts_between(
    source: Source, place: int, separators: SpecialFinder | None, begin: int, end: int
) -> Iterator[Part]:
    """The parts of a text that can be read from any byte on, from the first cut behind begin to that behind end."""
    assert source.size is not None
    length = PART if source.is_plain else PATIENCE * PART
    with open_to_jump(source) as file:
        start = cut_in_file(file, begin, source.size, separators)
        end = cut_in_file(file, end, source.size, separators)
        while start < end:
            stop = min(cut_in_file(file, start + length, source.size, separators), end)
            yield Part(source.name, start, stop, place + start, separators=separators, source=source)
            start = stop


def _stream_parts(source: Source, place: int, separators: SpecialFinder | None) -> Iterator[Part]:
    """The parts of a text that can only be read from its beginning.

    Where none can be cut off for long, whoever takes the rest gets the stream with it, and reads it to its end.
    """
    stream = open_stream(source)
    text = b""
    start = spent = 0
    ended = False
    try:
        while not ended:
            more = read_fully(stream, PART)
            ended = len(more) < PART
            text += more
            cut = len(text) if ended else _late_cut(text, separators)
            check_offset(source, start + cut)
            if cut:
                read = stream.n_read if source.compression else start + cut
                piece = text[: cut + LOOK_AHEAD]
                yield Part(source.name, start, start + cut, place + start, piece, separators, cost=read - spent)
                text = text[cut:]
                start += cut
                spent = read
            elif len(text) > PATIENCE * PART:
                rest, stream = stream, None
                yield Part(source.name, start, None, place + start, text, separators, stream=rest)
                return
    finally:
        if stream is not None:
            stream.close()


def _late_cut(text: bytes, separators: SpecialFinder | None) -> int:
    """Where to cut a text that goes on: late if that is possible, so that little is copied again; 0 if nowhere."""
    end = len(text) - _margin(separators)
    for start in (len(text) // 4 * 3, 0):
        cut = _next_cut(text, start, separators)
        if 0 < cut <= end:
            return cut
    return 0


def _margin(separators: SpecialFinder | None) -> int:
    """How many bytes behind a cut must be known."""
    return LOOK_AHEAD if separators is None else max(LOOK_AHEAD, separators.longest)


def cut_in_file(file: Any, wanted: int, size: int, separators: SpecialFinder | None) -> int:
    """The first place at or behind wanted where the file may be cut: 0, a cut, or its end."""
    if wanted <= 0:
        return 0
    start = wanted - 1                  # of the block; the newline of a cut at wanted
    block = b""
    margin = _margin(separators)
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


def _next_cut(text: bytes, start: int, separators: SpecialFinder | None) -> int:
    """The first cut at or behind start that no special token follows (the text before one ends there), or -1."""
    cut = next_cut(text, start)
    while cut > 0 and separators and separators.length_at(text, cut):
        cut = next_cut(text, cut + 1)
    return cut


def text_parts(texts: Iterable[str], splitter: Splitter, separators: SpecialFinder | None) -> Iterator[Part]:
    """The parts of strings, in order. Places number the bytes of all texts through.

    Raises TypeError for what is not a str, UnicodeEncodeError for a lone surrogate.
    """
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"an iterable of str is wanted, not one {type(texts).__name__}; put it into a list")
    can_cut = may_cut(splitter, separators)
    place = 0
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"text number {number} is {type(text).__name__}, not str")
        data = text.encode()
        if len(data) > MAX_WINDOW and not can_cut:
            raise CorpusTooLargeError(
                f"text number {number} has {len(data):,} bytes; {MAX_WINDOW:,} is the limit under this pattern"
            )
        start = 0
        while start < len(data):
            stop = len(data)
            if can_cut and stop - start > PART:
                cut = _next_cut(data, start + PART, separators)
                stop = cut if cut > 0 else stop
            piece = data if stop - start == len(data) else data[start : stop + LOOK_AHEAD]
            yield Part(f"text number {number}", start, stop, place + start, piece, separators)
            start = stop
        place += len(data)


def count_part(
    counter: ChunkCounter, splitter: Splitter, part: Part | DocumentPart, faults: Faults
) -> Iterator[int]:
    """Counts a part; yields the numbers of bytes done with, as it goes.

    Raises CorpusDecodeError for text that must be UTF-8 and is not, CorpusFormatError for lines and rows, OSError.
    """
    if isinstance(part, DocumentPart):
        yield from _count_texts(counter, splitter, part.block.texts(faults), part.separators)
        yield part.block.cost
    elif part.text is not None and part.stream is None:
        assert part.stop is not None
        limit = part.stop - part.start
        pieces = _count_pieces(counter, splitter, part, part.text + bytes(PAD), len(part.text), limit, faults.strict)
        if part.cost is None:
            yield from pieces
        else:
            yield from (0 for _ in pieces)
            yield part.cost
    else:
        yield from _count_file(counter, splitter, part, faults.strict)


def _count_texts(
    counter: ChunkCounter, splitter: Splitter, texts: Texts, separators: SpecialFinder | None
) -> Iterator[int]:
    """Counts texts that are UTF-8; yields zeros."""
    begins, ends, places = texts.begins, texts.ends, texts.places
    too_long = ends - begins > np.diff(places, append=np.uint64(texts.stop))       # mended ones may be
    if too_long.any():
        for begin, end, place in zip(*(each[too_long].tolist() for each in (begins, ends, places)), strict=True):
            yield from _count_by_characters(counter, splitter, texts.data[begin:end], place, separators)
        begins, ends, places = begins[~too_long], ends[~too_long], places[~too_long]
    if separators is not None:
        begins, ends, places = separators.stretches(texts.data, begins, ends, places)
    if splitter.kind not in ("regex", "stages"):
        counter.count_texts(texts.data, begins, ends, places)
        return
    for text, place in zip(Texts(texts.data, begins, ends, places, texts.stop).as_list(), places.tolist(), strict=True):
        for kept, chunk_ends in splitter.batches(text):
            counter.add(kept + bytes(PAD), chunk_ends, place)
            place += len(kept)
            yield 0


def _count_by_characters(
    counter: ChunkCounter, splitter: Splitter, text: bytes, place: int, separators: SpecialFinder | None
) -> Iterator[int]:
    """Counts a mended text of more bytes than it stands in, but never more characters: its places number these."""
    nothing, size = np.zeros(1, np.uint64), np.array([len(text)], np.uint64)
    begins, ends = separators.stretches(text, nothing, size, nothing)[:2] if separators else (nothing, size)
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        at = place + len(text[:begin].decode())
        for kept, chunk_ends in splitter.batches(text[begin:end]):
            start = 0
            for stop in chunk_ends.tolist():
                chunk = kept[start:stop]
                counter.add(chunk + bytes(PAD), np.array([len(chunk)], np.uint32), at)
                at += len(chunk.decode())
                start = stop
            yield 0


def _count_file(counter: ChunkCounter, splitter: Splitter, part: Part, strict: bool) -> Iterator[int]:
    """Counts a part of a file, window by window if it need not be seen as a whole."""
    stream = part.stream
    if stream is None:
        assert part.source is not None
        stream = open_stream_at(part.source, part.start)
    at_once = part.separators is not None or not _counts_natively(splitter)
    size = WINDOW if part.stop is None or not at_once else part.stop - part.start + LOOK_AHEAD
    with stream:
        window = Window(stream, part, size)
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
    if part.separators is None:
        yield from _count_piece(counter, splitter, part, buffer, 0, size, limit, strict, part.place)
        return
    nothing = np.zeros(1, np.uint64)
    begins, ends, _ = part.separators.stretches(buffer, nothing, np.array([limit], np.uint64), nothing)
    done = behind = 0
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        yield begin - done
        to = size if end == limit else end
        place = max(part.place + begin, behind)         # mended text may be longer than what stands in the file
        behind = yield from _count_piece(counter, splitter, part, buffer, begin, to, end, strict, place)
        done = end
    yield limit - done


def _count_piece(
    counter: ChunkCounter,
    splitter: Splitter,
    part: Part,
    buffer: bytes | bytearray,
    begin: int,
    end: int,
    limit: int,
    strict: bool,
    place: int,
) -> Generator[int, None, int]:
    """Counts buffer[begin:limit], a text of its own except that it goes on to end if that is more.

    place: of its first byte. Returns a place behind all that was counted.
    """
    if begin == limit:
        return place
    behind = place + limit - begin
    if _counts_natively(splitter):
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
    return max(behind, place)


def _check(done: int, part: Part, buffer: bytes | bytearray, offset: int) -> None:
    """Raises what a result of ChunkCounter.count says is wrong."""
    if done < -1:
        wrong = -2 - done
        raise CorpusDecodeError(part.name, offset + wrong, bytes(buffer[wrong : wrong + 4]))
