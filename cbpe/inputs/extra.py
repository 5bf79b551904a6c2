"""Packages that only some kinds of input need: they are imported when such an input comes."""

from __future__ import annotations

import importlib
from typing import Any


def needed(module: str, what: str, extra: str = "data") -> Any:
    """The module. Raises ImportError that says what needs it, and which extra of cbpe has it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f'{what} need the package {package} ({error}): pip install "cbpe[{extra}]"') from error
