from collections.abc import Iterator, Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from cbpe.training.pairs import Arena
from cbpe.workspace import Workspace

MAX_MERGES: int
SCAN: int
STEPS: int

@final
class Merger:
    def __init__(self, arena: Arena, known: NDArray[np.uint32], spellings: Sequence[bytes] | None = None) -> None: ...

def learn(
    counts: NDArray[np.uint64],
    offsets: NDArray[np.uint64],
    data: NDArray[np.uint8],
    num_merges: int,
    min_frequency: int = 1,
    spread: float = 4.0,
    known: NDArray[np.uint32] | None = None,
    workspace: Workspace | None = None,
    spellings: Sequence[bytes] | None = None,
) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.int64]]]: ...
