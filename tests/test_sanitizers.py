"""Where the modules were built with CBPE_SANITIZE, as scripts/test.sh can do it: a fault does not go unnoticed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cbpe.encoding import encoder
from cbpe.splitting import split
from cbpe.training import chunks

pytestmark = pytest.mark.native

KINDS = os.environ.get("CBPE_SANITIZE", "").split(",")
FAULTS = {
    "address": ("char *block = malloc(n); block[n] = 1; return block[n];", "heap-buffer-overflow"),
    "undefined": ("return 1 << n;", "shift exponent 40 is too large"),
}


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("module", [chunks, encoder, split])
def test_the_modules_are_watched(kind: str, module: object) -> None:
    if kind not in KINDS:
        pytest.skip(f"built without CBPE_SANITIZE={kind}")
    handlers = {"address": b"__asan_report_load", "undefined": b"__ubsan_handle"}
    assert handlers[kind] in Path(str(module.__file__)).read_bytes()


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_ends_the_process(tmp_path: Path, kind: str) -> None:
    if kind not in KINDS:
        pytest.skip(f"built without CBPE_SANITIZE={kind}")
    body, message = FAULTS[kind]
    (tmp_path / "fault.c").write_text(f"#include <stdlib.h>\nint fault(int n) {{ {body} }}\n")
    compiler = [os.environ.get("CC", "gcc"), "-shared", "-fPIC", f"-fsanitize={kind}", "fault.c", "-o", "fault.so"]
    subprocess.run(compiler, cwd=tmp_path, check=True, env={**os.environ, "LD_PRELOAD": ""})
    program = "import ctypes; print('before', flush=True); ctypes.CDLL('./fault.so').fault(40); print('behind')"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode != 0, done.stdout, message in done.stderr) == (True, "before\n", True), done
