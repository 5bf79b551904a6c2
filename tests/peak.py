"""How tests measure the memory of a program that they start."""

from __future__ import annotations

import sys

import pytest
from budget import WATCHED

# Of getrusage's ru_maxrss a child inherits its parent's part, across exec; this is the process's own.
PEAK_MEMORY = """
def peak_memory():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
"""
needs_peak_memory = pytest.mark.skipif(
    sys.platform != "linux" or WATCHED, reason="peak memory is read from /proc, and is the modules' own"
)
