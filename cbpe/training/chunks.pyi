from collections.abc import Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from cbpe.splitting.split import Splitter

@final
class ChunkCounter:
    def __init__(self, splitter: Splitter) -> None: ...
    def __len__(self) -> int: ...
    def count(self, text: Buffer, size: int, limit: int, is_last: bool, place: int, strict: bool) -> int: ...
    def add(self, text: Buffer, ends: NDArray[np.uint32], place: int) -> None: ...
    def count_texts(
        self, text: Buffer, begins: NDArray[np.uint64], ends: NDArray[np.uint64], places: NDArray[np.uint64]
    ) -> None: ...
    def drain(self, other: ChunkCounter) -> None: ...
    def add_counted(
        self,
        counts: NDArray[np.uint64],
        places: NDArray[np.uint64],
        offsets: NDArray[np.uint64],
        data: NDArray[np.uint8],
        shift: int,
    ) -> None: ...
    def result(
        self, others: Sequence[ChunkCounter] = ()
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint8]]: ...

def in_order_of_places(counters: list[ChunkCounter], n: int, bits: int) -> NDArray[np.uint64]: ...
