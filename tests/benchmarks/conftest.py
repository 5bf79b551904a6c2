"""Small corpora for the benchmarks: the standard library's own sources, which every machine has.

    pytest tests/benchmarks --benchmark-enable      # without the option each benchmark runs once, as a test
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

CORPUS_BYTES = 2_000_000


@pytest.fixture(scope="session")
def corpus() -> str:
    """About CORPUS_BYTES of Python source, in the same order every time."""
    texts: list[str] = []
    size = 0
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        texts.append(path.read_bytes().decode("utf-8", "replace"))
        size += path.stat().st_size
        if size >= CORPUS_BYTES:
            break
    return "".join(texts)


@pytest.fixture(scope="session")
def corpus_file(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "stdlib.txt"
    path.write_bytes(corpus.encode())
    return path
