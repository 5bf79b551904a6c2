"""Compiling a pattern from a file, after a look at it.

The regex package writes repetitions out: "(?:\\w{1000}){1000}" becomes a million items, and a few characters more take
all memory. How many there are at most, is told almost without knowing the syntax, so that no trick of syntax hides any:
only what stands behind something repeated or a group can repeat what is itself more than one item.
"""

from __future__ import annotations

import re

import regex

_MOST_ITEMS = 1_000_000         # which take about 250 MB
_REPETITION = re.compile(r"(\S|(?<!\s))\s*\{\s*(\d{1,10})")      # each whitespace is gone through once


def check_pattern(pattern: str) -> None:
    r"""Raises ValueError for a pattern that may be too large to compile or is nested too deeply, regex.error for what
    is none. "(?:\d{4}-){3}" has (13 + 4) * 3 items at most: from its length, a repetition of one item, one of a group.
    """
    single, groups = len(pattern), 1
    for before, number in _REPETITION.findall(pattern):
        if before in ")}+*?" or "#" in pattern:         # behind "#" there may be a comment that hides a ")"
            groups *= max(1, int(number))
        else:
            single += int(number)
    if single * groups > _MOST_ITEMS:
        raise ValueError(f"with its repetitions it is {single * groups:,} items long, too many to be compiled")
    try:
        regex.compile(pattern)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
