"""Bars that show on stderr how far a job has come."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm


def progress_bar(progress: bool | None, total: int | None, desc: str, **how: Any) -> tqdm[Any]:
    """A bar of tqdm's, counting bytes if how does not say otherwise. progress: None shows it on a terminal only."""
    hidden = None if progress is None else not progress
    if sys.stderr is None:              # closed, or a program of Windows without a console: tqdm would fail to write
        hidden = True
    return tqdm(total=total, desc=desc, leave=False, disable=hidden, **{"unit": "B", "unit_scale": True, **how})
