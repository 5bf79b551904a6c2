"""Builds the Cython modules; everything else about the package stands in pyproject.toml.

Every cbpe/**/*.pyx becomes one extension module. No module needs numpy's headers: arrays cross the border as buffers.
Cython's own code for typed memoryviews is compiled once, as cbpe._cython, and not once a module: half the build's time.

Three environment variables build for other ends than speed; scripts/test.sh tests what the first two build:
CBPE_DEBUG=1 checks bounds, overflow and initialisation, and does not optimise.
CBPE_SANITIZE=address,undefined has gcc watch the C code for faults of these kinds while it runs.
CBPE_COVERAGE=1 has gcc count the lines of C that run, for scripts/coverage.sh.
"""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("CBPE_DEBUG") == "1"
COVERAGE = os.environ.get("CBPE_COVERAGE") == "1"
SANITIZE = os.environ.get("CBPE_SANITIZE", "")
SHARED = "cbpe._cython"

link_args = []
if sys.platform == "win32":
    if SANITIZE:
        sys.exit("CBPE_SANITIZE is for gcc and clang")
    compile_args = ["/Od", "/Zi"] if DEBUG else ["/O2"]
else:
    if SANITIZE:
        # Python's flags let signed numbers wrap around; other compilers need not.
        compile_args = ["-O1", "-g", f"-fsanitize={SANITIZE}", "-fno-omit-frame-pointer", "-fno-wrapv"]
        link_args = [f"-fsanitize={SANITIZE}"]
    elif COVERAGE:
        compile_args = ["-O0", "-g0", "--coverage", "-fprofile-update=atomic"]
        link_args = ["--coverage"]
    else:
        compile_args = ["-O0", "-g"] if DEBUG else ["-O3", "-g0"]
    compile_args += ["-Wall", "-Wextra"]
    # Cython's own code is what these three would speak of.
    compile_args += ["-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-cast-function-type"]


def module(path: Path) -> Extension:
    return Extension(
        ".".join(path.with_suffix("").parts),
        [path.as_posix()],
        depends=[p.as_posix() for p in [*path.parent.glob("*.h"), *Path("cbpe").rglob("*.pxd")]],
        include_dirs=["cbpe"],
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )


setup(
    ext_modules=cythonize(
        [
            *map(module, sorted(Path("cbpe").rglob("*.pyx"))),
            Extension(SHARED, [], extra_compile_args=compile_args, extra_link_args=link_args),
        ],
        # Cython looks at times alone when it asks whether a module's C is what its directives make of it.
        build_dir="build/cython-debug" if DEBUG else "build/cython",
        shared_utility_qualified_name=SHARED,
        compiler_directives={
            "language_level": 3,
            "boundscheck": DEBUG,
            "wraparound": False,
            "initializedcheck": DEBUG,
            "overflowcheck": DEBUG,
            "cdivision": not DEBUG,
            "embedsignature": True,
        },
    ),
    options={"build_ext": {"parallel": os.cpu_count()}},
)
