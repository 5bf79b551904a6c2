from collections.abc import Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from cbpe.splitting.split import Splitter

_Text = str | bytes

CACHE_BYTES: int

def encodable(text: str) -> str: ...
def all_encodable(texts: list[Any]) -> bool: ...

@final
class Encoder:
    """Turns text into ids by a list of merges."""

    def __new__(
        cls,
        pairs: npt.NDArray[np.uint32],
        ids: npt.NDArray[np.uint32],
        byte_ids: bytes | None = None,
        *,
        numbers: npt.NDArray[np.uint32] | None = None,
        whole: dict[bytes, int] | None = None,
        one_by_one: bool = False,
        _cache_bytes: int = ...,
    ) -> Encoder: ...
    def encode(self, text: _Text, splitter: Splitter, num_threads: int = 1) -> list[int]: ...
    def encode_to_numpy(self, text: _Text, splitter: Splitter, num_threads: int = 1) -> npt.NDArray[np.uint32]: ...
    def count(self, text: _Text, splitter: Splitter) -> int: ...
    def encode_batch(self, texts: Sequence[_Text], splitter: Splitter, num_threads: int = 1) -> list[list[int]]: ...
    def encode_batch_to_numpy(
        self, texts: Sequence[_Text], splitter: Splitter, num_threads: int = 1
    ) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]: ...
    def encode_chunk(self, chunk: bytes) -> list[int]: ...
    def _encode_chunk_counted(self, chunk: bytes) -> tuple[list[int], int]: ...
    def _encode_chunks(self, kept: bytes, ends: npt.NDArray[np.integer[npt.NBitBase]]) -> npt.NDArray[np.uint32]: ...
    def _memory(self) -> tuple[int, int]: ...
