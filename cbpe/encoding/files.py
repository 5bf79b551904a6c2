"""Corpora to files of ids, without ever holding more of either than a few pieces.

In: sources; each text file is a document, or as many as a separator makes of it, and so is each line of JSONL and each
row of Parquet. Out: their ids end to end, little-endian uint16 or uint32 without a header, so that np.memmap opens the
file; and beside it a small JSON file that says what it holds.

Sources are read in pieces of about a megabyte or four, which threads encode and which are written in order. A piece
knows its place, (source number, offset), and that of the next one, at which reading can begin again. A piece of text
ends behind a separator, or else where the split pattern ends a chunk whatever follows: between a newline and a
character that is not whitespace (see training/corpus, whose Window is used here). How the whitespace before such a
place is split depends on there being a character behind it, so a letter is put there: it is a chunk of its own and one
id, the last, which is dropped. Under a pattern without such places a document is one piece, in memory as a whole.

The files are written under temporary names and renamed when they are complete.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cbpe.errors import CorpusDecodeError
from cbpe.files import atomic_write
from cbpe.inputs.documents import Faults, LineBlock, RowBlock, RowGroups, check_length, line_blocks, stretch_blocks
from cbpe.inputs.sources import Source, Stretch, total_size
from cbpe.inputs.streams import Limited, open_stream, open_stream_at, open_to_jump
from cbpe.progress import progress_bar
from cbpe.splitting.split import last_cut
from cbpe.threads import in_order
from cbpe.training.corpus import PART, Part, Window, cut_in_file, separators_of

FOLLOWER = b"a"             # what an unfinished document is shown in place of what follows

Ids = npt.NDArray[Any]
Offsets = npt.NDArray[np.int64]
Encode = Callable[[list[bytes]], tuple[Ids, Offsets]]
Place = tuple[int, int]


@dataclass(frozen=True)
class TextBlock:
    """Documents of a text file, bytes that may not be UTF-8, the first beginning at offset, gap bytes between them.

    is_open: the last of them goes on in the next block, and has FOLLOWER in place of that.
    """

    name: str
    offset: int
    documents: list[bytes]
    gap: int
    is_open: bool


@dataclass(frozen=True)
class Piece:
    """What is encoded at a time: some of a source.

    place and next_place: (number of the source, offset in it) of this piece and of the next; an offset counts bytes
    as they are after unpacking, and in a row group rows. cost: how many bytes of the source were read for it.
    """

    place: Place
    next_place: Place
    block: TextBlock | LineBlock | RowBlock
    cost: int


def encode_files(
    sources: Sequence[Source],
    out_path: str | os.PathLike[str],
    encode: Encode,
    *,
    cuttable: bool,
    text_field: str,
    separator: str | None,
    dtype: np.dtype[Any],
    eot: int | None,
    num_threads: int,
    progress: bool | None,
    errors: str,
    index: dict[str, Any],
    document_offsets: bool,
) -> int:
    """Writes the ids of sources to out_path, and index with what is known then to out_path.idx.json.

    encode: texts -> their ids end to end, and offsets: int64, one more than texts; or UnicodeDecodeError. cuttable:
    whether texts may be cut. The rest is as in NativeTokenizer.encode_file. Returns the number of ids.
    """
    faults = Faults(errors)
    out_name = os.fsdecode(out_path)
    for source in sources:
        if os.path.exists(out_name) and os.path.exists(source.path) and os.path.samefile(source.path, out_name):
            raise ValueError(f"{out_name}: is a file to be read; its ids need another place")

    def encode_one(piece: Piece) -> tuple[Piece, Ids, Offsets]:
        return piece, *encode_piece(piece, encode, faults, dtype, eot)

    count = 0
    ends: list[Offsets] = [np.zeros(1, np.int64)]
    read = pieces(sources, cuttable=cuttable, text_field=text_field, separator=separator)
    with (
        atomic_write(f"{out_name}.idx.json") as index_file,
        # ids can be made again, and to wait until gigabytes are on the disk may take longer than to encode them
        atomic_write(out_name, durable=False) as ids_file,
        progress_bar(progress, total_size(sources), "encoding") as bar,
        closing(in_order(encode_one, read, num_threads)) as encoded,
    ):
        for piece, ids, document_ends in encoded:
            ids_file.write(ids.data)
            if document_offsets:
                ends.append(document_ends + count)
            count += len(ids)
            bar.update(piece.cost)
        known: dict[str, Any] = {"dtype": dtype.newbyteorder("=").name, "byte_order": "little", "count": count, **index}
        if errors == "skip":
            known["skipped"] = faults.skipped
        if document_offsets:
            known["document_offsets"] = np.concatenate(ends).tolist()
        # a path is bytes to the system: those that are not UTF-8 come as lone surrogates, and are written escaped
        index_file.write(json.dumps(known, indent=1).encode() + b"\n")
        # a full disk is met before anything is replaced; and ids never stand beside what is said of older ones
        ids_file.flush()
        index_file.flush()
        if os.path.isfile(f"{out_name}.idx.json"):
            os.unlink(f"{out_name}.idx.json")
    faults.warn(stacklevel=3)
    return count


def read_index(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a .idx.json file says. Raises ValueError if that is not what the ids are; OSError."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        known = json.loads(data)
        sound = known["dtype"] in ("uint16", "uint32") and type(known["count"]) is int and known["count"] >= 0
        sound = sound and isinstance(known["model_sha256"], str)
    except (ValueError, KeyError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise ValueError(f"{os.fspath(path)}: damaged: it does not say what the ids are")
    return dict(known)


# ---- encoding a piece


def encode_piece(
    piece: Piece, encode: Encode, faults: Faults, dtype: np.dtype[Any], eot: int | None
) -> tuple[Ids, Offsets]:
    """The ids of a piece, with eot behind each document that ends in it; and where in them documents end, int64.

    Raises CorpusDecodeError, CorpusFormatError unless faults has it mended or skipped; OverflowError for an id that is
    too large for dtype.
    """
    block = piece.block
    if isinstance(block, TextBlock):
        ids, offsets = _encode_text(block, encode, faults)
    else:
        ids, offsets = encode(block.texts(faults).as_list())
    if dtype.itemsize < ids.itemsize and len(ids) and int(ids.max()) > np.iinfo(dtype).max:
        raise OverflowError(f"{block.name}: id {ids.max()} does not fit {dtype}")
    ids = ids.astype(dtype, copy=False)
    ends = offsets[1:]
    if isinstance(block, TextBlock) and block.is_open:
        ends = ends[:-1]
    if eot is not None:
        ids = np.insert(ids, ends, eot)
        ends = ends + np.arange(1, len(ends) + 1)
    return ids, ends


def _encode_text(block: TextBlock, encode: Encode, faults: Faults) -> tuple[Ids, Offsets]:
    """The ids of documents of a text file, and their offsets."""
    try:
        ids, offsets = encode(block.documents)
    except UnicodeDecodeError:
        ids, offsets = encode([_mended(block, i, text, faults) for i, text in enumerate(block.documents)])
    if block.is_open:
        ids = ids[:-1]
        offsets[-1] -= 1
    return ids, offsets


def _mended(block: TextBlock, i: int, text: bytes, faults: Faults) -> bytes:
    """The text with U+FFFD for what is not UTF-8, or CorpusDecodeError that says where that is."""
    try:
        return text.decode("utf-8", "strict" if faults.strict else "replace").encode()
    except UnicodeDecodeError as fault:
        begin = block.offset + sum(map(len, block.documents[:i])) + i * block.gap
        wrong = text[fault.start : fault.start + 4]
        raise CorpusDecodeError(block.name, begin + fault.start, wrong) from None


# ---- reading pieces


def pieces(
    sources: Sequence[Source],
    *,
    cuttable: bool,
    text_field: str = "text",
    separator: str | None = None,
    start: Place = (0, 0),
) -> Iterator[Piece]:
    """The pieces of sources, in reading order, from a place on that a piece has or names as the next one's.

    cuttable: whether texts may be cut where lines begin. separator: what stands between documents in a text file; it
    belongs to none, and what follows the last one is a document unless it is empty. Where pieces end depends on the
    sources and these arguments only. Every text file has a document, which may be empty.
    """
    gap = (separator or "").encode()
    with RowGroups() as row_groups:
        for number, source in enumerate(sources):
            if number < start[0]:
                continue
            offset = start[1] if number == start[0] else 0
            if source.kind == "parquet":
                yield from _row_pieces(row_groups, number, source, text_field, offset)
            elif source.kind == "jsonl":
                yield from _line_pieces(number, source, text_field, offset)
            else:
                yield from _text_pieces(number, source, cuttable, gap, offset)


def stretch_pieces(
    stretches: Iterable[Stretch], *, cuttable: bool, text_field: str = "text", separator: str | None = None
) -> Iterator[Piece]:
    """The pieces of stretches, in order; the other arguments are those of pieces.

    A stretch that is only some of a text takes cuttable, and a separator without a line end.
    """
    gap = (separator or "").encode()
    with RowGroups() as row_groups:
        for stretch in stretches:
            number, source = stretch.number, stretch.source
            if source.kind == "parquet":
                yield from _row_pieces(row_groups, number, source, text_field, 0)
            elif source.kind == "jsonl":
                for block in stretch_blocks(stretch, text_field):
                    yield _line_piece(number, block)
            elif stretch.end is None or source.size is None:
                yield from _text_pieces(number, source, cuttable, gap, 0)
            else:
                finder = separators_of([separator] if separator else [])
                with open_to_jump(source) as file:
                    begin, end = (cut_in_file(file, at, source.size, finder) for at in (stretch.begin, stretch.end))
                if begin < end:
                    yield from _text_pieces(number, source, cuttable, gap, begin, end if end < source.size else None)


def _row_pieces(row_groups: RowGroups, number: int, source: Source, text_field: str, start: int) -> Iterator[Piece]:
    for block in row_groups.blocks(number, source, text_field, start):
        yield Piece((number, block.row), (number, block.row + len(block.column)), block, block.cost)


def _line_pieces(number: int, source: Source, text_field: str, start: int) -> Iterator[Piece]:
    with open_stream(source) as stream:
        for block in line_blocks(number, source, stream, text_field, start):
            yield _line_piece(number, block)


def _line_piece(number: int, block: LineBlock) -> Piece:
    return Piece((number, block.offset), (number, block.offset + len(block.data)), block, block.cost)


def _text_pieces(
    number: int, source: Source, cuttable: bool, separator: bytes, start: int, stop: int | None = None
) -> Iterator[Piece]:
    """The pieces of a text from start on, to its end or to a cut at stop, where the last document goes on."""
    with open_stream_at(source, start) as file:
        stream: Any = file if stop is None else Limited(file, stop - start, source.name)
        size = PART
        if source.compression is None and source.size is not None:
            left = (stop or source.size) - start + 1        # 1: to see that it ends there
            size = min(left, PART) if cuttable or separator else left
        window = Window(stream, Part(source.name, start, None, 0, stream=stream), size)
        spent = 0
        wanted = PART           # bytes that are looked at: where a piece ends depends only on where it begins
        ended = False
        while not ended:
            ended = window.fill()
            if ended and stop is None:
                check_length(source, window.offset + window.size)
            if cuttable or separator:
                ended = ended and window.size < wanted
            else:
                wanted = window.size
            with memoryview(window.buffer) as view, view[: min(wanted, window.size)] as text:
                documents, done, is_open = _documents(text, separator, cuttable, ended)
            if ended and stop is not None:
                is_open = True
                documents[-1] += FOLLOWER
            elif ended and not documents[-1] and (window.offset or len(documents) > 1):
                documents.pop()                     # nothing stands behind the last separator
            offset = window.offset
            read = stream.n_read if source.compression else offset + done - start
            if documents and (ended or done):
                next_place = (number + 1, 0) if ended else (number, offset + done)
                block = TextBlock(source.name, offset, documents, len(separator), is_open)
                yield Piece((number, offset), next_place, block, read - spent)
                spent = read
            if done:
                wanted = PART
                window.advance(done)
            else:
                wanted *= 2
                if window.size < wanted and not ended:
                    window.advance(0)


def _documents(text: memoryview, separator: bytes, cuttable: bool, ended: bool) -> tuple[list[bytes], int, bool]:
    """The documents in a text that may go on, how far they reach in it, and whether the last of them goes on.

    b"a|b|c" -> [b"a", b"b"], 4, False if it goes on; [b"a", b"b", b"c"], 5, False if it has ended. Without a separator
    b"a\\nb c" -> [b"a\\na"], 2, True.
    """
    documents = bytes(text).split(separator) if separator else [b""]
    if ended:
        return documents if separator else [bytes(text)], len(text), False
    if len(documents) > 1:
        return documents[:-1], len(text) - len(documents[-1]), False
    # a separator may have begun at the end of the text, and is not to be cut
    cut = max(0, last_cut(text[: len(text) - max(0, len(separator) - 1)])) if cuttable else 0
    return [b"".join((text[:cut], FOLLOWER))], cut, True
