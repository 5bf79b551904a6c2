"""What scripts/valgrind.sh runs: a little of everything that is compiled, checked against itself.

    python scripts/valgrind_program.py FOLDER        # an empty one
"""

from __future__ import annotations

import array
import json
import random
import sys
import warnings
from pathlib import Path

import numpy as np

import cbpe
import cbpe.splitting
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

    other_inputs(text, folder)
    other_kinds(text, folder)
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


def other_inputs(text: str, folder: Path) -> None:
    """Lines of JSON, bytes that are not UTF-8, special tokens that are cut out while counting."""
    rows = text.split("\n")
    for ascii_only in (True, False):
        path = folder / "rows.jsonl"
        path.write_text("".join(json.dumps({"n": [1.5, None], "text": row}, ensure_ascii=ascii_only) + "\n"
                                for row in rows) + '{"text": "\\ud83d"}\nno json\n', encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")         # two lines are left out
            counted = cbpe.ChunkStore.from_files(path, special_tokens=["<|", "an"], errors="skip", num_threads=2)
        expected = cbpe.ChunkStore.from_iterator(rows, special_tokens=["<|", "an"])
        assert list(counted) == list(expected)
    data = text.encode()[:5001] + b"\xff\xe6\xbc" + text.encode()[5001:]
    (folder / "wrong.txt").write_bytes(data)
    mended = cbpe.ChunkStore.from_files(folder / "wrong.txt", errors="replace")
    assert list(mended) == list(cbpe.ChunkStore.from_iterator([data.decode("utf-8", "replace")]))
    assert mended.pruned(2).total_bytes < cbpe.ChunkStore.merge([mended, expected]).total_bytes


def other_kinds(text: str, folder: Path) -> None:
    """Words, stages, ranks, the ways to decode."""
    words = cbpe.WordTokenizer()
    words.train(text, 400)
    assert words.decode(words.encode(text)).split() == text.split()
    staged = cbpe.RegexTokenizer(cbpe.splitting.Stages([(r"\p{N}{1,3}", "all"), (NAMED_PATTERNS["gpt2"], "matches")]))
    staged.train(text, 400)
    assert staged.decode(staged.encode(text, "none")) == text
    plain = cbpe.RegexTokenizer()
    plain.train(text, 400)
    plain.save_tiktoken(folder / "ranks.tiktoken")
    ranks = cbpe.RegexTokenizer.from_tiktoken(folder / "ranks.tiktoken", plain.pattern)
    ids = ranks.encode_to_numpy(text, "none")
    assert ids.tolist() == plain.encode(text, "none")
    for same in (ids, ids.astype(">i8")[::-1][::-1], ids.astype(np.uint16), array.array("q", ids.tolist()), iter(ids)):
        assert ranks.decode(same) == text
    assert ranks.decode_with_offsets(ids)[0] == text
    stream = cbpe.StreamDecoder(ranks)
    assert "".join([*map(stream.feed, ids.tolist()), stream.flush()]) == text
    assert plain.truncated(300).vocab.items() <= plain.vocab.items()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
