"""Builds the Cython modules; everything else about the package stands in pyproject.toml.

Every cbpe/**/*.pyx becomes one extension module. No module needs numpy's headers: arrays cross the border as buffers.
CBPE_DEBUG=1 builds with bounds, overflow and initialisation checks and without optimisation.
"""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("CBPE_DEBUG") == "1"

if sys.platform == "win32":
    compile_args = ["/Od", "/Zi"] if DEBUG else ["/O2"]
else:
    compile_args = ["-O0", "-g"] if DEBUG else ["-O3", "-g0"]
    compile_args += ["-Wall", "-Wextra"]
    # Cython's own code is what these three would speak of.
    compile_args += ["-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-cast-function-type"]

modules = sorted(Path("cbpe").rglob("*.pyx"))
extensions = [
    Extension(
        ".".join(path.with_suffix("").parts),
        [path.as_posix()],
        depends=[p.as_posix() for p in [*path.parent.glob("*.h"), *Path("cbpe").rglob("*.pxd")]],
        include_dirs=["cbpe"],
        extra_compile_args=compile_args,
    )
    for path in modules
]

setup(
    ext_modules=cythonize(
        extensions,
        build_dir="build/cython",
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
