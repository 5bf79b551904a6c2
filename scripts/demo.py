"""Trains a tokenizer on the Python standard library's own sources, encodes them, decodes them, and says how it went.

    python scripts/demo.py        # scripts/demo.sh makes an environment with cbpe first

Every machine with Python has this corpus: some 10 to 40 MB of code and English.
"""

from __future__ import annotations

import os
import platform
import sysconfig
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import cbpe

VOCAB_SIZE = 8192
SAMPLE = "def encode(self, text: str) -> list[int]:  # a line of Python"


def standard_library() -> list[Path]:
    """The .py files of the standard library that are UTF-8 (a few are there to test other encodings)."""
    paths = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if "site-packages" in path.parts or "dist-packages" in path.parts:
            continue
        try:
            path.read_bytes().decode()
        except UnicodeDecodeError:
            continue
        paths.append(path)
    return paths


def main() -> None:
    print(f"cbpe {version('cbpe')}, Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores")

    paths = standard_library()
    text = "".join(path.read_bytes().decode() for path in paths)      # bytes first: no newline is translated
    size = len(text.encode())
    print(f"corpus   {len(paths):,} files of the standard library, {size / 1e6:.1f} MB")

    tokenizer = cbpe.RegexTokenizer()
    start = time.perf_counter()
    tokenizer.train_from_files(paths, VOCAB_SIZE)
    seconds = time.perf_counter() - start
    print(f"train    {len(tokenizer.vocab):,} tokens in {seconds:.2f} s ({size / seconds / 1e6:.0f} MB/s)")

    start = time.perf_counter()
    ids = tokenizer.encode(text)
    seconds = time.perf_counter() - start
    speed = f"{size / seconds / 1e6:.0f} MB/s"
    print(f"encode   {len(ids):,} ids in {seconds:.2f} s ({speed}), {size / len(ids):.2f} bytes a token")

    start = time.perf_counter()
    decoded = tokenizer.decode(ids)
    seconds = time.perf_counter() - start
    if decoded != text:
        raise SystemExit("error: decoding did not give back the text")
    print(f"decode   {size / 1e6:.1f} MB in {seconds:.2f} s ({size / seconds / 1e6:.0f} MB/s), equal to the text")

    print(f"sample   {SAMPLE!r}")
    print("         " + "|".join(tokenizer.decode([token]) for token in tokenizer.encode(SAMPLE)))

    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(str(Path(folder) / "stdlib"))
        model = Path(folder) / "stdlib.model"
        again = cbpe.RegexTokenizer()
        again.load(str(model))
        if again.encode(SAMPLE) != tokenizer.encode(SAMPLE):
            raise SystemExit("error: the saved model does not encode as the trained one")
        print(f"save     {model.name}, {model.stat().st_size / 1e3:.0f} kB, loads back and encodes the same")


if __name__ == "__main__":
    main()
