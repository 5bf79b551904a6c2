"""Files that are written whole or not at all, and scratch files, of which nothing is left.

A scratch file has no name (on Windows: the system deletes it when it is closed): it is gone when nobody holds it open
or mapped any more, however the process ends.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, BinaryIO, TypeAlias

StrPath: TypeAlias = "str | os.PathLike[str]"


@contextmanager
def atomic_write(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[BinaryIO]:
    """Opens a file for bytes that takes the place of path when the block ends, and leaves path as it was if it fails.

    The bytes go to a new file in the same folder, which is flushed to the disk (unless durable is False: then a machine
    that loses power soon afterwards may lose the file) and renamed. A file that is replaced
    hands on its permissions; one that may not be written, is refused. A link is followed. What is no file (a pipe,
    /dev/stdout) cannot be replaced and is written to directly. An OSError of writing names path.

    The new file has no name before it is complete where the system can do that (Linux, on most file systems), so that a
    process that is killed leaves nothing. Elsewhere it may leave path.1a2b3c4d.tmp, which nothing reads.
    """
    target = os.path.realpath(path)
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not (stat.S_ISREG(mode) and os.access(target, os.W_OK)):
        with open(target, "wb") as file:            # raises what is wrong with a folder or a protected file
            yield file
        return
    temporary = f"{target}.{secrets.token_hex(4)}.tmp"
    with _written_for(path):
        descriptor, is_named = _open_new(temporary)
    try:
        with io.BufferedWriter(_Target(descriptor, path)) as file:
            yield file
            with _written_for(path):
                file.flush()
                if durable:
                    os.fsync(descriptor)
                if not is_named:
                    _give_name(descriptor, temporary)
        with _written_for(path):
            if mode is not None:
                os.chmod(temporary, stat.S_IMODE(mode))
            os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):     # that is not what went wrong
            os.unlink(temporary)
        raise


def _open_new(temporary: str) -> tuple[int, bool]:
    """A descriptor to write a new file with, and whether it has its name; otherwise it gets it from the caller."""
    if sys.platform == "linux" and os.path.isdir("/proc/self/fd"):
        try:
            return os.open(os.path.dirname(temporary), os.O_RDWR | os.O_TMPFILE, 0o666), False
        except OSError as fault:
            if fault.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
                raise
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return os.open(temporary, flags, 0o666), True       # less what the umask forbids


def _give_name(descriptor: int, name: str) -> None:
    """Names the whole file that a descriptor is of. Where links are forbidden (Android), it is copied."""
    opened = f"/proc/self/fd/{descriptor}"
    try:
        os.link(opened, name, src_dir_fd=descriptor)        # src_dir_fd has it follow the link
    except OSError:
        with open(opened, "rb") as file, open(name, "xb") as copy:
            shutil.copyfileobj(file, copy)
            copy.flush()
            os.fsync(copy.fileno())


@contextmanager
def _written_for(path: str | os.PathLike[str]) -> Iterator[None]:
    """Has an OSError name the file that the caller knows."""
    try:
        yield
    except OSError as fault:
        raise OSError(fault.errno, fault.strerror, os.fspath(path)) from None


class _Target(io.FileIO):
    """A file whose write says for which one it is: the system's error for a full disk names none."""

    def __init__(self, descriptor: int, path: str | os.PathLike[str]) -> None:
        super().__init__(descriptor, "wb")
        self._path = path

    def write(self, data: Any) -> int:
        with _written_for(self._path):
            return super().write(data)


@contextmanager
def naming(scratch_dir: StrPath | None) -> Iterator[None]:
    """Has an OSError that names no file (the disk is full) name the folder; a map without room is a MemoryError."""
    try:
        yield
    except OSError as fault:
        if fault.errno == errno.ENOMEM:
            raise MemoryError("no address space to map a scratch file") from None
        if fault.filename is not None or fault.errno is None:
            raise
        folder = os.fspath(scratch_dir or tempfile.gettempdir())
        reason = f"{fault.strerror} (scratch files; scratch_dir= names another place)"
        raise type(fault)(fault.errno, reason, folder) from None


def scratch_file(scratch_dir: StrPath | None) -> IO[bytes]:
    """A new scratch file in a folder; None: the system's for temporary files. Raises OSError."""
    return tempfile.TemporaryFile(dir=scratch_dir, prefix="cbpe-")


def scratch_map(scratch_dir: StrPath | None, n_bytes: int) -> mmap.mmap:
    """A new scratch file of n_bytes zeros, mapped for reading and writing. Raises OSError.

    The disk's space is taken now: a map that finds the disk full later kills the process.
    """
    with naming(scratch_dir), scratch_file(scratch_dir) as file:
        if not _allocated(file, n_bytes):
            for start in range(0, n_bytes, 1 << 20):
                file.write(bytes(min(1 << 20, n_bytes - start)))
            file.flush()
        return mmap.mmap(file.fileno(), n_bytes)


def _allocated(file: IO[bytes], n_bytes: int) -> bool:
    """Whether the system could take the space without writing to it. Not every one can, nor every file system."""
    if sys.platform == "linux":
        try:
            os.posix_fallocate(file.fileno(), 0, n_bytes)
            return True
        except OSError as fault:
            if fault.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
    return False
