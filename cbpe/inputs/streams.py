"""Sources as streams of bytes: opened wherever they lie, and unpacked.

In: a source. Out: a file object to be read once from its beginning, with what is compressed unpacked piece by piece, so
that memory stays bounded, however much comes out of how little. Compressed files may consist of several members or
frames, as pigz, pbzip2, pzstd and `cat` make them: all are read. One that ends too early, or is damaged, is an error
with the file's name, and never a corpus that is merely shorter. (The packages' own readers let some of that pass:
bz2's and lzma's a second stream with a damaged header, zstandard's a frame cut short.)
"""

from __future__ import annotations

import bz2
import io
import lzma
import select
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cbpe.errors import CorpusFormatError
from cbpe.inputs.extra import needed
from cbpe.inputs.sources import WEB, Source

AT_ONCE = 1 << 17           # bytes of a compressed file that are read at a time
UNPACKED = 1 << 20          # bytes that come out at a time, at most
BUFFER = 1 << 20            # bytes of a Parquet column that are read at a time

_ZST_WINDOW = 1 << 31       # the largest that the zstd tool makes, with --long=31


def open_raw(source: Source) -> Any:
    """The bytes of a source where it lies, as a file object to be read from its beginning. Raises OSError."""
    if source.path == "-":
        return _StandardInput()
    if source.is_url:
        return _Elsewhere(_open_url(source.path, **({"block_size": 0} if source.path.startswith(WEB) else {})), source)
    return open(source.path, "rb", buffering=0)


def open_to_jump(source: Source) -> Any:
    """The same to be read from any byte on; None if that is not possible: web servers may send whole files only."""
    if not source.is_url:
        return open(source.path, "rb", buffering=0)
    file = _open_url(source.path)
    try:
        file.seek(1)
        file.read(1)
        file.seek(0)
    except ValueError:
        file.close()
        return None
    return _Elsewhere(file, source)


def _open_url(url: str, **how: Any) -> Any:
    fs, path = needed("fsspec", f"{url}: URLs").core.url_to_fs(url)
    with _naming(url):
        file = fs.open(path, "rb", **how)
    # memory:// gives everybody the same object
    return io.BytesIO(file.getvalue()) if isinstance(file, io.BytesIO) else file


def open_stream(source: Source) -> Any:
    """The bytes of a source, unpacked. Raises OSError, ImportError; CorpusFormatError when damage is met."""
    raw = open_raw(source)
    return raw if source.compression is None else Unpacked(raw, source)


def open_stream_at(source: Source, offset: int) -> Any:
    """open_stream, from a byte on: by a jump if that is possible, otherwise by reading what stands before it."""
    shorter = f"{source.name}: is shorter than it was: byte {offset:,} was to be read"
    if offset and source.compression is None and source.size is not None:
        if offset > source.size:
            raise OSError(shorter)
        if file := open_to_jump(source):
            file.seek(offset)
            return file
    stream = open_stream(source)
    while offset:
        data = stream.read(min(offset, UNPACKED))
        if not data:
            stream.close()
            raise OSError(shorter)
        offset -= len(data)
    return stream


class Limited(io.RawIOBase):
    """The next n bytes of a file, which is left open. Raises OSError if it ends before."""

    def __init__(self, file: Any, n: int, name: str) -> None:
        self._file = file
        self._left = n
        self._name = name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(min(len(buffer), self._left))
        if not data and len(buffer) and self._left:
            raise OSError(f"{self._name}: became shorter while it was read: {self._left:,} bytes are not there")
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


def read_fully(stream: Any, n: int) -> bytes:
    """The next n bytes of a stream, fewer only at its end; pipes and packed files give as many as are at hand."""
    parts = []
    while n > 0 and (data := stream.read(n)):
        parts.append(data)
        n -= len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


@contextmanager
def _naming(url: str) -> Iterator[None]:
    """Has what a service's package raises, of whatever type, be an OSError that names the file."""
    try:
        yield
    except OSError:
        raise
    except Exception as fault:
        raise OSError(f"{url}: cannot be read: {fault}") from fault


class _Elsewhere(io.RawIOBase):
    """A file that a URL names."""

    def __init__(self, file: Any, source: Source) -> None:
        self._file = file
        self._url = source.path

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readinto(self, buffer: Any) -> int:
        with _naming(self._url):
            return int(self._file.readinto(buffer))

    def readall(self) -> bytes:
        with _naming(self._url):
            return bytes(self._file.read())

    def close(self) -> None:
        self._file.close()
        super().close()


class _StandardInput(io.RawIOBase):
    """Standard input, which is not ours to close.

    Without its buffer: a thread that waited for input with the buffer's lock would be fatal when the program ends.
    """

    def __init__(self) -> None:
        if sys.stdin is None:
            raise OSError("-: there is no standard input")
        self._file: Any = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # another program may have the pipe not block: None says that more will come, and 0 that this is the end
        while (n := self._file.readinto(buffer)) is None:
            select.select([self._file], [], [])
        return int(n)


class Unpacked(io.RawIOBase):
    """What a compressed file holds. n_read: how many bytes of the file went into what was given out so far."""

    def __init__(self, file: Any, source: Source) -> None:
        assert source.compression is not None
        self._raw = _Raw(file)
        self._name = source.name
        self._pieces = _UNPACKERS[source.compression](self._raw)
        self._piece = memoryview(b"")

    @property
    def n_read(self) -> int:
        return self._raw.n_read

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._piece:
            with _said_of(self._name):
                piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._piece = memoryview(piece)
        n = min(len(buffer), len(self._piece))
        buffer[:n] = self._piece[:n]
        self._piece = self._piece[n:]
        return n

    def close(self) -> None:
        self._raw.file.close()
        super().close()


