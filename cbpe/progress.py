"""Bars that show on stderr how far a job has come."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm


class Hidden:
    """In place of a bar that nobody sees.

    tqdm's own, even if disabled, starts a thread that stays, and takes a lock that is shared with all forked processes:
    where one of them is killed at the wrong moment, all others wait for ever.
    """

    def update(self, n: float) -> None:
        pass

    def close(self) -> None:
        pass

    def __enter__(self) -> Hidden:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass


class Bar(tqdm):      # type: ignore[type-arg]
    """A bar of tqdm's without the thread that looks after slow ones: it looks at the clock at each update instead."""

    monitor_interval = 0


def progress_bar(progress: bool | None, total: int | None, desc: str, **how: Any) -> Bar | Hidden:
    """A bar that counts bytes if how, which is tqdm's, does not say otherwise. progress: None shows it on a terminal
    only.
    """
    stderr = sys.stderr
    if stderr is None or getattr(stderr, "closed", False):      # a program of Windows without a console has none
        return Hidden()
    if not (getattr(stderr, "isatty", bool)() if progress is None else progress):
        return Hidden()
    return Bar(total=total, desc=desc, leave=False, miniters=1, **{"unit": "B", "unit_scale": True, **how})
