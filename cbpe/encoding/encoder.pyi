from typing import final

import numpy as np
import numpy.typing as npt

from cbpe.splitting.split import Splitter

@final
class Encoder:
    """Turns text into ids by a list of merges."""

    def __new__(
        cls,
        pairs: npt.NDArray[np.uint32],
        ids: npt.NDArray[np.uint32],
        byte_ids: bytes | None = None,
    ) -> Encoder: ...
    def encode(self, text: bytes, splitter: Splitter) -> list[int]: ...
    def encode_to_numpy(self, text: bytes, splitter: Splitter) -> npt.NDArray[np.uint32]: ...
    def count(self, text: bytes, splitter: Splitter) -> int: ...
    def encode_chunk(self, chunk: bytes) -> list[int]: ...
    def _encode_chunk_counted(self, chunk: bytes) -> tuple[list[int], int]: ...
