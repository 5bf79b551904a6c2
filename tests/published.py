"""Where tests find files that others published, which are not in the repository: in a folder `shared` beside it, or
where CBPE_SHARED says. What needs them is skipped without them.

    vocab/      rank files, encoder.json, vocab.bpe and the like, each under the name it was published with
    data/       texts
    golden/     models that minbpe trained on them
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("CBPE_SHARED", Path(__file__).parents[2] / "shared"))
VOCAB = SHARED / "vocab"

needs_vocabularies = pytest.mark.skipif(
    not (VOCAB / "cl100k_base.tiktoken").exists(), reason=f"no published vocabularies in {VOCAB}"
)
