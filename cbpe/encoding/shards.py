"""Corpora to many files of ids of one size, in a way that can be interrupted and taken up again.

In: what encode_files (files.py) takes. Out: a folder of shards,

    shard-00000.bin             the first N ids, as encode_files would write them
    shard-00000.bin.idx.json    what they are
    shard-00001.bin             the next N
    ...                         the last one may have less

A shard is finished when both files are there; each is renamed into place when it is complete, the ids last. The JSON
file tells where the shard begins in the corpus and where the next one does, as a place (source, offset, skip): the
source's number, the offset in it where a piece begins that can be encoded by itself (see files.py), and how many ids to
skip from there. So whoever finds finished shards goes on behind them without a look at what stands before, and wherever
a run was stopped, the next one makes the same bytes.

What is there already is not trusted blindly. A shard of another model, other sources or other settings, or one whose
size is not what its JSON file says, is an error, or made again if that is asked for. One process at a time may write
to a folder.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cbpe.encoding.files import Encode, Ids, Piece, encode_piece, pieces, read_index
from cbpe.errors import ShardError
from cbpe.files import atomic_write
from cbpe.inputs.documents import Faults
from cbpe.inputs.sources import Source, total_size
from cbpe.progress import progress_bar
from cbpe.threads import in_order

_SHARD_FILE = re.compile(
    r"shard-(?P<number>\d{5,})\.bin(?P<json>\.idx\.json)?(?P<temporary>\.[0-9a-f]{8}\.tmp)?", re.ASCII
)


class Place(NamedTuple):
    """The id behind `skip` others, counted from `offset` in source number `source`, where a piece may begin."""

    source: int
    offset: int
    skip: int


class Shards(NamedTuple):
    """What became of a corpus: its number of ids, and of shards; n_made of these were made by this call."""

    n_ids: int
    n_shards: int
    n_made: int


def encode_shards(
    sources: Sequence[Source],
    out_dir: str | os.PathLike[str],
    shard_tokens: int,
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
    force: bool,
) -> Shards:
    """Writes the ids of sources to shards of shard_tokens ids in out_dir, which is made if it is not there.

    encode, cuttable and index are as in encode_files; the rest is as in NativeTokenizer.encode_shards.
    """
    faults = Faults(errors)
    settings = {
        "dtype": dtype.newbyteorder("=").name,
        "byte_order": "little",
        "shard_tokens": shard_tokens,
        **{key: value for key, value in index.items() if key != "sources"},
        "errors": errors,
        "text_field": text_field,
        "separator": separator,
        "n_sources": len(sources),
        "sources_sha256": hashlib.sha256(json.dumps([[each.name, each.size] for each in sources]).encode()).hexdigest(),
    }
    folder = _Folder(Path(os.fsdecode(out_dir)), sources, settings, force)
    n_made = 0

    def encode_one(piece: Piece) -> tuple[Piece, Ids]:
        return piece, encode_piece(piece, encode, faults, dtype, eot)[0]

    place, number, n_ids = folder.behind_finished(Place(0, 0, 0), 0, 0)
    with progress_bar(progress, total_size(sources), "encoding", initial=_bytes_before(sources, place)) as bar:
        while place:
            start = place.source, place.offset
            read = pieces(sources, cuttable=cuttable, text_field=text_field, separator=separator, start=start)
            with closing(in_order(encode_one, read, num_threads)) as encoded:
                ids = _IdStream(encoded, place.skip, bar.update)
                while place and not folder.is_finished(number):
                    count, place = folder.write(number, place, ids)
                    number, n_ids, n_made = number + 1, n_ids + count, n_made + 1
            if place:
                place, number, n_ids = folder.behind_finished(place, number, n_ids)
    folder.remove_from(number)
    faults.warn(stacklevel=3)
    return Shards(n_ids, number, n_made)


def _sum(sizes: Iterable[int | None]) -> int:
    return sum(size or 0 for size in sizes)


def _bytes_before(sources: Sequence[Source], place: Place | None) -> int:
    """How many bytes of the sources stand before a place, as far as that is known; all if there is no place."""
    if place is None:
        return _sum(source.size for source in sources)
    is_read = place.source < len(sources) and sources[place.source].is_plain
    return _sum(source.size for source in sources[: place.source]) + (place.offset if is_read else 0)


class _IdStream:
    """The ids of a corpus from a place on, to be taken in portions of any size.

    report(n) is told of n more bytes of text.
    """

    def __init__(
        self, encoded: Iterator[tuple[Piece, Ids]], skip: int, report: Callable[[int], object]
    ) -> None:
        self._encoded = encoded
        self._report = report
        self._begin = (0, 0)            # the place of the piece whose ids these are
        self._ids: Ids = np.empty(0, np.uint32)
        self._at = skip                 # the next id's index in them, and in those to come

    def place(self) -> Place | None:
        """Where the next id stands; None: there is none."""
        while self._at >= len(self._ids):
            self._at -= len(self._ids)
            found = next(self._encoded, None)
            if found is None:
                self._at, self._ids = 0, self._ids[:0]
                return None
            piece, self._ids = found
            self._begin = piece.place
            self._report(piece.cost)
        return Place(*self._begin, self._at)

    def take(self, n: int) -> Iterator[Ids]:
        """The next n ids, or as many as there are, in parts."""
        while n and self.place():
            part = self._ids[self._at : self._at + n]
            self._at += len(part)
            n -= len(part)
            yield part


class _Folder:
    """The shards in a folder: which are finished, and how another is written.

    Raises ShardError for what is there and does not belong to this job, unless force is True: then it is taken as not
    finished.
    """

    def __init__(self, path: Path, sources: Sequence[Source], settings: dict[str, Any], force: bool) -> None:
        self._path = path
        self._sources = sources
        self._settings = settings
        self._finished: dict[int, dict[str, Any]] = {}      # number -> what the JSON file says
        path.mkdir(exist_ok=True)
        for file in sorted(path.iterdir()):
            match = _SHARD_FILE.fullmatch(file.name)
            if match and match["temporary"]:
                file.unlink()           # of a run that was killed
            elif match and not match["json"]:
                try:
                    self._finished[int(match["number"])] = self._header(file)
                except ShardError:
                    if not force:
                        raise

    def _header(self, file: Path) -> dict[str, Any]:
        """What is said of a file of ids, if it is true."""
        remedy = "remove it to have it made again, or pass force=True (--force)"
        try:
            header = read_index(_index_of(file))
            kind, count, following = np.dtype(header["dtype"]), header["count"], header["next"]
            if following is not None and min(Place(*map(operator.index, following))) < 0:
                raise ValueError
        except FileNotFoundError:
            raise ShardError(f"{file}: no {_index_of(file).name} beside it says what it is; {remedy}") from None
        except (ValueError, KeyError, TypeError):
            raise ShardError(f"{_index_of(file)}: damaged; {remedy}") from None
        for key, wanted in self._settings.items():
            if key != "cbpe_version" and header.get(key) != wanted:
                made = f"with {key} {header.get(key)!r}, not {wanted!r}"
                if key in ("n_sources", "sources_sha256"):
                    made = "of other files, or of files that have changed their sizes since"
                raise ShardError(
                    f"{file}: made {made}; write to another folder, or pass force=True (--force) to make it anew"
                )
        size = file.stat().st_size
        whole = following is None or count == self._settings["shard_tokens"]
        if not whole or size != count * kind.itemsize:
            raise ShardError(f"{file}: damaged: {size:,} bytes for {count:,} ids of {kind}; {remedy}")
        if following is not None and not self._may_begin_at(Place(*following)):
            raise ShardError(f"{_index_of(file)}: damaged; {remedy}")
        return header

    def _may_begin_at(self, place: Place) -> bool:
        """Whether there is such a place, as far as that is known without reading."""
        if place.source >= len(self._sources):
            return False
        source = self._sources[place.source]
        return not source.is_plain or place.offset <= (source.size or 0)

    def is_finished(self, number: int) -> bool:
        return number in self._finished

    def behind_finished(self, place: Place, number: int, n_ids: int) -> tuple[Place | None, int, int]:
        """From a place, a shard's number and the number of ids before it to the first one that is not finished."""
        following: Place | None = place
        while following and (header := self._finished.get(number)):
            following = Place(*header["next"]) if header["next"] else None
            number += 1
            n_ids += header["count"]
        return following, number, n_ids

    def write(self, number: int, place: Place, ids: _IdStream) -> tuple[int, Place | None]:
        """Writes the shard that begins at a place; returns its number of ids, and where the next one begins."""
        file = self._path / f"shard-{number:05d}.bin"
        with suppress(FileNotFoundError):
            file.unlink()               # it must not be taken for what the new JSON file speaks of
        with atomic_write(file) as ids_file, atomic_write(_index_of(file)) as index_file:
            count = 0
            for part in ids.take(self._settings["shard_tokens"]):
                ids_file.write(part.data)
                count += len(part)
            following = ids.place()
            end = len(self._sources)
            if following:
                end = following.source + (following.offset > 0 or following.skip > 0)
            header = {
                "count": count,
                **self._settings,
                "shard": number,
                "first_source": place.source,
                "sources": [source.name for source in self._sources[place.source : end]],
                "begin": place,
                "next": following,
            }
            # a path is bytes to the system: those that are not UTF-8 come as lone surrogates, and are written escaped
            index_file.write(json.dumps(header, indent=1).encode() + b"\n")
        return count, following

    def remove_from(self, number: int) -> None:
        """Removes the shards from a number on: those of another job that had more."""
        for file in sorted(self._path.iterdir()):
            match = _SHARD_FILE.fullmatch(file.name)
            if match and int(match["number"]) >= number:
                file.unlink()


def _index_of(file: Path) -> Path:
    return file.with_name(file.name + ".idx.json")
