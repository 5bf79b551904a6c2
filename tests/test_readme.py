"""The examples in the README run as they stand, and the tests that it names are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
EXAMPLES = [example for example in EXAMPLES if "import ray" not in example]     # those are test_distributed.py's


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("readme")


@pytest.fixture(scope="module")
def ran():
    """The numbers of the examples that this process has run."""
    return []


def test_there_are_examples():
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(number, folder, ran, monkeypatch):
    # they share their files, as they do for a reader; those before may have been another process's tests
    monkeypatch.chdir(folder)
    for each in range(len(ran), number + 1):
        exec(compile(EXAMPLES[each], f"README example {each}", "exec"), {})
        ran.append(each)


def test_promises_have_tests():
    named = re.findall(r"`(test_\w+)::(\w+)`", README.read_text(encoding="utf-8"))
    assert len(named) >= 20
    for file, test in named:
        source = Path(__file__).with_name(f"{file}.py").read_text(encoding="utf-8")
        assert re.search(rf"^def {test}\(", source, re.MULTILINE), f"no {test} in {file}.py"
