"""Documents out of JSONL and Parquet: from a stream or a row group to blocks, and from a block to texts end to end.

In: sources whose lines or rows are documents, each of which is a text of its own. Out: texts in one buffer of UTF-8,
with the place of each, as ChunkCounter.count_texts wants them.

Blocks are taken one after another by whoever needs one, and made into texts by that thread while others take more. A
block of JSONL is a stretch of whole lines: lines.pyx takes the texts out of those that are plain, and the json module
has the last word on the others. A block of Parquet is a batch of rows as Arrow has it: its strings lie end to end
already. Of neither is a Python object made for a text.
"""

from __future__ import annotations

import json
import operator
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cbpe.errors import CorpusFormatError, CorpusTooLargeError
from cbpe.inputs.extra import needed
from cbpe.inputs.lines import texts_of_lines
from cbpe.inputs.sources import OFFSET_BITS, Source, Stretch
from cbpe.inputs.streams import Limited, open_parquet, open_stream, open_to_jump, parquet_faults, read_fully

PAD = bytes(64)             # behind texts, for native splitters to read
BLOCK = 1 << 20             # bytes of lines, or of a column, in a block
MAX_ROWS = 1 << 13          # in a block, whatever the footer says of their size: few strings may stand in many rows

_BOM = b"\xef\xbb\xbf"

Words = npt.NDArray[np.uint64]


class Faults:
    """What is done about what is wrong in a corpus, and how much was left out because of it.

    errors: "strict", "replace" or "skip", as in ChunkStore.from_files. Threads share it.
    """

    def __init__(self, errors: str) -> None:
        if errors not in ("strict", "replace", "skip"):
            raise ValueError(f'errors is "strict", "replace" or "skip", not {errors!r}')
        self.strict = errors == "strict"
        self.mends = errors == "replace"
        self.skipped = 0
        self._skips = errors == "skip"
        self._first: tuple[int, CorpusFormatError] | None = None
        self._lock = threading.Lock()

    def leave_out(self, place: int, fault: CorpusFormatError) -> None:
        """Counts a document that is wrong as left out, or raises what is wrong with it."""
        if not self._skips:
            raise fault
        with self._lock:
            self.skipped += 1
            if self._first is None or place < self._first[0]:
                self._first = place, fault

    @property
    def first(self) -> tuple[int, CorpusFormatError] | None:
        """What is wrong with the first document that was left out, and its place."""
        return self._first

    def add(self, skipped: int, first: tuple[int, CorpusFormatError] | None) -> None:
        """Counts what was left out elsewhere, of which first is the first."""
        with self._lock:
            self.skipped += skipped
            self._first = min(filter(None, (self._first, first)), key=operator.itemgetter(0), default=None)

    def warn(self, stacklevel: int = 2) -> None:
        """Tells by a UserWarning what was left out, if anything was."""
        if self._first is not None:
            how_many = "one document was" if self.skipped == 1 else f"{self.skipped:,} documents were"
            message = f"{how_many} left out; the first is {self._first[1]}"
            warnings.warn(message, UserWarning, stacklevel=stacklevel + 1)


@dataclass(frozen=True)
class Texts:
    """Texts in a buffer, in order: text i is data[begins[i]:ends[i]], and its first byte's place is places[i].

    They are UTF-8, but for rows of which that is not known yet. stop: a place behind all of them.
    """

    data: Any               # a buffer of bytes
    begins: Words
    ends: Words
    places: Words
    stop: int

    @classmethod
    def joined(cls, texts: list[bytes], places: Words, stop: int) -> Texts:
        """Texts put end to end: [b"ab", b"c"] -> begins 0, 2, ends 2, 3."""
        ends = np.cumsum(np.fromiter(map(len, texts), np.uint64, len(texts)), dtype=np.uint64)
        begins = np.concatenate([np.zeros(1, np.uint64), ends])[:-1]
        return cls(b"".join([*texts, PAD]), begins, ends, places, stop)

    def as_list(self) -> list[bytes]:
        if not len(self.begins):
            return []
        first, last = int(self.begins[0]), int(self.ends[-1])
        data = bytes(memoryview(self.data)[first:last])         # slices of which cost half of what a view's do
        begins, ends = (self.begins - self.begins[0]).tolist(), (self.ends - self.begins[0]).tolist()
        return [data[begin:end] for begin, end in zip(begins, ends, strict=True)]


# ---- JSONL


@dataclass(frozen=True)
class LineBlock:
    """Whole lines of a JSONL file: data, of which the first byte stands at place, in a line counted from 1.

    cost: bytes of the file that were read for it.
    """

    name: str
    field: str
    place: int
    line: int
    data: bytes
    cost: int

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def offset(self) -> int:
        return self.place & (1 << OFFSET_BITS) - 1

    def texts(self, faults: Faults) -> Texts:
        """The texts of the lines that hold anything. Raises CorpusFormatError unless faults has it skipped."""
        data, begins, ends, starts, others = texts_of_lines(self.data, self.field.encode())
        places = starts + np.uint64(self.place)
        stop = self.place + len(self.data)
        plain = Texts(data, begins, ends, places, stop)
        if not len(others):
            return plain
        found = dict(zip(places.tolist(), plain.as_list(), strict=True))
        for i, begin, end in others.tolist():
            try:
                line = self.data[begin:end]
                if line.strip():
                    found[self.place + begin] = text_of_line(line, self.field, mend=faults.mends)
            except ValueError as reason:
                faults.leave_out(self.place + begin, CorpusFormatError(self.name, str(reason), line=self.line + i))
        return Texts.joined([found[place] for place in sorted(found)], np.array(sorted(found), np.uint64), stop)


