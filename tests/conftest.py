"""Where tests run: in an empty folder, with the cbpe that this process imported.

Programs that tests start with `python -c` look for modules in the current folder first. In the checkout that is cbpe/
without its compiled modules; in an empty folder it is nothing, and PYTHONPATH says where cbpe is, be it installed or
built in place.
A shell that starts tests in the background has them ignore Ctrl-C, and so would the programs to which tests send it:
here it is heard.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import cbpe

signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def outside_the_checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("outside"))
        patch.setenv("PYTHONPATH", str(Path(cbpe.__file__).parent.parent))
        yield
