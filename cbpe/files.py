"""Files that are written whole or not at all, and scratch files, of which nothing is left.

A scratch file has no name (on Windows: the system deletes it when it is closed): it is gone when nobody holds it open
or mapped any more, however the process ends.
"""

from __future__ import annotations

import errno
import mmap
import os
import secrets
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, BinaryIO, TypeAlias

StrPath: TypeAlias = "str | os.PathLike[str]"


@contextmanager
def atomic_write(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[BinaryIO]:
    """Opens a file for bytes that takes the place of path when the block ends, and leaves path as it was if it fails.

    The bytes go to a new file in the same folder, which is flushed to the disk (unless durable is False: then a machine
    that loses power soon afterwards may lose the file) and renamed. A file that is replaced
    hands on its permissions; one that may not be written, is refused. A link is followed. What is no file (a pipe,
    /dev/stdout) cannot be replaced and is written to directly.
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
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(temporary, flags, 0o666)   # less what the umask forbids
    except OSError as fault:
        fault.filename = os.fspath(path)            # the name that the caller knows
        raise
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if mode is not None:
            os.chmod(temporary, stat.S_IMODE(mode))
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):     # that is not what went wrong
            os.unlink(temporary)
        raise


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
