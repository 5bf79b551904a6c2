from typing import final

import numpy as np
from numpy.typing import NDArray

from cbpe.workspace import Workspace

MAX_CELLS: int
WAYS_OUT: str

@final
class Arena:
    def __init__(
        self,
        counts: NDArray[np.uint64],
        offsets: NDArray[np.uint64],
        data: NDArray[np.uint8],
        num_merges: int,
        workspace: Workspace | None = None,
    ) -> None: ...

@final
class PairIndex:
    def __init__(self, workspace: Workspace) -> None: ...

@final
class PairSurvey:
    def __init__(self, arena: Arena, n_ids: int) -> None: ...
