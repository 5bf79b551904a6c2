from collections.abc import Iterable
from typing import Any, SupportsIndex, final

import numpy as np
import numpy.typing as npt

def add_merged(tokens: dict[int, bytes], pairs: npt.NDArray[np.uint32], ids: npt.NDArray[np.uint32]) -> None: ...
@final
class Decoder:
    """Turns ids into bytes."""

    def __new__(cls, tokens: dict[int, bytes]) -> Decoder: ...
    def decode_bytes(self, ids: Iterable[SupportsIndex] | npt.NDArray[Any]) -> bytes: ...
