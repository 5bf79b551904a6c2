from collections.abc import Iterable
from typing import Any, SupportsIndex, final

import numpy.typing as npt

@final
class Decoder:
    """Turns ids into bytes."""

    def __new__(cls, tokens: dict[int, bytes]) -> Decoder: ...
    def decode_bytes(self, ids: Iterable[SupportsIndex] | npt.NDArray[Any]) -> bytes: ...