def _shown(value: object) -> str:
    """The beginning of a value in JSON; 5.0, which may have been 5, as 5."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    return json.dumps(value)[:40]


def text_of_line(line: bytes, field: str, mend: bool) -> bytes:
    """What stands in a field of a JSON object, in UTF-8. Raises ValueError that says why nothing does.

    mend: take U+FFFD for bytes that are not UTF-8 and for lone surrogates.
    """
    try:
        text = line.decode("utf-8", "replace" if mend else "strict")
    except UnicodeDecodeError as fault:
        raise ValueError(f"byte {line[fault.start : fault.start + 1]!r} at {fault.start:,} is not UTF-8") from None
    try:
        value = json.loads(text, parse_int=float)       # int refuses more than some thousands of digits
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError as fault:
        raise ValueError(f"is not JSON: {fault}") from None
    if not isinstance(value, dict):
        raise ValueError("is not a JSON object")
    if field not in value:
        others = ", ".join(map(repr, value))[:200] or "none at all"
        raise ValueError(f"has no field {field!r}, but {others}; text_field= (--text-field) names the one to read")
    content = value[field]
    if not isinstance(content, str):
        raise ValueError(f"field {field!r} is not a string: {_shown(content)}")
    try:
        return content.encode()
    except UnicodeEncodeError:
        if not mend:
            raise ValueError(f"field {field!r} holds half of a surrogate pair") from None
        return content.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def line_blocks(
    number: int, source: Source, stream: Any, field: str, start: int = 0, at: int = 0
) -> Iterator[LineBlock]:
    """The blocks of a JSONL file, the source of that number, from the line on that begins at byte start.

    at: the byte where the stream stands, at the beginning of a line, from which lines are counted.
    """
    place = number << OFFSET_BITS
    offset, line = at, 1
    spent = at
    unfinished: list[bytes] = []        # of a line that is longer than a block
    ended = False
    while not ended:
        data = read_fully(stream, BLOCK)
        ended = len(data) < BLOCK
        end = len(data) if ended else data.rfind(b"\n") + 1
        unfinished.append(data[:end] if end else data)
        if not end and not ended:
            continue
        block = b"".join(unfinished)
        unfinished = [data[end:]]
        if offset == 0 and block.startswith(_BOM):
            block = block[len(_BOM) :]
            offset = len(_BOM)
        skipped = min(max(0, start - offset), len(block))
        line += block.count(b"\n", 0, skipped)
        offset += skipped
        block = block[skipped:]
        check_offset(source, offset + len(block))
        if ended and not isinstance(stream, Limited):       # which tells of it itself
            check_length(source, offset + len(block))
        if block:
            read = stream.n_read if source.compression else offset + len(block)
            yield LineBlock(source.name, field, place + offset, line, block, read - spent)
            spent = read
        line += block.count(b"\n")
        offset += len(block)


def stretch_blocks(stretch: Stretch, field: str) -> Iterator[LineBlock]:
    """The blocks of a stretch of a JSONL file. Lines are counted from where it begins: see in_file."""
    number, source = stretch.number, stretch.source
    if stretch.end is None:
        with open_stream(source) as stream:
            yield from line_blocks(number, source, stream, field)
        return
    with open_to_jump(source) as file:
        begin, end = (_line_in_file(file, wanted) for wanted in (stretch.begin, stretch.end))
        file.seek(begin)
        yield from line_blocks(number, source, Limited(file, end - begin, source.name), field, at=begin)


def _line_in_file(file: Any, wanted: int) -> int:
    """Where the first line at or behind wanted begins, or the file ends."""
    if wanted <= 0:
        return 0
    at: int = wanted - 1
    file.seek(at)
    while data := file.read(1 << 16):
        end: int = data.find(b"\n")
        if end >= 0:
            return at + end + 1
        at += len(data)
    return at


def in_file(fault: CorpusFormatError, stretch: Stretch) -> CorpusFormatError:
    """What is wrong with a line of a stretch, with the line's number in the file."""
    if fault.line is None or not stretch.begin:
        return fault
    with open_to_jump(stretch.source) as file:
        begin = _line_in_file(file, stretch.begin)
        file.seek(0)
        blocks = iter(lambda: file.read(min(BLOCK, begin - file.tell())), b"")
        before = sum(block.count(b"\n") for block in blocks)
    source, reason, line, row = fault.args
    return CorpusFormatError(source, reason, line + before, row)


def check_offset(source: Source, offset: int) -> None:
    if offset >> OFFSET_BITS:
        raise CorpusTooLargeError(f"{source.name}: longer than {1 << OFFSET_BITS:,} bytes; cut it into several files")


