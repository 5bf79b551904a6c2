"""What holds ids without being a list or a numpy array.

Here and not in the decoder, which is compiled: what Cython makes of an except clause may crash where memory runs out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def as_array(ids: Any) -> npt.NDArray[Any] | None:
    """An array in all but name (array.array, memoryview, bytes, a tensor) as a numpy array; None for the rest."""
    if hasattr(ids, "__array__"):
        return np.asarray(ids)
    try:
        return np.asarray(memoryview(ids))
    except (TypeError, ValueError):     # no buffer, or one of things that numpy does not know
        return None
