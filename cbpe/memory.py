"""Memory: sizes as people write them, what this process may still take, and errors that come before the kill.

A system that overcommits grants every request and kills the process when it uses what it was granted. So whoever is
about to take much asks here first, and learns in a MemoryError what is needed and what there is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
MOST = 1 << 62
WAYS_OUT = "give memory_limit=, or take a larger machine"


def parse_size(size: int | str | None, name: str = "memory_limit") -> int | None:
    """Bytes: 5 -> 5, "512MB" -> 512_000_000, "1.5GiB" -> 1_610_612_736, None -> None.

    Units without an i are decimal, whether a B follows or not. More than MOST is MOST. Raises TypeError, ValueError;
    name is for the message.
    """
    if size is None:
        return None
    if isinstance(size, bool) or not isinstance(size, (int, str)):
        raise TypeError(f'{name} is a number of bytes or a text such as "2GB", not {type(size).__name__}')
    number = float(min(size, MOST)) if isinstance(size, int) else 0.0
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([kmgt]?)(i?)b?\s*", size, re.IGNORECASE)
        if not match or (match[3] and not match[2]):
            raise ValueError(f'{name} is a number of bytes or a text such as "2GB", "512MB" or "1.5GiB", not {size!r}')
        number = float(match[1]) * (1024 if match[3] else 1000) ** UNITS[match[2].lower()]
    if number < 1:
        raise ValueError(f"{name} must be at least one byte, not {size!r}")
    return int(min(number, MOST))


def show_size(n_bytes: float) -> str:
    """12_345_678_900 -> "12.3 GB"."""
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if n_bytes >= 1000**power:
            return f"{n_bytes / 1000**power:.1f} {unit}"
    return f"{n_bytes:.0f} bytes"


def available() -> int | None:
    """Bytes that this process can still take: the least that machine, containers and limits leave; None if unknown.

    Known on Linux only. Swap counts as memory, and so do files in the page cache, for the system drops them on demand:
    to refuse what would have worked is worse than to miss what would not.
    """
    known = [*_of_machine(), *_of_control_groups(), *_of_limits()]
    return max(0, min(known)) if known else None


def require(n_bytes: int, need: str, ways_out: str = WAYS_OUT) -> None:
    """Raises MemoryError if n_bytes are known not to be there. need: "training needs {needed} for 5 cells"."""
    there = available()
    if there is not None and n_bytes > there:
        raise MemoryError(f"{need.format(needed=show_size(n_bytes))}, {show_size(there)} are available: {ways_out}")


def _read(path: Path | str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _numbers(path: Path | str) -> dict[str, int]:
    """What a file of lines like "MemFree: 12 kB" or "anon 300" says."""
    return {name: int(number) for name, number in re.findall(r"^(\w+):?\s+(\d+)", _read(path), re.MULTILINE)}


def _of_machine() -> Iterator[int]:
    info = _numbers("/proc/meminfo")
    if "MemAvailable" in info:
        yield 1024 * (info["MemAvailable"] + info.get("SwapFree", 0))


def _of_control_groups(root: Path = Path("/sys/fs/cgroup"), process: str = "/proc/self/cgroup") -> Iterator[int]:
    """What each group that holds this process leaves. A group within a container may be mounted as the root."""
    swap = 1024 * _numbers("/proc/meminfo").get("SwapFree", 0)
    for line in _read(process).splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers == "":
            base, limit, usage, cached = root, "memory.max", "memory.current", ("inactive_file", "active_file")
        elif "memory" in controllers.split(","):
            base, limit, usage = root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            cached = ("total_inactive_file", "total_active_file")
        else:
            continue
        folder = base / name.lstrip("/")
        for group in (folder, *folder.parents):
            most, used = _read(group / limit).strip(), _read(group / usage).strip()
            if most.isdecimal() and used.isdecimal():
                held = _numbers(group / "memory.stat")
                yield int(most) - int(used) + sum(held.get(name, 0) for name in cached) + swap
            if group == base:
                break


def _of_limits() -> list[int]:
    """What ulimit -v and ulimit -d leave."""
    left: list[int] = []
    if sys.platform != "win32":
        import resource

        status = _numbers("/proc/self/status")
        for name, kind in (("VmSize", resource.RLIMIT_AS), ("VmData", resource.RLIMIT_DATA)):
            limit = resource.getrlimit(kind)[0]
            if limit != resource.RLIM_INFINITY and name in status:
                left.append(limit - 1024 * status[name])
    return left