def check_length(source: Source, length: int) -> None:
    """Raises OSError if a file of this machine, read to its end, has become shorter."""
    if source.is_plain and length < (source.size or 0):
        raise OSError(f"{source.name}: became shorter while it was read: it ends at byte {length:,}")


# ---- Parquet


@dataclass(frozen=True)
class RowBlock:
    """Rows of a row group: one column of them, the first being row of the group, and its text's first byte at place.

    cost: the part of the row group's size that falls to them.
    """

    name: str
    field: str
    place: int
    row: int
    column: Any             # an Arrow array of strings
    cost: int

    @property
    def size(self) -> int:
        offsets = self._offsets()
        return int(offsets[-1] - offsets[0])

    def _offsets(self) -> Any:
        kind = np.int32 if str(self.column.type) == "string" else np.int64
        if not len(self.column):
            return np.zeros(1, kind)
        begin = self.column.offset
        return np.frombuffer(self.column.buffers()[1], kind)[begin : begin + len(self.column) + 1]

    def from_row(self, row: int) -> RowBlock:
        """The block without the rows before that one."""
        if row <= self.row:
            return self
        offsets = self._offsets()
        gone = row - self.row
        place = self.place + int(offsets[gone] - offsets[0])
        return replace(self, place=place, row=row, column=self.column[gone:])

    def texts(self, faults: Faults) -> Texts:
        """The texts of the rows. Raises CorpusFormatError unless faults has it skipped."""
        import pyarrow

        offsets = self._offsets().astype(np.uint64)
        places = np.uint64(self.place) + offsets[:-1] - offsets[0]
        data = np.frombuffer(self.column.buffers()[2] or PAD, np.uint8)
        stop = self.place + self.size
        texts = Texts(data, offsets[:-1], offsets[1:], places, stop)
        try:
            self.column.validate(full=True)         # that is all UTF-8
            if not self.column.null_count:
                return texts
        except pyarrow.ArrowInvalid:
            pass
        is_there = self.column.is_valid().to_pylist()
        found = [
            self._text(text if there else None, i, place, faults)
            for i, (text, there, place) in enumerate(zip(texts.as_list(), is_there, places.tolist(), strict=True))
        ]
        kept = [text is not None for text in found]
        return Texts.joined([text for text in found if text is not None], places[kept], stop)

    def _text(self, text: bytes | None, i: int, place: int, faults: Faults) -> bytes | None:
        """The text of a row, mended if it must be; None if it is left out."""
        if text is None:
            reason = f"column {self.field!r} holds null"
        else:
            try:
                return text.decode("utf-8", "replace" if faults.mends else "strict").encode()
            except UnicodeDecodeError as fault:
                reason = f"byte {text[fault.start : fault.start + 1]!r} at {fault.start:,} of the text is not UTF-8"
        faults.leave_out(place, CorpusFormatError(self.name, reason, row=self.row + i))
        return None


class RowGroups:
    """Reads row groups, of one file after another; a file stays open as long as its row groups are asked for."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._file: Any = None

    def __enter__(self) -> RowGroups:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close(force=True)
        self._path = self._file = None

    def blocks(self, number: int, source: Source, field: str, start: int = 0) -> Iterator[RowBlock]:
        """The blocks of a row group, the source of that number, from row start on."""
        if start >= source.n_rows:
            return
        if source.path != self._path:
            self.close()
            self._file = open_parquet(source)
            self._path = source.path
        place = number << OFFSET_BITS
        row = offset = 0
        at_once = max(1, min(MAX_ROWS, BLOCK * source.n_rows // max(1, self._column_size(source, field))))
        with parquet_faults(source.path):
            batches = self._file.iter_batches(at_once, [source.row_group], [field], use_threads=False)
        while True:
            with parquet_faults(source.path):
                batch = next(batches, None)
                if batch is None:
                    return
                column = _strings(batch.column(0), source, field)
            block = RowBlock(
                source.name, field, place + offset, row, column, (source.size or 0) * len(column) // source.n_rows
            )
            row += len(column)
            offset += block.size
            check_offset(source, offset)
            if row > start:
                yield block.from_row(start)

    def _column_size(self, source: Source, field: str) -> int:
        """The bytes of a column, as far as the footer says.

        A row is read first: what is wrong in the footer is then an error of pyarrow's. To be asked for such a column's
        metadata ends the process.
        """
        for i in range(len(self._file.schema)):
            if self._file.schema.column(i).path == field:
                with parquet_faults(source.path):
                    next(self._file.iter_batches(1, [source.row_group], [field], use_threads=False), None)
                size: int = self._file.metadata.row_group(source.row_group).column(i).total_uncompressed_size
                return size
        return 0


def _strings(column: Any, source: Source, field: str) -> Any:
    """An Arrow array of type string or large_string with the column's texts. Raises CorpusFormatError."""
    pyarrow = needed("pyarrow", "Parquet files")
    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if str(column.type) == "string_view":
        column = column.cast(pyarrow.large_string())
    if not (pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type)):
        raise CorpusFormatError(source.path, f"column {field!r} is of type {column.type}, and not of strings")
    return column
