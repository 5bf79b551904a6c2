"""Where tests run: in an empty folder, with the cbpe that this process imported.

Programs that tests start with `python -c` look for modules in the current folder first. In the checkout that is cbpe/
without its compiled modules; in an empty folder it is nothing, and PYTHONPATH says where cbpe is, be it installed or
built in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import cbpe


@pytest.fixture(scope="session", autouse=True)
def outside_the_checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("outside"))
        patch.setenv("PYTHONPATH", str(Path(cbpe.__file__).parent.parent))
        yield
