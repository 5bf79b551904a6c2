"""What fuzzing once found stays mended: each file in fuzz_corpus/TARGET is tried again, by the function of its name in
fuzz_targets.py. And scripts/fuzz.py itself: it makes inputs, and knows one that crashes the process or hangs it.
"""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import sys
import time
from pathlib import Path
from types import ModuleType

import fuzz_targets
import pytest
from budget import SHORT, limits_memory

pytestmark = pytest.mark.native

CORPUS = Path(__file__).parent / "fuzz_corpus"
SCRIPT = Path(__file__).parent.parent / "scripts" / "fuzz.py"
FINDS = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", FINDS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_find_is_none_any_more(path: Path, tmp_path: Path) -> None:
    fuzz_targets.run(path.parent.name, path.read_bytes(), tmp_path)


@pytest.mark.parametrize("name", fuzz_targets.TARGETS)
def test_a_target_takes_its_seeds_and_what_is_made_of_them(name: str, tmp_path: Path, fuzz: ModuleType) -> None:
    target = fuzz_targets.TARGETS[name]
    seeds = target.seeds()
    assert sum(fuzz_targets.run(name, data, tmp_path) for data in seeds) > 0
    rng = random.Random(name)
    deadline = time.process_time() + (0.1 if SHORT else 0.5)
    while time.process_time() < deadline:
        fuzz_targets.run(name, fuzz.changed(rng.choice(seeds), seeds, target, rng), tmp_path)
    assert not list(tmp_path.iterdir())


def test_changes_are_those_of_the_seed(fuzz: ModuleType) -> None:
    target = fuzz_targets.TARGETS["store"]
    seeds = target.seeds()
    one, two = ([fuzz.changed(seeds[0], seeds, target, random.Random(n)) for n in range(50)] for _ in range(2))
    assert one == two
    assert len(set(one)) > 45


def raising(data: bytes, folder: Path) -> bool:
    if b"bad" in data:
        raise KeyError("a find")
    return True


def test_a_find_is_kept_and_shortened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fuzz: ModuleType) -> None:
    target = fuzz_targets.Target(raising, lambda: [b"a" * 100 + b"bad" + b"b" * 100], (), None)
    monkeypatch.setitem(fuzz_targets.TARGETS, "raising", target)
    fuzz.work("raising", "0", 0.2, 60.0, tmp_path / "finds", tmp_path)
    found, told = sorted((tmp_path / "finds").iterdir())
    assert found.read_bytes() == b"bad"
    assert "KeyError: 'a find'" in told.read_text()


@limits_memory
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="processes end by signals on Unix")
@pytest.mark.parametrize(
    ("code", "told"), [("os.kill(os.getpid(), signal.SIGKILL)", "status -9"), ("time.sleep(60)", "fuzz_target")]
)
def test_an_input_that_ends_or_hangs_the_process_is_kept(
    code: str, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fuzz: ModuleType
) -> None:
    # the process is a program that has one target of its own
    (tmp_path / "program.py").write_text(
        f"import os, runpy, signal, sys, time\nsys.path.insert(0, {os.fspath(CORPUS.parent)!r})\nimport fuzz_targets\n"
        f"def fuzz_target(data, folder):\n    {code}\n"
        "fuzz_targets.TARGETS['bad'] = fuzz_targets.Target(fuzz_target, lambda: [b'input'], (), None)\n"
        f"sys.argv[0] = {os.fspath(SCRIPT)!r}\nrunpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    monkeypatch.setattr(fuzz, "__file__", os.fspath(tmp_path / "program.py"))
    assert fuzz.fuzz("bad", "0", 1.0, 0.5, tmp_path / "finds")
    found = [path for path in (tmp_path / "finds").iterdir() if path.suffix != ".txt"]
    assert [path.read_bytes() for path in found] == [b"input"]
    assert told in found[0].with_name(f"{found[0].name}.txt").read_text()


def test_replaying_an_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, fuzz: ModuleType,
                            tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(b"minbpe v1\n\n0\n97 98\n")
    monkeypatch.setattr(sys, "argv", ["fuzz.py", "model", "--replay", str(tmp_path / "input")])
    assert fuzz.main() == 0
    assert capsys.readouterr().out == "taken\n"
