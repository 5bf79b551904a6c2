"""How long the tests may take: how many random examples a property gets, and which tests a short run leaves out.

CBPE_TESTS=short is for the suite's second and third run: with another Python, or with the C code under watch. Random
tests then get a tenth of their examples, and those marked thorough are left out: they go through all code points, all
short strings or all published vocabularies, and what the C code makes of those does not depend on the Python around it.
Of a test's other values tests/conftest.py leaves a third.
CBPE_DEBUG, CBPE_SANITIZE and CBPE_COVERAGE, as setup.py has them, say that the modules were built so. A sanitizer takes
terabytes of address space and several times the memory, so tests that limit or measure memory cannot run; and all three
take several times as long.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")

SHORT = os.environ.get("CBPE_TESTS") == "short"
SANITIZED = bool(os.environ.get("CBPE_SANITIZE"))
COVERAGE = bool(os.environ.get("CBPE_COVERAGE"))
WATCHED = SANITIZED or COVERAGE
DEBUG = os.environ.get("CBPE_DEBUG") == "1"
SLOWER = 10 if WATCHED or DEBUG else 1          # by how much, at most

thorough = pytest.mark.skipif(SHORT, reason="left out of short runs")
limits_memory = pytest.mark.skipif(WATCHED, reason="memory is not what it is without a sanitizer")


def mostly_thorough(values: Iterable[T], *kept: T) -> list[Any]:
    """The values of a parametrised test, all but those kept marked thorough."""
    return [value if value in kept else pytest.param(value, marks=thorough) for value in values]


def times(n: int) -> int:
    """n, and in a short run a tenth of it, but no less than 5."""
    return max(n // 10, 5) if SHORT else n


def examples(n: int) -> settings:
    """The decorator of a property that is tried with so many random examples, or fewer: see times."""
    return settings(max_examples=times(n), deadline=None)


settings.register_profile("cbpe", examples(100))        # for properties without that decorator
settings.load_profile("cbpe")


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fails if the processor takes longer for what is done in it: for what takes minutes if it is not linear."""
    begin = time.process_time()
    yield
    assert time.process_time() - begin < seconds * SLOWER
