"""Which sources a corpus has: from what people name to a list of what is read, each with its kind.

In: paths, folders, globs, "-" for standard input, URLs of any kind that fsspec knows. Out: sources in reading order. A
source has one number, its index in this list, and with an offset in it makes a place (see training/corpus). A file of
text or JSONL is a source. A Parquet file is as many as it has row groups, because where a text stands in a row group
is known without having read the ones before.

What a file holds is told by its name: corpus.txt, corpus.jsonl.zst, corpus.parquet; and so it is of standard input,
which is "-" if it is text, and otherwise "-.jsonl" or "-.jsonl.zst". In a folder only files with such a
name are taken; what is named outright is read, as text if its name says nothing else.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from cbpe.errors import CorpusFormatError, CorpusTooLargeError
from cbpe.inputs.extra import needed

StrPath = str | os.PathLike[str]

SOURCE_BITS = 24            # a place is source << 40 | offset
OFFSET_BITS = 64 - SOURCE_BITS

KINDS = {".txt": "text", ".text": "text", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
WEB = ("http://", "https://")
COMPRESSIONS = {".gz": "gz", ".bz2": "bz2", ".xz": "xz", ".zst": "zst"}

_STDIN = re.compile(r"-(\.\w+){0,2}")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_AT_ONCE = 16               # Parquet files elsewhere whose footers are fetched at the same time


@dataclass(frozen=True)
class Source:
    """One source of a corpus; a plain value, which may be pickled.

    name: what people are told; path: a path, a URL, or "-"; kind: "text", "jsonl" or "parquet"; compression: None,
    "gz", "bz2", "xz" or "zst"; size: bytes where it lies, None if that is not known. Of a row group also its index in
    the file, its number of rows and the file's columns; its size is that of its columns, unpacked.
    """

    name: str
    path: str
    kind: str = "text"
    compression: str | None = None
    size: int | None = None
    row_group: int = 0
    n_rows: int = 0
    columns: tuple[str, ...] = ()

    @property
    def is_url(self) -> bool:
        return _URL.match(self.path) is not None

    @property
    def is_plain(self) -> bool:
        """Whether it is a file of this machine that can be read from any byte on as it is."""
        return self.size is not None and self.compression is None and self.kind != "parquet" and not self.is_url


@dataclass(frozen=True)
class Stretch:
    """Some of a corpus that is read apart from the rest: source number `number`, all of it or some of its bytes.

    begin and end: bytes of a text or of lines that may be read from any byte on, so None for others. A stretch has what
    begins in it: it goes from the first place at or behind begin where the source may be cut to the first at or behind
    end. So stretches that lie end to end have everything once, wherever they meet.
    """

    number: int
    source: Source
    begin: int = 0
    end: int | None = None


def find_sources(paths: StrPath | Iterable[StrPath]) -> list[Source]:
    """The sources of a corpus, in reading order.

    paths: one or several of: a file; a folder, of which all files with a known name are taken, those of its folders
    too, in the order of their names, but none that is hidden, and links to folders are not followed; a str with glob
    characters that is no file itself ("**" goes down); "-", or "-.jsonl" or "-.txt.gz" to say what comes; a URL such
    as "s3://bucket/folder", for which the same holds.

    Raises OSError for what is not there or cannot be opened, FileNotFoundError for a folder or a glob without files;
    CorpusFormatError for Parquet that cannot be read; ImportError naming the extra that such files need; TypeError.
    """
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    found: list[Source] = []
    for path in paths:
        name = os.fspath(path)
        if not isinstance(name, str):
            raise TypeError(f"paths are str or os.PathLike, not {type(name).__name__}")
        if _STDIN.fullmatch(name):
            found.append(replace(_named_outright(name, "-", None), name=name))
        elif _URL.match(name):
            found += _at_url(name)
        else:
            found += _on_this_machine(name, may_be_glob=isinstance(path, str))
    sources = _with_row_groups(found)
    check_sources(len(sources))
    return sources


def check_sources(n: int) -> None:
    """Raises CorpusTooLargeError for more sources than there are numbers for."""
    if n > 1 << SOURCE_BITS:
        raise CorpusTooLargeError(f"{n:,} sources: {1 << SOURCE_BITS:,} can be numbered, so join some files")


def total_size(sources: Iterable[Source]) -> int | None:
    """The bytes of all sources where they lie; None if that is not known of one."""
    total = 0
    for source in sources:
        if source.size is None:
            return None
        total += source.size
    return total


def check_field(sources: Iterable[Source], text_field: str) -> None:
    """Raises CorpusFormatError if a Parquet file has no such column, TypeError for what is not a str."""
    if not isinstance(text_field, str):
        raise TypeError(f"text_field is a str, not {type(text_field).__name__}")
    for source in sources:
        if source.kind == "parquet" and text_field not in source.columns:
            raise CorpusFormatError(
                source.path, f"has no column {text_field!r}, but {', '.join(map(repr, source.columns))}; "
                "text_field= (--text-field) names the one to read",
            )


def kind_of(name: str) -> tuple[str, str | None] | None:
    """Kind and compression by a name: "a.JSONL.zst" -> ("jsonl", "zst"); None for "a.csv" and "a.gz"."""
    stem, extension = os.path.splitext(name.lower())
    compression = COMPRESSIONS.get(extension)
    if compression:
        extension = os.path.splitext(stem)[1]
    kind = KINDS.get(extension)
    return (kind, compression) if kind else None


def _named_outright(name: str, path: str, size: int | None) -> Source:
    """The source of a file that was asked for: text if its name says nothing else."""
    kind, compression = kind_of(name) or ("text", COMPRESSIONS.get(os.path.splitext(name.lower())[1]))
    if kind == "parquet" and (compression or path == "-"):
        raise CorpusFormatError(name, "Parquet is not read from its beginning: write it to a file, unpacked")
    return Source(path, path, kind, compression, size)


# ---- files of this machine


def _on_this_machine(name: str, may_be_glob: bool) -> list[Source]:
    try:
        status = os.stat(name)
    except OSError:
        if not (may_be_glob and glob.has_magic(name)):
            raise
        matches = [match for match in sorted(glob.glob(name, recursive=True)) if not os.path.isdir(match)]
        if not matches:
            raise FileNotFoundError(2, "no file matches", name) from None
        return [_file(match, os.stat(match)) for match in matches]
    if not stat.S_ISDIR(status.st_mode):
        return [_file(name, status)]
    paths = []
    for folder, folders, files in os.walk(name, onerror=_raise):
        folders[:] = [each for each in folders if not each.startswith(".")]
        paths += [os.path.join(folder, each) for each in files if not each.startswith(".") and kind_of(each)]
    paths.sort(key=lambda path: path.split(os.sep))
    return _some([_file(path, os.stat(path)) for path in paths], name)


def _raise(fault: OSError) -> NoReturn:
    raise fault


def _file(name: str, status: os.stat_result) -> Source:
    if not stat.S_ISREG(status.st_mode):        # to open a pipe would be to wait for its writer
        return _named_outright(name, name, None)
    with open(name, "rb") as file:
        has_size = status.st_size or not file.read(1)       # what lies in /proc has none
    return _named_outright(name, name, status.st_size if has_size else None)


def _some(found: list[Source], folder: str) -> list[Source]:
    if not found:
        kinds, compressions = ", ".join(KINDS), ", ".join(COMPRESSIONS)
        reason = f"no file in this folder is named {kinds}, packed ({compressions}) or not; name others one by one"
        raise FileNotFoundError(2, reason, folder)
    return found


# ---- files elsewhere


def _at_url(url: str) -> list[Source]:
    core = needed("fsspec", f"{url}: URLs").core
    try:
        fs, path = core.url_to_fs(url)
    except (ImportError, ValueError) as refusal:     # s3 without s3fs; a scheme that fsspec does not know
        raise type(refusal)(f"{url}: {refusal}") from None
    try:
        info = fs.info(path)
    except FileNotFoundError as fault:
        reason = fault.__cause__
        if url.startswith(WEB) and reason and getattr(reason, "status", None) != 404:
            raise OSError(f"{url}: cannot be read: {reason}") from fault
        if not glob.has_magic(path):
            raise FileNotFoundError(2, "is not there", url) from None
        matches = {match: each for match, each in fs.glob(path, detail=True).items() if each["type"] != "directory"}
        if not matches:
            raise FileNotFoundError(2, "no file matches", url) from None
        return [_remote_file(fs, match, matches[match]) for match in sorted(matches)]
    if info["type"] != "directory":
        return [_named_outright(_without_query(url), url, info.get("size"))]
    within = len(path.rstrip("/"))
    listed = fs.find(path, detail=True)
    return _some(
        [
            _remote_file(fs, each, listed[each])
            for each in sorted(listed, key=lambda each: each.split("/"))
            if kind_of(each) and "/." not in each[within:]
        ],
        url,
    )


def _remote_file(fs: Any, path: str, info: dict[str, Any]) -> Source:
    return _named_outright(_without_query(path), fs.unstrip_protocol(path), info.get("size"))


def _without_query(url: str) -> str:
    """"https://a.org/b.jsonl?download=1" -> "https://a.org/b.jsonl"."""
    return url.split("?")[0] if url.startswith(WEB) else url


# ---- row groups


def _with_row_groups(found: list[Source]) -> list[Source]:
    """The sources with each Parquet file replaced by its row groups. Footers that are far away are fetched together."""
    far = [source for source in found if source.kind == "parquet" and source.is_url]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        fetched = iter(list(pool.map(_row_groups, far)))
    sources: list[Source] = []
    for source in found:
        if source.kind != "parquet":
            sources.append(source)
        else:
            sources += next(fetched) if source.is_url else _row_groups(source)
    return sources


def _row_groups(source: Source) -> list[Source]:
    from cbpe.inputs.streams import open_parquet

    with open_parquet(source) as file:
        columns = tuple(file.schema_arrow.names)
        return list(_each_row_group(source.path, file.metadata, columns))


def _each_row_group(path: str, metadata: Any, columns: tuple[str, ...]) -> Iterator[Source]:
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        name = f"{path}#{i}"
        yield Source(name, path, "parquet", None, group.total_byte_size, i, group.num_rows, columns)
