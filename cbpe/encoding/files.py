"""Files of text to a file of ids, without ever holding more of either than a few pieces.

In: paths; each file is a document. Out: their ids end to end, little-endian uint16 or uint32 without a header, so that
np.memmap opens the file; and beside it a small JSON file that says what it holds.

A document is read in pieces of about four megabytes, which threads encode and which are written in order. Pieces end
where the split pattern ends a chunk whatever follows: between a newline and a character that is not whitespace (see
training/corpus, whose Window is used here). How the whitespace before such a place is split depends on there being a
character behind it, so a letter is put there: it is a chunk of its own and one id, the last, which is dropped. Under a
pattern without such places a document is one piece, in memory as a whole.

The files are written under temporary names and renamed when they are complete.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from cbpe.errors import CorpusDecodeError
from cbpe.files import atomic_write
from cbpe.splitting.split import next_cut
from cbpe.threads import in_order
from cbpe.training.corpus import PART, Part, Window

FOLLOWER = b"a"             # what a piece is shown in place of what follows it

Ids = npt.NDArray[Any]


@dataclass(frozen=True)
class Piece:
    """Bytes of a document, from offset on; is_last: the document ends with them."""

    name: str
    offset: int
    text: bytes
    is_last: bool


def encode_files(
    names: Sequence[str],
    out_path: str | os.PathLike[str],
    encode: Callable[[bytes], npt.NDArray[np.uint32]],
    *,
    cuttable: bool,
    dtype: np.dtype[Any],
    eot: int | None,
    num_threads: int,
    progress: bool | None,
    errors: str,
    index: dict[str, Any],
    document_offsets: bool,
) -> int:
    """Writes the ids of files to out_path, and index with what is known then to out_path.idx.json.

    encode: bytes -> ids, or UnicodeDecodeError; cuttable: whether texts may be cut. The rest is as in
    NativeTokenizer.encode_file. Returns the number of ids.
    """
    if errors not in ("strict", "replace"):
        raise ValueError(f'errors is "strict" or "replace", not {errors!r}')
    out_name = os.fsdecode(out_path)
    for name in names:
        if os.path.exists(out_name) and os.path.samefile(name, out_name):
            raise ValueError(f"{out_name}: is a file to be read; its ids need another place")
    end = np.array([] if eot is None else [eot], dtype)

    def encode_piece(piece: Piece) -> tuple[Piece, Ids]:
        ids = _encode_text(piece, encode, errors == "strict")
        if len(ids) and int(ids.max()) > np.iinfo(dtype).max:
            raise OverflowError(f"{piece.name}: id {ids.max()} does not fit {dtype}")
        ids = ids.astype(dtype, copy=False)
        return piece, np.concatenate([ids, end]) if piece.is_last and len(end) else ids

    count = 0
    offsets = [0]
    total = sum(os.stat(name).st_size for name in names)
    hidden = None if progress is None else not progress         # None: unless this is a terminal
    with (
        atomic_write(f"{out_name}.idx.json") as index_file,
        # ids can be made again, and to wait until gigabytes are on the disk may take longer than to encode them
        atomic_write(out_name, durable=False) as ids_file,
        tqdm(total=total, desc="encoding", unit="B", unit_scale=True, leave=False, disable=hidden) as bar,
        closing(in_order(encode_piece, _pieces(names, cuttable), num_threads)) as encoded,
    ):
        for piece, ids in encoded:
            ids_file.write(ids.data)
            count += len(ids)
            if piece.is_last:
                offsets.append(count)
            bar.update(len(piece.text))
        known: dict[str, Any] = {"dtype": dtype.newbyteorder("=").name, "byte_order": "little", "count": count, **index}
        if document_offsets:
            known["document_offsets"] = offsets
        # a path is bytes to the system: those that are not UTF-8 come as lone surrogates, and are written escaped
        index_file.write(json.dumps(known, indent=1).encode() + b"\n")
    return count


def _encode_text(piece: Piece, encode: Callable[[bytes], npt.NDArray[np.uint32]], strict: bool) -> Ids:
    """The ids of a piece as part of its document. Raises CorpusDecodeError if it must be UTF-8 and is not."""
    text = piece.text if piece.is_last else piece.text + FOLLOWER
    try:
        ids = encode(text)
    except UnicodeDecodeError as fault:
        if strict:
            wrong = text[fault.start : fault.start + 4]
            raise CorpusDecodeError(piece.name, piece.offset + fault.start, wrong) from None
        ids = encode(text.decode("utf-8", "replace").encode())
    return ids if piece.is_last else ids[:-1]


def _pieces(names: Sequence[str], cuttable: bool) -> Iterator[Piece]:
    """The pieces of files, in reading order; each file has a last one, which may be empty."""
    for name in names:
        with open(name, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            size = status.st_size + 1 if stat.S_ISREG(status.st_mode) else PART     # 1: to see that it ends there
            window = Window(file, Part(name, 0, None, 0), min(size, PART) if cuttable else size)
            ended = False
            while not ended:
                ended = window.fill()
                with memoryview(window.buffer) as view:
                    text = bytes(view[: window.size])
                cut = len(text) if ended else _cut(text) if cuttable else 0
                if ended or cut:
                    yield Piece(name, window.offset, text[:cut], ended)
                if not ended:
                    window.advance(cut)


def _cut(text: bytes) -> int:
    """Where to cut a text that goes on: late if that is possible, so that little of it is read again; 0 if nowhere."""
    cut = next_cut(text, len(text) // 4 * 3)
    return max(0, cut if cut > 0 else next_cut(text))
