"""What scripts/valgrind.sh runs: a little of everything that is compiled, checked against itself.

    python scripts/valgrind_program.py FOLDER        # an empty one
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np

import cbpe
from cbpe.patterns import NAMED_PATTERNS

SPECIAL = {"<|endoftext|>": 100_000}


def main(folder: Path) -> None:
    rng = random.Random(1)
    words = ["".join(rng.choices("etaoin shrdlu'sé漢🎉\n1.", k=rng.randrange(1, 12))) for _ in range(3000)]
    text = " ".join(words) + "<|endoftext|>" + "a" * 3000 + " \n" * 500
    path = folder / "corpus.txt"
    path.write_bytes(text.encode())

    for pattern in [*NAMED_PATTERNS.values(), r"\w+|\s+|[^\w\s]+"]:
        tokenizer = cbpe.RegexTokenizer(pattern)
        tokenizer.train_from_files(path, 400, num_threads=2)
        store = cbpe.ChunkStore.from_files(path, pattern=pattern)
        store.save(folder / "corpus.chunks")
        again = cbpe.RegexTokenizer(pattern)
        again.train_from_chunks(cbpe.ChunkStore.open(folder / "corpus.chunks"), 400)
        assert again.merges == tokenizer.merges

        tokenizer.register_special_tokens(SPECIAL)
        ids = tokenizer.encode(text, allowed_special="all")
        assert 100_000 in ids
        assert tokenizer.decode(ids) == text
        rows = tokenizer.encode_batch([text[:100], "", text[100:]], allowed_special="all", num_threads=2)
        assert tokenizer.decode_batch(rows) == [text[:100], "", text[100:]]
        tokenizer.encode_file(path, folder / "corpus.bin", num_threads=2)
        assert np.fromfile(folder / "corpus.bin", np.uint32).tolist() == tokenizer.encode_ordinary(text)
        tokenizer.save(folder / "model")
        loaded = cbpe.RegexTokenizer()
        loaded.load(folder / "model.model")
        assert loaded.encode(text, allowed_special="all") == ids

    basic = cbpe.BasicTokenizer()
    basic.train(text, 300)
    assert basic.decode(basic.encode(text)) == text
    limited = cbpe.RegexTokenizer()
    limited.train_from_files(path, 400, memory_limit="32MB", num_threads=1)
    whole = cbpe.RegexTokenizer()
    whole.train_from_files(path, 400)
    assert limited.merges == whole.merges
    gpt4 = cbpe.GPT4Tokenizer()
    assert gpt4.decode(gpt4.encode_ordinary(text)) == text
    print("all is well")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