@contextmanager
def _said_of(name: str) -> Iterator[None]:
    """Raises what the packages say of damaged files with the file's name. Errors of the system stay what they are."""
    try:
        yield
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as fault:
        if isinstance(fault, OSError) and fault.errno is not None:
            raise
        raise CorpusFormatError(name, f"the compressed file is cut short or damaged: {fault}") from fault


class _Raw:
    """A compressed file, of which some bytes may be put back."""

    def __init__(self, file: Any) -> None:
        self.file = file
        self.n_read = 0
        self._ahead = b""

    def some(self) -> bytes:
        """The next bytes, as many as are at hand; none at the end."""
        data: bytes = self._ahead or self.file.read(AT_ONCE)
        self._ahead = b""
        self.n_read += len(data)
        return data

    def put_back(self, data: bytes) -> None:
        self._ahead = data + self._ahead
        self.n_read -= len(data)

    def take(self, n: int) -> bytes:
        """The next n bytes. Raises EOFError if there are fewer."""
        data = self.some()
        while len(data) < n:
            more = self.some()
            if not more:
                raise EOFError(f"{n - len(data):,} bytes are missing at its end")
            data += more
        self.put_back(data[n:])
        return data[:n]


def _members(raw: _Raw, begin: Callable[[], Any], padding: bytes = b"") -> Iterator[bytes]:
    """Unpacks members one after another. begin: makes what unpacks one; padding: bytes that may stand behind one."""
    data = raw.some()
    if not data:
        raise EOFError("it is empty")
    while data:
        member = begin()
        yield member.decompress(data, UNPACKED)
        while not member.eof:
            data = raw.some() if member.needs_input else b""
            if member.needs_input and not data:
                raise EOFError("it ends before what is compressed does")
            yield member.decompress(data, UNPACKED)
        raw.put_back(member.unused_data)
        while (data := raw.some()) and not (data := data.lstrip(padding)):
            pass


class _GzipMember:
    """What unpacks a member of a gzip file, with the methods that those of bz2 and lzma have."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)
        self.needs_input = True

    def decompress(self, data: bytes, max_length: int) -> bytes:
        unpacked = self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)
        self.needs_input = not self._zlib.unconsumed_tail and len(unpacked) < max_length
        return unpacked

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data


def _zst_blocks(raw: _Raw) -> Iterator[bytes]:
    """Unpacks zst frames block by block, each of which holds 128 KB at most. The format is RFC 8878's.

    The package would unpack a frame cut short without a word, and a whole one only as a whole.
    """
    zstandard = needed("zstandard", ".zst files")
    unpacker = zstandard.ZstdDecompressor(max_window_size=_ZST_WINDOW)
    magic = raw.take(4)
    while magic:
        if magic[1:] == b"\x2a\x4d\x18" and magic[0] >> 4 == 5:        # a frame to be skipped
            raw.take(int.from_bytes(raw.take(4), "little"))
        elif magic != b"\x28\xb5\x2f\xfd":
            raise EOFError("no frame begins where one should")
        else:
            try:
                yield from _zst_frame(raw, unpacker.decompressobj(), magic)
            except zstandard.ZstdError as fault:
                raise EOFError(str(fault)) from fault
        data = raw.some()
        raw.put_back(data)
        magic = raw.take(4) if data else b""


def _zst_frame(raw: _Raw, frame: Any, magic: bytes) -> Iterator[bytes]:
    flags = raw.take(1)
    single, has_checksum = flags[0] >> 5 & 1, flags[0] >> 2 & 1
    size = (1 - single) + (0, 1, 2, 4)[flags[0] & 3] + (single, 2, 4, 8)[flags[0] >> 6]
    yield frame.decompress(magic + flags + raw.take(size))
    is_last = False
    while not is_last:
        head = raw.take(3)
        word = int.from_bytes(head, "little")
        is_last, repeats = bool(word & 1), word >> 1 & 3 == 1
        yield frame.decompress(head + raw.take(1 if repeats else word >> 3))
    if has_checksum:
        yield frame.decompress(raw.take(4))


_UNPACKERS: dict[str, Callable[[_Raw], Iterator[bytes]]] = {
    "gz": lambda raw: _members(raw, _GzipMember, padding=b"\0"),
    "bz2": lambda raw: _members(raw, bz2.BZ2Decompressor),
    "xz": lambda raw: _members(raw, lzma.LZMADecompressor, padding=b"\0"),
    "zst": _zst_blocks,
}


# ---- Parquet


def open_parquet(source: Source) -> Any:
    """A pyarrow.parquet.ParquetFile, to be closed. Raises OSError, ImportError, CorpusFormatError."""
    parquet = needed("pyarrow.parquet", "Parquet files")
    how = {"buffer_size": BUFFER, "pre_buffer": False}      # or a row group's column would be in memory as a whole
    with parquet_faults(source.path):
        if not source.is_url:
            return parquet.ParquetFile(source.path, **how)
        file = open_to_jump(source)
        if file is None:
            with open_raw(source) as whole:
                file = io.BytesIO(whole.read())
        return parquet.ParquetFile(file, **how)


@contextmanager
def parquet_faults(name: str) -> Iterator[None]:
    """Raises what pyarrow says of a file with the file's name."""
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as fault:
        if isinstance(fault, OSError) and fault.errno is not None:
            raise
        raise CorpusFormatError(name, f"cannot be read as Parquet: {fault}") from fault
