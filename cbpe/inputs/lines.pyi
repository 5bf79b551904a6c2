import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

def texts_of_lines(
    data: Buffer, name: bytes
) -> tuple[NDArray[np.uint8], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]: ...
