"""Where tests run: in an empty folder, with the cbpe that this process imported, in one process or in several.

Programs that tests start with `python -c` look for modules in the current folder first. In the checkout that is cbpe/
without its compiled modules; in an empty folder it is nothing, and PYTHONPATH says where cbpe is, be it installed or
built in place.
A shell that starts tests in the background has them ignore Ctrl-C, and so would the programs to which tests send it:
here it is heard.
Tests that look at the clock are marked alone: no other test runs in the meantime, in whichever process.
Files whose tests are about the C code, with little Python around it, are marked native: see scripts/test.sh.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from budget import COVERAGE, DEBUG, SANITIZED, SHORT

import cbpe

signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: runs while no other test does")
    config.addinivalue_line("markers", "native: is about the C code")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A short run tries a third of the values of a test that has three or more; which third depends on the version of
    Python. But C code that is watched is given all, and so is everything when lines are counted.
    """
    if not SHORT or COVERAGE:
        return
    tests: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        is_left_out = any(mark.args[:1] == (True,) for mark in item.iter_markers("skipif"))
        if not is_left_out and not ((SANITIZED or DEBUG) and item.get_closest_marker("native")):
            tests[item.nodeid.partition("[")[0]].append(item)
    for values in tests.values():
        for number, item in enumerate(values):
            if len(values) >= 3 and number % 3 != sys.version_info.minor % 3:
                item.add_marker(pytest.mark.skip(reason="left to other short runs"))


@pytest.fixture(scope="session", autouse=True)
def outside_the_checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("outside"))
        patch.setenv("PYTHONPATH", str(Path(cbpe.__file__).parent.parent))
        yield


if "PYTEST_XDIST_WORKER" in os.environ and os.name == "posix":
    import fcntl

    @pytest.fixture(scope="session")
    def locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
        """Two files that all workers share: the room in which tests run, and the door to it."""
        folder = tmp_path_factory.getbasetemp().parent
        files = [os.open(folder / name, os.O_CREAT | os.O_RDWR) for name in ("room", "door")]
        yield files[0], files[1]
        for file in files:
            os.close(file)

    @pytest.fixture(autouse=True)
    def room(request: pytest.FixtureRequest, locks: tuple[int, int]) -> Iterator[None]:
        """Many tests share the room, one marked alone has it to itself; who waits at the door is not overtaken."""
        room, door = locks
        alone = request.node.get_closest_marker("alone") is not None
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield
        fcntl.flock(room, fcntl.LOCK_UN)
