"""How often each id occurs in a corpus: the same walk as encode_files, but only counted, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt

from cbpe.encoding.files import Encode, Ids, Piece, encode_piece, pieces
from cbpe.inputs.documents import Faults
from cbpe.inputs.sources import Source, total_size
from cbpe.progress import progress_bar
from cbpe.threads import in_order


def count_ids(
    sources: Sequence[Source],
    encode: Encode,
    *,
    cuttable: bool,
    text_field: str,
    separator: str | None,
    dtype: np.dtype[Any],
    eot: int | None,
    num_threads: int,
    progress: bool | None,
    errors: str,
    index: dict[str, Any],
) -> npt.NDArray[np.int64]:
    """The count of each id, int64[highest that occurs + 1]. The arguments are encode_files'."""
    faults = Faults(errors)

    def encode_one(piece: Piece) -> tuple[Piece, Ids]:
        return piece, encode_piece(piece, encode, faults, dtype, eot)[0]

    counts = np.zeros(0, np.int64)
    read = pieces(sources, cuttable=cuttable, text_field=text_field, separator=separator)
    with (
        progress_bar(progress, total_size(sources), "encoding") as bar,
        closing(in_order(encode_one, read, num_threads)) as encoded,
    ):
        for piece, ids in encoded:
            more = np.bincount(ids, minlength=len(counts))
            more[: len(counts)] += counts
            counts = more
            bar.update(piece.cost)
    faults.warn(stacklevel=3)
    return counts
