"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO


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
    descriptor = os.open(temporary, flags, 0o666)   # less what the umask forbids
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
