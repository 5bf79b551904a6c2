"""The report of scripts/coverage.sh: which lines ran, of Python as coverage saw it, of Cython and C headers as gcc did.

    coverage json -o python.json && python scripts/coverage_report.py python.json

Cython precedes the C of each line by a comment that names the line, so the counts of what follows are that line's. A
line of several statements, or of one that can fail, has several counts; it ran if one of them is not 0.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from itertools import groupby
from pathlib import Path

SOURCE = re.compile(r'\s*/\* "(cbpe/[^"]+)":(\d+)$')
BETWEEN = ("/* function exit code */", "Code section:")        # behind these is nothing that any line says
KINDS = {"Python": (".py",), "Cython": (".pyx", ".pxd"), "C headers": (".h",)}

Counts = dict[str, dict[int, int]]      # of each file, how often each line ran


def count_python(path: Path) -> Counts:
    """Of Python only whether a line ran: 1 or 0."""
    counts: Counts = {}
    for name, file in json.loads(path.read_text(encoding="utf-8"))["files"].items():
        inside = name[name.rindex("/cbpe/") + 1 :]          # in whatever folder it is installed
        counts[inside] = dict.fromkeys(file["executed_lines"], 1) | dict.fromkeys(file["missing_lines"], 0)
    return counts


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


def count_c() -> Counts:
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


def row(name: str, n_lines: int, missed: list[int], where: str = "") -> str:
    """A percentage is cut and not rounded, so that 100 % is all."""
    percent = 1000 * (n_lines - len(missed)) // max(n_lines, 1) / 10
    return f"{name:32} {n_lines:>7} {len(missed):>7} {percent:>7}%   {where}".rstrip()


def main() -> None:
    counts = {**count_python(Path(sys.argv[1])), **count_c()}
    totals = []
    print(f"{'':32} {'lines':>7} {'missed':>7} {'ran':>8}   lines that did not run")
    for kind, suffixes in KINDS.items():
        n_lines, all_missed = 0, []
        for name in sorted(name for name in counts if name.endswith(suffixes) and counts[name]):
            missed = sorted(number for number, times in counts[name].items() if times == 0)
            print(row(name, len(counts[name]), missed, as_ranges(missed)))
            n_lines += len(counts[name])
            all_missed += missed
        totals.append(row(f"all {kind}", n_lines, all_missed))
    print(*totals, sep="\n")


if __name__ == "__main__":
    main()
