"""Which lines of Cython and of C headers ran, from what gcc counted: the second half of scripts/coverage.sh.

    CBPE_COVERAGE=1 python setup.py build_ext --inplace && pytest && python scripts/coverage_of_c.py

Cython precedes the C of each line by a comment that names the line, so the counts of what follows are that line's. A
line of several statements, or of one that can fail, has several counts; it ran if one of them is not 0.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from itertools import groupby
from pathlib import Path

SOURCE = re.compile(r'\s*/\* "(cbpe/[^"]+)":(\d+)$')
BETWEEN = ("/* function exit code */", "Code section:")        # behind these is nothing that any line says

Counts = dict[str, dict[int, int]]      # of each file, how often each line ran


def lines_of_c(path: Path) -> dict[int, tuple[str, int]]:
    """To which line of which source each line of generated C belongs."""
    owners = {}
    owner: tuple[str, int] | None = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if found := SOURCE.match(line):
            owner = found[1], int(found[2])
        elif any(words in line for words in BETWEEN):
            owner = None
        if owner is not None:
            owners[number] = owner
    return owners


def count() -> Counts:
    counts: Counts = defaultdict(lambda: defaultdict(int))
    for notes in sorted(Path("build").rglob("*.gcno")):
        command = ["gcov", "--json-format", "--stdout", str(notes)]
        done = subprocess.run(command, capture_output=True, check=True, text=True)
        for file in json.loads(done.stdout)["files"]:
            name = file["file"]
            owners = lines_of_c(Path(name)) if name.startswith("build/") else {}
            for line in file["lines"]:
                source = owners.get(line["line_number"]) if owners else (name, line["line_number"])
                if source is not None and source[0].startswith("cbpe/"):
                    counts[source[0]][source[1]] += line["count"]
    return counts


def as_ranges(numbers: list[int]) -> str:
    """[3, 4, 5, 9] -> "3-5, 9"."""
    runs = [list(run) for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    return ", ".join(str(run[0][1]) if len(run) == 1 else f"{run[0][1]}-{run[-1][1]}" for run in runs)


def main() -> None:
    n_lines = n_missed = 0
    for name, lines in sorted(count().items()):
        missed = sorted(number for number, times in lines.items() if times == 0)
        n_lines += len(lines)
        n_missed += len(missed)
        print(f"{name:40} {len(lines):6} {len(missed):6} {1 - len(missed) / len(lines):6.0%}   {as_ranges(missed)}")
    print(f"{'TOTAL of Cython and C':40} {n_lines:6} {n_missed:6} {1 - n_missed / n_lines:6.0%}")


if __name__ == "__main__":
    main()
