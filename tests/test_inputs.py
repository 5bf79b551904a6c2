"""Corpora as people have them: whatever they lie in, the same documents give the same chunks and the same ids."""

from __future__ import annotations

import bz2
import contextlib
import errno
import functools
import gzip
import http.server
import io
import json
import lzma
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections import Counter
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import reference
import zstandard
from budget import SHORT, thorough
from hypothesis import example, given
from hypothesis import strategies as st
from peak import PEAK_MEMORY, needs_peak_memory

from cbpe import (
    GPT2_SPLIT_PATTERN,
    GPT4_SPLIT_PATTERN,
    ChunkStore,
    CorpusDecodeError,
    CorpusFormatError,
    CorpusTooLargeError,
    RegexTokenizer,
)
from cbpe.encoding import files
from cbpe.inputs import documents, find_sources, sources, streams
from cbpe.inputs.lines import texts_of_lines
from cbpe.patterns import NAMED_PATTERNS
from cbpe.splitting.split import splitter_for
from cbpe.training import corpus

pytestmark = pytest.mark.native

PATTERNS = [GPT2_SPLIT_PATTERN, GPT4_SPLIT_PATTERN, NAMED_PATTERNS["o200k"], r"\w+|\s", None]
PATTERN_IDS = ["gpt2", "gpt4", "o200k", "regex", "whole"]
SPECIALS = ["<|eot|>", "<|eot|>x", "</s>"]


def nasty_documents(seed: int, n: int = 60) -> list[str]:
    rng = random.Random(seed)
    alphabet = [*"ab1 \n\r\t'!sl\n\néſ\u3000\u0085\u0301漢😀\"\\/\b\f\0", "\nword", "\n\n", " 'll", *SPECIALS, "<|eot"]
    return ["".join(rng.choices(alphabet, k=rng.choice([0, 1, 5, 50, 200]))) for _ in range(n)]


def counted(texts, pattern, specials=()):
    """The distinct chunks in order of first appearance, and their counts: the slow way."""
    stretches = [part for text in texts for part in reference.cut_at_specials(text, specials) if part not in specials]
    return list(Counter(chunk for part in stretches for chunk in reference.split(part, pattern)).items())


def read_plainly(path: Path, field: str = "text") -> list[str]:
    """The documents of a file, as json and pyarrow have them."""
    if path.suffix == ".parquet":
        return pq.read_table(path).column(field).to_pylist()
    return [json.loads(line)[field] for line in path.read_bytes().decode().split("\n") if line.strip()]


def zst(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


PACK = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zst}


def in_members(data: bytes, pack) -> bytes:
    """Packed in three, as parallel packers do."""
    third = len(data) // 3
    return pack(data[:third]) + pack(data[third : 2 * third]) + pack(data[2 * third :])


def jsonl(texts, **how) -> bytes:
    lines = [json.dumps({"id": i, "text": text, "more": {"text": [text]}}, **how) for i, text in enumerate(texts)]
    return "".join(line + "\n" for line in lines).encode()


def write_parquet(path: Path, texts, kind=None, **how) -> None:
    column = pa.array(texts, kind) if kind is not None else pa.array(texts, pa.string())
    pq.write_table(pa.table({"id": list(range(len(texts))), "text": column}), path, **how)


@pytest.fixture
def small_parts(monkeypatch):
    """Windows, parts and blocks so small that every text of these tests has many."""
    monkeypatch.setattr(corpus, "WINDOW", 16)
    monkeypatch.setattr(corpus, "PART", 8)
    monkeypatch.setattr(files, "PART", 40)
    monkeypatch.setattr(documents, "BLOCK", 100)
    monkeypatch.setattr("cbpe.training.store.ENOUGH", 8)        # so that threads are used at all


def ids_in(path: Path) -> list[int]:
    return np.fromfile(path, np.dtype(index_of(path)["dtype"]).newbyteorder("<")).tolist()


def index_of(path: Path) -> dict:
    return json.loads(Path(f"{path}.idx.json").read_text())


@functools.cache
def trained(pattern: str) -> RegexTokenizer:
    tokenizer = RegexTokenizer(pattern)
    tokenizer.train("the cat sat on the mat. 1234 \n\n\n x\n 'll word\n\n" * 3, 265)
    return tokenizer


# ------------------------------------------------------------------------------------------------ every kind counts


@pytest.mark.parametrize("pattern", PATTERNS, ids=PATTERN_IDS)
@pytest.mark.parametrize("specials", [[], SPECIALS], ids=["", "specials"])
@pytest.mark.usefixtures("small_parts")
def test_every_kind_and_packing_counts_the_same(tmp_path, pattern, specials):
    texts = nasty_documents(1)
    expected = counted(texts, pattern, specials)
    data = jsonl(texts)
    files_of = {".jsonl" + suffix: in_members(data, pack) for suffix, pack in PACK.items()}
    for suffix, content in files_of.items():
        (tmp_path / f"a{suffix}").write_bytes(content)
    write_parquet(tmp_path / "a.parquet", texts, row_group_size=7)
    for name in (*(f"a{suffix}" for suffix in files_of), "a.parquet"):
        store = ChunkStore.from_files(tmp_path / name, pattern, special_tokens=specials, num_threads=2)
        assert list(store) == expected, name
        assert (np.diff(store.places.astype(np.int64)) > 0).all()
    whole = "\n".join(texts)
    expected = counted([whole], pattern, specials)
    for suffix, pack in PACK.items():
        (tmp_path / f"b.txt{suffix}").write_bytes(in_members(whole.encode(), pack))
        store = ChunkStore.from_files(tmp_path / f"b.txt{suffix}", pattern, special_tokens=specials, num_threads=2)
        assert list(store) == expected, suffix


@pytest.mark.parametrize("pattern", PATTERNS, ids=PATTERN_IDS)
@pytest.mark.usefixtures("small_parts")
def test_threads_and_shards_change_nothing(tmp_path, pattern):
    texts = nasty_documents(2, 100)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(jsonl(texts[:40])))
    write_parquet(tmp_path / "b.parquet", texts[40:], row_group_size=9)
    (tmp_path / "c.txt").write_bytes("".join(texts).encode())
    (tmp_path / "d.txt.zst").write_bytes(zst("".join(texts[::-1]).encode()))
    (tmp_path / "e.txt").touch()
    expected = counted([*texts, "".join(texts), "".join(texts[::-1])], pattern, SPECIALS)
    ChunkStore.from_files(tmp_path, pattern, special_tokens=SPECIALS, num_threads=1).save(tmp_path / "whole")
    whole = ChunkStore.open(tmp_path / "whole")
    assert list(whole) == expected
    assert whole.sources[:3] == [str(tmp_path / "a.jsonl.gz"), *(f"{tmp_path / 'b.parquet'}#{i}" for i in range(2))]
    for num_threads in range(2, 6):
        store = ChunkStore.from_files(tmp_path, pattern, special_tokens=SPECIALS, num_threads=num_threads)
        store.save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / "whole").read_bytes()
    shards = [ChunkStore.from_files(tmp_path, pattern, special_tokens=SPECIALS, shard=(i, 3)) for i in range(3)]
    ChunkStore.merge(shards[::-1]).save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "whole").read_bytes()


@given(
    st.lists(st.text(max_size=40), max_size=8),
    st.booleans(),
    st.sampled_from(["\n", "\r\n", "\n\n \n"]),
    st.booleans(),
)
def test_any_strings_in_jsonl(tmp_path_factory, texts, is_ascii, line_end, ends_so):
    lines = [json.dumps({"text": text}, ensure_ascii=is_ascii) for text in texts]
    content = line_end.join(lines) + (line_end if ends_so else "")
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(content.encode())
    assert list(ChunkStore.from_files(path)) == counted(texts, GPT4_SPLIT_PATTERN)
    assert read_plainly(path) == texts


def test_places_are_those_of_the_text_in_its_file(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "x y"}\r\n\r\n{"text": "x z"}')
    write_parquet(tmp_path / "b.parquet", ["x", "é ü", "u v"], row_group_size=2)
    store = ChunkStore.from_files([tmp_path / "a.jsonl", tmp_path / "b.parquet"])
    group = 1 << 40
    assert dict(zip([chunk for chunk, _ in store], store.places.tolist(), strict=True)) == {
        b"x": 3, b" y": 4, b" z": 23, "é".encode(): group + 1, " ü".encode(): group + 3, b"u": 2 * group,
        b" v": 2 * group + 1,
    }


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.dictionary(pa.int8(), pa.large_string()),
    ],
    ids=str,
)
def test_columns_of_strings_of_every_type(tmp_path, kind):
    texts = ["one", "two words", "", "one", "漢字 é", *(f"number {i}" for i in range(50))]
    write_parquet(tmp_path / "a.parquet", texts, kind, row_group_size=20)
    assert list(ChunkStore.from_files(tmp_path / "a.parquet")) == counted(texts, GPT4_SPLIT_PATTERN)
    empty = tmp_path / "empty.parquet"
    write_parquet(empty, [], kind)
    assert list(ChunkStore.from_files(empty)) == []
    write_parquet(empty, ["", "", ""], kind)
    assert list(ChunkStore.from_files(empty)) == []


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_a_row_group_is_read_from_any_row_on(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(documents, "BLOCK", 100)
    texts = ["one", "two words", "", "漢字 é", *(f"number {i} " * (i % 3) for i in range(26))]
    write_parquet(tmp_path / "a.parquet", texts, kind, row_group_size=30)
    places = np.cumsum([0, *(len(text.encode()) for text in texts)]).tolist()
    (source,) = find_sources(tmp_path / "a.parquet")
    with documents.RowGroups() as groups:
        for start in range(len(texts) + 1):
            blocks = list(groups.blocks(3, source, "text", start))
            found = [block.texts(documents.Faults("strict")) for block in blocks]
            assert [text.decode() for each in found for text in each.as_list()] == texts[start:]
            assert [place for each in found for place in each.places.tolist()] == [
                (3 << sources.OFFSET_BITS) + place for place in places[start:-1]
            ]
            assert [block.row for block in blocks][:1] == [start] * (start < len(texts))
            assert sum(block.size for block in blocks) == places[-1] - places[start]


def test_columns_that_files_seldom_have():
    source = sources.Source("a.parquet", "a.parquet")
    assert documents.RowBlock("a.parquet", "text", 0, 0, pa.array([], pa.string()), 0).size == 0
    if hasattr(pa, "string_view"):
        column = documents._strings(pa.array(["one", "x" * 30], pa.string_view()), source, "text")
        assert (column.type, column.to_pylist()) == (pa.large_string(), ["one", "x" * 30])


@thorough
@needs_peak_memory
def test_memory_does_not_grow_with_a_row_group(tmp_path):
    write_parquet(tmp_path / "a.parquet", [f"{i} words " * 400 for i in range(50_000)], compression="none")
    script = f"""
{PEAK_MEMORY}
from cbpe import ChunkStore
from cbpe.inputs import find_sources
find_sources("a.parquet")
before = peak_memory()
ChunkStore.from_files("a.parquet", num_threads=2)
print(peak_memory() - before)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, check=True)
    assert (tmp_path / "a.parquet").stat().st_size > 200_000_000
    assert int(done.stdout) < 120_000_000


def test_a_line_longer_than_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "BLOCK", 1000)
    texts = ["a b " * 5000, "short", "c d " * 300, "e"]
    (tmp_path / "a.jsonl.zst").write_bytes(zst(jsonl(texts)))
    assert list(ChunkStore.from_files(tmp_path / "a.jsonl.zst")) == counted(texts, GPT4_SPLIT_PATTERN)


@pytest.mark.parametrize("specials", [[], ["<s>"]], ids=["", "specials"])
@pytest.mark.usefixtures("small_parts")
def test_a_packed_text_without_a_place_to_cut(tmp_path, specials):
    text = "a\nfew lines\n\n" + "one long line <s> " * 200 + "\nand\nmore"
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode()))
    store = ChunkStore.from_files(tmp_path / "a.txt.gz", special_tokens=specials, num_threads=2)
    assert list(store) == counted([text], GPT4_SPLIT_PATTERN, specials)


def test_hundreds_of_special_tokens(tmp_path):
    specials = [f"<|extra_{i}|>" for i in range(500)]
    rng = random.Random(3)
    texts = ["".join(rng.choices([*specials, "word ", "<|extra", "\n"], k=50)) for _ in range(20)]
    (tmp_path / "a.jsonl").write_bytes(jsonl(texts))
    (tmp_path / "b.txt").write_text(texts[0], newline="")
    store = ChunkStore.from_files([tmp_path / "a.jsonl", tmp_path / "b.txt"], special_tokens=specials)
    assert list(store) == counted([*texts, texts[0]], GPT4_SPLIT_PATTERN, specials)


def test_arguments_of_wrong_types_are_refused(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(jsonl(["a"]))
    with pytest.raises(TypeError, match="text_field"):
        ChunkStore.from_files(tmp_path, text_field=None)
    with pytest.raises(TypeError, match="not a single str"):
        ChunkStore.from_files(tmp_path, special_tokens="<|endoftext|>")


def test_training_from_all_of_them_gives_the_same_merges(tmp_path):
    texts = [text for text in nasty_documents(4) if text] * 2
    (tmp_path / "a.jsonl.xz").write_bytes(lzma.compress(jsonl(texts)))
    pq.write_table(pa.table({"body": texts}), tmp_path / "b.parquet")
    expected = RegexTokenizer()
    expected.train_from_iterator(texts, 300)
    tokenizer = RegexTokenizer()
    tokenizer.train_from_files(tmp_path / "a.jsonl.xz", 300)
    assert tokenizer.merges == expected.merges
    tokenizer.train_from_files(tmp_path / "b.parquet", 300, text_field="body")
    assert tokenizer.merges == expected.merges


# -------------------------------------------------------------------------------------------- what is found, and where


def test_kinds_by_name():
    for name, kind in {
        "a.txt": ("text", None), "a.TXT.GZ": ("text", "gz"), "a.jsonl.zst": ("jsonl", "zst"),
        "a.ndjson": ("jsonl", None), "b.c.jsonl.bz2": ("jsonl", "bz2"), "a.parquet": ("parquet", None),
        "a.csv": None, "a.gz": None, "a": None,
    }.items():
        assert sources.kind_of(name) == kind


@pytest.fixture
def tree(tmp_path):
    folder = tmp_path / "tree"
    for name in ("b.txt", "a.txt.gz", "c/d.jsonl", "c/.hidden.txt", ".git/e.txt", "f.csv", "README.md", "c/z/x.txt"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(b"a") if name.endswith("gz") else b'{"text": "b"}\n')
    return folder


def names(found, folder) -> list[str]:
    return [os.path.relpath(source.path, folder).replace(os.sep, "/") for source in found]


def test_folders_and_globs(tree):
    assert names(find_sources(tree), tree) == ["a.txt.gz", "b.txt", "c/d.jsonl", "c/z/x.txt"]
    assert names(find_sources([tree / "c", tree / "f.csv"]), tree) == ["c/d.jsonl", "c/z/x.txt", "f.csv"]
    assert names(find_sources(f"{tree}/*.txt*"), tree) == ["a.txt.gz", "b.txt"]
    assert names(find_sources(f"{tree}/**/*.txt"), tree) == ["b.txt", "c/z/x.txt"]
    assert names(find_sources(f"{tree}/*"), tree) == ["README.md", "a.txt.gz", "b.txt", "f.csv"]
    assert [source.kind for source in find_sources(f"{tree}/*")] == ["text"] * 4
    (tree / "[1].txt").write_bytes(b"")
    assert names(find_sources(f"{tree}/[1].txt"), tree) == ["[1].txt"]
    for nothing in (f"{tree}/*.parquet", f"{tree}/c/missing.txt", tree / "*.txt"):
        with pytest.raises(FileNotFoundError, match=re.escape(os.path.basename(nothing))):
            find_sources(nothing)
    (tree / "empty").mkdir()
    (tree / "empty" / "x.csv").touch()
    with pytest.raises(FileNotFoundError, match="no file in this folder"):
        find_sources(tree / "empty")
    for wrong in (b"bytes", 5, [b"bytes"]):
        with pytest.raises(TypeError):
            find_sources(wrong)


@pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="there is no /proc")
def test_a_file_that_has_no_size_is_read_to_its_end(tmp_path):
    assert ChunkStore.from_files("/proc/self/limits", None).total_bytes > 100
    assert find_sources("/proc/self/limits")[0].size is None
    (tmp_path / "a.txt").touch()
    assert find_sources(tmp_path)[0].size == 0


def test_sources_travel(tmp_path):
    write_parquet(tmp_path / "a.parquet", ["a", "b", "c"], row_group_size=2)
    found = find_sources(tmp_path)
    assert pickle.loads(pickle.dumps(found)) == found
    assert [(source.name.rpartition("#")[2], source.n_rows) for source in found] == [("0", 2), ("1", 1)]
    assert found[0].columns == ("id", "text")


def test_a_folder_that_cannot_be_listed_is_an_error(tree, monkeypatch):
    def scandir(path, scandir=os.scandir):
        if os.path.basename(path) == "c":
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scandir)
    for folder in (tree, tree / "c"):
        with pytest.raises(PermissionError, match=r"denied: .*c'"):
            find_sources(folder)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="permissions do not bind this user")
def test_an_unreadable_member_is_told_of_before_anything_is_read(tree):
    (tree / "b.txt").chmod(0)
    with pytest.raises(PermissionError, match=r"b\.txt"):
        ChunkStore.from_files(tree)


@pytest.mark.parametrize("name", ["corpus.txt", "-"])
@pytest.mark.usefixtures("small_parts")
def test_standard_input(tmp_path, name):
    text = "".join(nasty_documents(5))
    (tmp_path / "corpus.txt").write_bytes(text.encode())
    script = f"""if True:
        from cbpe import ChunkStore, RegexTokenizer
        import sys
        ChunkStore.from_files({name!r}).save(sys.argv[1])
    """
    command = [sys.executable, "-c", script, str(tmp_path / "store")]
    subprocess.run(command, input=text.encode(), cwd=tmp_path, check=True)
    with ChunkStore.open(tmp_path / "store") as store:
        assert list(store) == counted([text], GPT4_SPLIT_PATTERN)
        assert store.sources == [name]


def test_standard_input_that_is_not_there_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(OSError, match="there is no standard input"):
        ChunkStore.from_files("-")


@pytest.mark.skipif(os.name != "posix", reason="pipes that do not block are POSIX's")
@pytest.mark.parametrize("name", ["-", "-.jsonl"])
def test_standard_input_that_does_not_block_is_waited_for(tmp_path, name):
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    script = f"""if True:
        from cbpe import ChunkStore
        print("ready", flush=True)
        print(ChunkStore.from_files({name!r}, None).total_bytes)
    """
    with subprocess.Popen([sys.executable, "-c", script], stdin=reading, stdout=subprocess.PIPE) as process:
        os.close(reading)
        assert process.stdout.readline() == b"ready\n"
        with os.fdopen(writing, "wb", buffering=0) as file:
            for _ in range(3):
                threading.Event().wait(0.3)
                file.write(b'{"text": "a"}\n')
        assert process.stdout.read() == (b"42\n" if name == "-" else b"3\n")


@pytest.mark.parametrize("name", ["-.jsonl", "-.jsonl.gz", "-.ndjson", "-.txt.gz"])
def test_standard_input_of_other_kinds(tmp_path, name):
    texts = nasty_documents(7) if "json" in name else ["".join(nasty_documents(7))]
    data = "".join(json.dumps({"text": text}) + "\n" for text in texts) if "json" in name else texts[0]
    given = gzip.compress(data.encode()) if name.endswith(".gz") else data.encode()
    script = f"from cbpe import ChunkStore; ChunkStore.from_files({name!r}).save('store')"
    subprocess.run([sys.executable, "-c", script], input=given, cwd=tmp_path, check=True)
    with ChunkStore.open(tmp_path / "store") as store:
        assert list(store) == counted(texts, GPT4_SPLIT_PATTERN)
        assert store.sources == [name]
    with pytest.raises(CorpusFormatError, match="write it to a file"):
        find_sources("-.parquet")


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent as POSIX does")
@pytest.mark.parametrize("call", ["ChunkStore.from_files('-', num_threads=2)", "tokenizer.encode_file('-', 'o.bin')"])
def test_ctrl_c_is_heard_while_waiting_for_input_C19(tmp_path, call):
    script = f"""if True:
        from cbpe import ChunkStore, RegexTokenizer
        tokenizer = RegexTokenizer()
        print("ready", flush=True)
        try:
            {call}
        except KeyboardInterrupt:
            print("heard", flush=True)
    """
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stdout.readline() == b"ready\n"
        process.stdin.write(b"some words\n")
        process.stdin.flush()
        threading.Event().wait(0.3)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)            # though its input goes on
            assert process.stdout.read() == b"heard\n"
        finally:
            process.kill()
    assert process.returncode == 0


def test_standard_input_is_encoded_too(tmp_path):
    text = "".join(nasty_documents(6))
    trained(GPT4_SPLIT_PATTERN).save(str(tmp_path / "m"))
    script = """if True:
        from cbpe import RegexTokenizer
        tokenizer = RegexTokenizer()
        tokenizer.load("m.model")
        tokenizer.encode_file("-", "o.bin")
    """
    subprocess.run([sys.executable, "-c", script], input=text.encode(), cwd=tmp_path, check=True)
    assert ids_in(tmp_path / "o.bin") == trained(GPT4_SPLIT_PATTERN).encode_ordinary(text)


# ------------------------------------------------------------------------------------------------------ elsewhere


@pytest.fixture
def memory_folder():
    fs = fsspec.filesystem("memory")
    fs.mkdirs("/corpus", exist_ok=True)
    yield fs
    fs.rm("/corpus", recursive=True)


def test_an_url_of_no_known_kind_is_named():
    with pytest.raises(ValueError, match=r"^htps://a\.org/b\.txt: .*htps"):
        find_sources("htps://a.org/b.txt")


def test_urls_folders_and_globs_in_memory(tmp_path, memory_folder):
    texts = nasty_documents(7)
    memory_folder.pipe("/corpus/b.jsonl.zst", zst(jsonl(texts)))
    memory_folder.pipe("/corpus/a.txt", "".join(texts).encode())
    memory_folder.pipe("/corpus/.hidden/x.txt", b"hidden")
    memory_folder.pipe("/corpus/x.csv", b"unknown")
    write_parquet(tmp_path / "c.parquet", texts, row_group_size=11)
    memory_folder.pipe("/corpus/sub/c.parquet", (tmp_path / "c.parquet").read_bytes())
    expected = counted(["".join(texts), *texts, *texts], GPT4_SPLIT_PATTERN)
    store = ChunkStore.from_files("memory://corpus", num_threads=3)
    assert list(store) == expected
    assert store.sources[:2] == ["memory:///corpus/a.txt", "memory:///corpus/b.jsonl.zst"]
    assert list(ChunkStore.from_files("memory://corpus/*.txt")) == counted(["".join(texts)], GPT4_SPLIT_PATTERN)
    assert list(ChunkStore.from_files("memory://corpus/sub/c.parquet")) == counted(texts, GPT4_SPLIT_PATTERN)
    for missing in ("memory://corpus/missing.txt", "memory://corpus/*.gz"):
        with pytest.raises(FileNotFoundError):
            ChunkStore.from_files(missing)


def test_a_folder_is_read_in_the_same_order_wherever_it_lies(tmp_path, memory_folder):
    files_of_it = ["b.txt", "a/x.txt", "a.txt", "a/b/z.txt", "a-b/x.txt", "c/y.txt", "a0.txt"]
    for name in files_of_it:
        memory_folder.pipe(f"/corpus/{name}", b"a")
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"a")
    in_order = ["a/b/z.txt", "a/x.txt", "a-b/x.txt", "a.txt", "a0.txt", "b.txt", "c/y.txt"]
    assert names(find_sources(tmp_path), tmp_path) == in_order
    for url in ("memory:///corpus", tmp_path.as_uri()):
        assert [source.path.removeprefix(url + "/") for source in find_sources(url)] == in_order


@pytest.mark.usefixtures("small_parts")
def test_a_long_text_elsewhere_is_shared_out(memory_folder):
    text = "".join(nasty_documents(8))
    memory_folder.pipe("/corpus/a.txt", text.encode())
    whole = ChunkStore.from_files("memory://corpus/a.txt", num_threads=3)
    assert list(whole) == counted([text], GPT4_SPLIT_PATTERN)
    shards = [ChunkStore.from_files("memory://corpus/a.txt", shard=(i, 4)) for i in range(4)]
    assert all(0 < shard.total_bytes < whole.total_bytes for shard in shards)
    assert list(ChunkStore.merge(shards)) == list(whole)


@pytest.fixture
def web(tmp_path):
    """A server for the files of a folder, which cannot send parts of them."""
    folder = tmp_path / "web"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.usefixtures("small_parts")
def test_files_of_a_web_server(web):
    folder, url = web
    texts = nasty_documents(9)
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(jsonl(texts)))
    (folder / "b.txt").write_bytes("".join(texts).encode())
    write_parquet(folder / "c.parquet", texts, row_group_size=11)
    expected = counted([*texts, "".join(texts), *texts], GPT4_SPLIT_PATTERN)
    paths = [f"{url}/a.jsonl.gz?download=1", f"{url}/b.txt", f"{url}/c.parquet"]
    assert list(ChunkStore.from_files(paths, num_threads=2)) == expected
    with pytest.raises(FileNotFoundError):
        ChunkStore.from_files(f"{url}/missing.txt")


def test_what_goes_wrong_at_a_web_server_is_an_error_with_the_address():
    class Faulty(http.server.BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_GET(self):
            self.send_response(403 if "forbidden" in self.path else 200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(b"cut short\n")

        do_HEAD = do_GET

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Faulty) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        for name, reason in (("forbidden.txt", "403"), ("a.txt", "not completed"), ("a.jsonl", "not completed")):
            url = f"http://127.0.0.1:{server.server_port}/{name}"
            for read in (ChunkStore.from_files, lambda url: trained(GPT4_SPLIT_PATTERN).encode_file(url, "o.bin")):
                with pytest.raises(OSError, match=rf"{re.escape(url)}: cannot be read: .*{reason}") as fault:
                    read(url)
                assert not isinstance(fault.value, FileNotFoundError)
        server.shutdown()
        thread.join()


# ------------------------------------------------------------------------------------------------- what goes wrong

LINES = [
    (b'{"text": "a"', "is not JSON"),
    (b'{"text": 5}', "not a string: 5$"),
    (b'{"text": null}', "not a string: null"),
    (b'{"other": "a", "b": 1}', "no field 'text', but 'other', 'b'"),
    (b"{}", "none at all"),
    (b'["text"]', "not a JSON object"),
    (b'"text"', "not a JSON object"),
    (b'{"text": "\xff"}', "not UTF-8"),
    (b'{"text": "\\ud800"}', "half of a surrogate"),
    (b'{"text": "a"} {"text": "b"}', "is not JSON"),
    (b"\xef\xbb\xbf{}", "is not JSON"),
    (b'{"text": "a\tb"}', "is not JSON"),
    (b'{"text": "a", "b": 01}', "is not JSON"),
    (b'{"text": "\xed\xa0\x80"}', "not UTF-8"),
    (b"[" * 100_000, "JSON|nested"),
    (b'{"text": "a", "b": "\xc0\x80"}', "not UTF-8"),
    (b'{"text": "a", "b": nul}', "is not JSON"),
    (b'{"text": "a",}', "is not JSON"),
]


@pytest.mark.parametrize(("line", "reason"), LINES, ids=[str(i) for i in range(len(LINES))])
@pytest.mark.usefixtures("small_parts")
def test_a_line_that_holds_no_text(tmp_path, line, reason):
    texts = ["good " * i for i in range(1, 30)]
    lines = [json.dumps({"text": text}).encode() for text in texts]
    lines[20:20] = [line]
    lines[25:25] = [line]
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n\n" + b"\n".join(lines))
    for num_threads in (1, 3):
        with pytest.raises(CorpusFormatError, match=rf"a\.jsonl, line 23: .*({reason})") as fault:
            ChunkStore.from_files(path, num_threads=num_threads)
        assert (fault.value.source, fault.value.line, fault.value.row) == (str(path), 23, None)
        assert str(pickle.loads(pickle.dumps(fault.value))) == str(fault.value)
        with pytest.warns(UserWarning, match=r"2 documents were left out; the first is .*a\.jsonl, line 23: "):
            store = ChunkStore.from_files(path, num_threads=num_threads, errors="skip")
        assert store.skipped == 2
        assert list(store) == counted(texts, GPT4_SPLIT_PATTERN)
    with pytest.raises(CorpusFormatError, match="line 23"):
        trained(GPT4_SPLIT_PATTERN).encode_file(path, tmp_path / "o.bin", num_threads=2)
    assert not (tmp_path / "o.bin").exists()
    with pytest.warns(UserWarning, match="2 documents"):
        trained(GPT4_SPLIT_PATTERN).encode_file(path, tmp_path / "o.bin", num_threads=2, errors="skip")
    lists = map(trained(GPT4_SPLIT_PATTERN).encode_ordinary, texts)
    assert ids_in(tmp_path / "o.bin") == [i for ids in lists for i in ids]
    assert index_of(tmp_path / "o.bin")["skipped"] == 2


def test_what_json_takes_is_taken(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        b'\xef\xbb\xbf{"text": "a", "b": NaN}\r\n\r\n \t \n{"text": "x", "text": "b"}\n'
        b'{"b": ' + b"1" * 5000 + b', "text": "c"}\n'
        b' { "b" : [ { "text" : "no" } , -1.5e+3 , true , false , null , "" ] , "t\\u0065xt" : "\\ud83d\\ude00\\n" } '
    )
    assert [chunk for chunk, _ in ChunkStore.from_files(path, None)] == [b"a", b"b", b"c", "😀\n".encode()]


def plain_or_not(line: bytes) -> bytes | None:
    """The text of a line as the native reader has it; None if it leaves the line to json."""
    data, begins, ends, starts, others = texts_of_lines(line, b"text")
    assert len(begins) + len(others) == (1 if line.strip(b" \t\r") else 0)
    assert not len(starts) or starts[0] == 0
    return data[begins[0] : ends[0]].tobytes() if len(begins) else None


def by_json(line: bytes) -> bytes | None:
    try:
        return documents.text_of_line(line, "text", mend=False)
    except ValueError:
        return None


JSON_PIECES = [
    *(bytes([byte]) for byte in b'{}[],:"\\01-+.eEta \t\0\x1f\x7f\xff'), b"true", b"false", b"null", b"NaN",
    b"-0.5e+3", b"01", b'"text"',
    b'"text":', b'"text": "a"', b'"b": 1', b'{"text": "', b'"}', "é漢😀".encode(), b"x" * 9, b"\\n",
    b"\\u00e9", b"\\ud83d\\ude00", b"\\ud800", b"\\u12", b"\\/", b'"\\u0074ext"',
]


@given(st.lists(st.sampled_from(JSON_PIECES), max_size=12).map(b"".join))
@example(b"1.")
@example(b'{"\\')
def test_the_native_reader_never_takes_what_json_refuses(middle):
    for line in (middle, b'{"text": "%s"}' % middle, b'{"text": "a", %s}' % middle, b'{"a": %s, "text": "b"}' % middle):
        text = plain_or_not(line)
        assert text is None or text == by_json(line)


json_leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12)
)
json_lists = st.lists(json_leaves, max_size=3)
json_values = json_leaves | json_lists | st.dictionaries(st.text(max_size=5), json_leaves | json_lists, max_size=3)


@given(st.dictionaries(st.text(alphabet="atex", max_size=4), json_values, max_size=4), st.text(), st.booleans())
def test_the_native_reader_takes_what_json_writes(members, text, is_ascii):
    line = json.dumps({**members, "text": text, "z": 1}, ensure_ascii=is_ascii).encode()
    assert plain_or_not(line) == text.encode()


def test_the_native_reader_sees_every_length_and_every_cut():
    line = '{"text": "abc\\u00e9\\ud83d\\ude00漢字defghijklmnop\\n", "b": [-1.5e+10, {"c": null}, true]}'.encode()
    for begin in range(len(line)):
        for end in (*range(begin, len(line), 3), len(line)):
            text = plain_or_not(line[begin:end])
            assert text == (by_json(line) if (begin, end) == (0, len(line)) else None)
    for length in range(70):
        for other in (b"", b"\\t", b"\\ud83d\\ude00"):
            line = b'{"text": "' + b"a" * length + other + b"b" * (length % 9) + b'"}'
            assert plain_or_not(line) == by_json(line) is not None
    assert plain_or_not(b'{"text": "a", "b": ' + b"[" * 100 + b"]" * 100 + b"}") == b"a"
    assert plain_or_not(b'{"text": "a", "b": ' + b"[" * 300 + b"]" * 300 + b"}") is None


@pytest.mark.parametrize("num_threads", [1, 3])
def test_the_first_fault_is_told_of_though_a_file_behind_it_cannot_be_read(tmp_path, num_threads):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a"}\n{"text": 5}\n')
    (tmp_path / "b.jsonl.gz").write_bytes(b"garbage")
    with pytest.raises(CorpusFormatError, match=r"a\.jsonl, line 2"):
        ChunkStore.from_files(tmp_path, num_threads=num_threads)
    with pytest.raises(CorpusFormatError, match=r"a\.jsonl, line 2"):
        trained(GPT4_SPLIT_PATTERN).encode_file(tmp_path, tmp_path / "o.bin", num_threads=num_threads)


def test_replacing_what_is_no_unicode(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a\xff\xe7\x8c"}\n{"text": "b\\ud800\\ude00c\\udc00"}\n{"text": "d"}\n')
    store = ChunkStore.from_files(path, None, errors="replace")
    assert [chunk.decode() for chunk, _ in store] == ["a\ufffd\ufffd", "b\U00010200c\ufffd", "d"]
    path.write_bytes(b'{"text": "a"}\nnot JSON\n')
    with pytest.raises(CorpusFormatError, match="line 2"):
        ChunkStore.from_files(path, errors="replace")


@pytest.mark.parametrize("pattern", PATTERNS, ids=PATTERN_IDS)
@pytest.mark.parametrize("specials", [[], SPECIALS], ids=["", "specials"])
def test_the_order_of_chunks_where_mending_makes_a_document_longer_than_its_file(tmp_path, pattern, specials):
    raw = [b"a</s>\xff\xff\xff \xff\xff</s>zz\xff \xff1", b"b</s>\xff c \xff", b"\xff" * 40 + b" y </s> z", b"d e"]
    texts = [text.decode("utf-8", "replace") for text in raw]
    (tmp_path / "a.jsonl").write_bytes(b"".join(b'{"text":"%s"}\n' % text for text in raw))
    column = pa.array(raw, pa.binary())
    column = pa.StringArray.from_buffers(len(raw), column.buffers()[1], column.buffers()[2])
    pq.write_table(pa.table({"text": column}), tmp_path / "b.parquet")
    for name in ("a.jsonl", "b.parquet"):
        store = ChunkStore.from_files(tmp_path / name, pattern, special_tokens=specials, errors="replace")
        assert list(store) == counted(texts, pattern, specials)
        assert (np.diff(store.places.astype(np.int64)) > 0).all()


def test_rows_that_hold_no_text(tmp_path):
    texts = ["a b", None, "", "c d", "e", None]
    path = tmp_path / "a.parquet"
    write_parquet(path, texts, row_group_size=4)
    with pytest.raises(CorpusFormatError, match=r"a\.parquet#0, row 1: column 'text' holds null") as fault:
        ChunkStore.from_files(path)
    assert (fault.value.source, fault.value.line, fault.value.row) == (f"{path}#0", None, 1)
    with pytest.warns(UserWarning, match="2 documents were left out; the first is .*#0, row 1"):
        store = ChunkStore.from_files(path, errors="skip", num_threads=2)
    assert store.skipped == 2
    assert list(store) == counted([text for text in texts if text], GPT4_SPLIT_PATTERN)


def test_a_message_stays_short_however_many_fields_there_are(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({f"field {i}": i for i in range(10_000)}))
    with pytest.raises(CorpusFormatError, match="has no field 'text', but 'field 0', 'field 1'") as fault:
        ChunkStore.from_files(tmp_path)
    assert len(str(fault.value)) < 1000


def test_rows_that_are_not_utf8(tmp_path):
    path = tmp_path / "a.parquet"
    raw = pa.array([b"good", b"b\xff d", b"fine"], pa.binary())
    column = pa.StringArray.from_buffers(3, raw.buffers()[1], raw.buffers()[2])
    pq.write_table(pa.table({"text": column}), path)
    with pytest.raises(CorpusFormatError, match=r"a\.parquet#0, row 1: byte b'\\xff' at 1 of the text"):
        ChunkStore.from_files(path)
    mended = ChunkStore.from_files(path, None, errors="replace")
    assert [chunk.decode() for chunk, _ in mended] == ["good", "b\ufffd d", "fine"]
    with pytest.warns(UserWarning, match="one document was left out"):
        assert [chunk for chunk, _ in ChunkStore.from_files(path, None, errors="skip")] == [b"good", b"fine"]


def test_columns_that_are_not_there_or_not_text(tmp_path):
    write_parquet(tmp_path / "a.parquet", ["a"])
    for errors in ("strict", "skip"):
        with pytest.raises(CorpusFormatError, match=r"a\.parquet: has no column 'body', but 'id', 'text'; text_field="):
            ChunkStore.from_files(tmp_path, text_field="body", errors=errors)
        with pytest.raises(CorpusFormatError, match=r"a\.parquet: column 'id' is of type int64"):
            ChunkStore.from_files(tmp_path, text_field="id", errors=errors)
    with pytest.raises(CorpusFormatError, match="body"):
        trained(GPT4_SPLIT_PATTERN).encode_file(tmp_path, tmp_path / "o.bin", text_field="body")


def test_parquet_that_is_damaged(tmp_path):
    path = tmp_path / "a.parquet"
    write_parquet(path, [f"text {i} " * 20 for i in range(2000)], compression="snappy", use_dictionary=False)
    good = path.read_bytes()
    for bad in (b"", b"PAR1", good[:-1], b"x" * 100, good[: len(good) // 2]):
        path.write_bytes(bad)
        with pytest.raises(CorpusFormatError, match=r"a\.parquet: cannot be read as Parquet"):
            ChunkStore.from_files(path)
    path.write_bytes(good[:20000] + bytes(2000) + good[22000:])
    with pytest.raises(CorpusFormatError, match=r"a\.parquet"):
        ChunkStore.from_files(path)
    (tmp_path / "b.parquet.gz").write_bytes(gzip.compress(good))
    with pytest.raises(CorpusFormatError, match="write it to a file, unpacked"):
        ChunkStore.from_files(tmp_path / "b.parquet.gz")


@pytest.mark.parametrize("suffix", [suffix for suffix in PACK if suffix])
@pytest.mark.parametrize("kind", [".txt", ".jsonl"])
def test_packed_files_cut_short_or_damaged(tmp_path, suffix, kind):
    rng = random.Random(10)
    data = jsonl(["".join(rng.choices("abcdefgh \n", k=100)) for _ in range(300)])
    packed = in_members(data, PACK[suffix])
    path = tmp_path / f"a{kind}{suffix}"
    border = len(PACK[suffix](data[: len(data) // 3]))
    cuts = [0, 1, 3, border - 1, border + 1, border + 3, len(packed) - 1, *rng.sample(range(len(packed)), 20)]
    for cut in set(cuts) - {border}:
        path.write_bytes(packed[:cut])
        with pytest.raises(CorpusFormatError, match=rf"{re.escape(path.name)}: .* is cut short or damaged"):
            ChunkStore.from_files(path)
    for bad in (packed + b"garbage", packed[:border] + b"\1" + packed[border + 1 :], b"garbage" * 10):
        path.write_bytes(bad)
        with pytest.raises(CorpusFormatError, match="cut short or damaged"):
            ChunkStore.from_files(path)
    with pytest.raises(CorpusFormatError, match="cut short or damaged"):
        trained(GPT4_SPLIT_PATTERN).encode_file(path, tmp_path / "o.bin")
    assert not list(tmp_path.glob("o.bin*"))


class ByteByByte(io.RawIOBase):
    """A file that gives one byte a time, as a slow connection may."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readinto(self, buffer) -> int:
        return self._data.readinto(memoryview(buffer)[:1])


@pytest.mark.parametrize("suffix", [suffix for suffix in PACK if suffix])
def test_packed_files_that_arrive_byte_by_byte(suffix):
    data = b"some words\n" * 30
    packed = in_members(data, PACK[suffix])
    if suffix == ".zst":
        packed += b"\x50\x2a\x4d\x18\5\0\0\0......"[:13] + zst(b"more")     # a frame to be skipped, of five bytes
        data += b"more"
    source = sources.Source("a", "a", compression=suffix[1:])
    stream = streams.Unpacked(ByteByByte(packed), source)
    assert stream.readable()
    assert stream.read() == data
    assert stream.n_read == len(packed)
    with pytest.raises(CorpusFormatError, match="cut short"):
        streams.Unpacked(ByteByByte(packed[:-1]), source).read()


def test_a_zst_file_with_any_wrong_byte_is_damaged():
    data = b"".join(b"%d words, " % i for i in range(60))
    packed, source = zst(data), sources.Source("a", "a", compression="zst")
    for at in range(len(packed)):
        wrong = packed[:at] + bytes([packed[at] ^ 0x55]) + packed[at + 1 :]
        with contextlib.suppress(CorpusFormatError):            # some bits say nothing
            assert streams.Unpacked(io.BytesIO(wrong), source).read() == data


def test_errors_of_the_system_stay_what_they_are(tmp_path):
    class Broken(io.RawIOBase):
        def read(self, n: int = -1) -> bytes:
            raise OSError(errno.EIO, "input/output error", "a.gz")

    source = sources.Source("a.gz", "a.gz", compression="gz")
    with pytest.raises(OSError, match="input/output error") as raised, streams.Unpacked(Broken(), source) as stream:
        stream.read()
    assert (raised.value.errno, raised.value.filename) == (errno.EIO, "a.gz")
    for named in (streams.parquet_faults, streams._naming):
        with pytest.raises(PermissionError, match="not permitted"), named("a"):
            raise PermissionError(errno.EPERM, "not permitted")


def test_what_is_shorter_than_it_was_is_told_of(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"some words"))
    (source,) = find_sources(tmp_path / "a.txt.gz")
    with streams.open_stream_at(source, 5) as stream:
        assert stream.read() == b"words"
    with pytest.raises(OSError, match="is shorter than it was: byte 15 was to be read"):
        streams.open_stream_at(source, 15)
    limited = streams.Limited(io.BytesIO(b"abcdef"), 4, "a.txt")
    assert limited.readable()
    assert (limited.read(), limited.read()) == (b"abcd", b"")
    with pytest.raises(OSError, match=r"a\.txt: became shorter while it was read: 1 bytes are not there"):
        streams.Limited(io.BytesIO(b"abc"), 4, "a.txt").read()


def test_what_cannot_be_numbered_is_refused(tmp_path, monkeypatch):
    with pytest.raises(CorpusTooLargeError, match=r"a: longer than 1,099,511,627,776 bytes"):
        documents.check_offset(sources.Source("a", "a"), 1 << 40)
    for name in "abc":
        (tmp_path / f"{name}.txt").touch()
    monkeypatch.setattr(sources, "SOURCE_BITS", 1)
    with pytest.raises(CorpusTooLargeError, match="3 sources: 2 can be numbered"):
        find_sources(tmp_path)


def test_a_fault_without_a_line_or_at_the_beginning_is_told_as_it_is():
    source = sources.Source("a", "a")
    for fault, begin in [(CorpusFormatError("a", "wrong", row=3), 5), (CorpusFormatError("a", "wrong", line=3), 0)]:
        assert documents.in_file(fault, sources.Stretch(0, source, begin, 9)) is fault


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt"])
def test_a_file_that_shrinks_is_an_error(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b'{"text": "a"}\n' * 1000)
    found = find_sources(path)
    path.write_bytes(b'{"text": "a"}\n' * 10)
    with pytest.raises(OSError, match=rf"{re.escape(name)}: became shorter .* ends at byte 140"):
        list(files.pieces(found, cuttable=True))
    if name == "a.jsonl":
        with pytest.raises(OSError, match="became shorter"):
            list(corpus.source_parts(found, splitter_for(None), None))


def test_padding_behind_members_is_no_damage(tmp_path):
    for suffix, padding in ((".gz", 5000), (".xz", 4)):
        path = tmp_path / f"a.txt{suffix}"
        path.write_bytes(PACK[suffix](b"one ") + bytes(padding) + PACK[suffix](b"two") + bytes(padding))
        assert list(ChunkStore.from_files(path)) == counted(["one two"], GPT4_SPLIT_PATTERN)


def test_what_is_packed_very_tightly_comes_out_in_pieces(tmp_path):
    size = 3_000_000 if SHORT else 10_000_000
    for suffix, pack in PACK.items():
        if suffix:
            (tmp_path / f"a.txt{suffix}").write_bytes(pack(bytes(size)))
            stream = streams.open_stream(find_sources(tmp_path / f"a.txt{suffix}")[0])
            most = total = 0
            with stream:
                while data := stream.read(1 << 30):
                    most, total = max(most, len(data)), total + len(data)
            assert total == size
            assert most <= streams.UNPACKED


@pytest.mark.skipif(shutil.which("zstd") is None, reason="the zstd tool is not there")
@pytest.mark.parametrize("how", ["-1", "-19", "--no-check", "--long=27", "-T2 -B1MiB", "--no-content-size"])
def test_what_the_zstd_tool_writes(tmp_path, how):
    rng = random.Random(11)
    text = "".join(rng.choices(["word ", "\n", "é", "line\n", "z" * 50], k=50_000))
    path = tmp_path / "a.txt"
    path.write_text(text, newline="")
    whole = list(ChunkStore.from_files(path))
    done = subprocess.run(["zstd", "-q", *how.split(), str(path)], check=False, capture_output=True)
    if done.returncode:
        pytest.skip(done.stderr.decode())
    packed = (tmp_path / "a.txt.zst").read_bytes()
    assert list(ChunkStore.from_files(tmp_path / "a.txt.zst")) == whole
    skippable = b"\x5a\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"
    (tmp_path / "b.txt.zst").write_bytes(skippable + packed + skippable + packed)
    assert ChunkStore.from_files(tmp_path / "b.txt.zst").total_bytes == 2 * len(text.encode())
    path.unlink()
    subprocess.run(["zstd", "-q", "-d", str(tmp_path / "a.txt.zst")], check=True)
    assert path.read_bytes() == text.encode()


def test_bytes_that_are_not_utf8_in_a_packed_text(tmp_path):
    data = b"good line\n" * 1000 + b"\xff" + b" line\n" * 1000
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(data))
    with pytest.raises(CorpusDecodeError, match=r"a\.txt\.gz: .* offset 10,000"):
        ChunkStore.from_files(path)
    for errors in ("replace", "skip"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            store = ChunkStore.from_files(path, errors=errors)
        assert list(store) == counted([data.decode("utf-8", "replace")], GPT4_SPLIT_PATTERN)
        assert store.skipped == 0
    with pytest.raises(CorpusDecodeError, match="offset 10,000"):
        trained(GPT4_SPLIT_PATTERN).encode_file(path, tmp_path / "o.bin")


@pytest.mark.parametrize(
    ("package", "name"), [("zstandard", "a.txt.zst"), ("pyarrow.parquet", "a.parquet"), ("fsspec", "memory://a.txt")]
)
def test_a_missing_package_is_named_with_the_extra(tmp_path, monkeypatch, package, name):
    (tmp_path / "a.txt.zst").write_bytes(zst(b"a"))
    write_parquet(tmp_path / "a.parquet", ["a"])
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf'{package.partition(".")[0]}.*pip install "cbpe\[data\]"'):
        ChunkStore.from_files(name if "://" in name else tmp_path / name)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted in /proc")
def test_nothing_stays_open_C17(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(jsonl(["a", "b"])))
    write_parquet(tmp_path / "b.parquet", ["a", None])
    (tmp_path / "c.txt.zst").write_bytes(zst(b"a\nb\nc\n")[:-1])
    before = None
    for _ in range(20):
        ChunkStore.from_files(tmp_path / "a.jsonl.gz", num_threads=2)
        with pytest.raises(CorpusFormatError):
            ChunkStore.from_files(tmp_path, num_threads=2)
        with pytest.raises(CorpusFormatError):
            ChunkStore.from_files(tmp_path / "c.txt.zst")
        opened = len(os.listdir("/proc/self/fd"))
        before = before or opened
    assert opened <= before         # the first round may find some that the one before it leaves to be collected


# -------------------------------------------------------------------------------------------------------- encoding


@pytest.mark.parametrize("pattern", PATTERNS[:4], ids=PATTERN_IDS[:4])
@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.usefixtures("small_parts")
def test_lines_and_rows_are_encoded_as_documents(tmp_path, pattern, num_threads):
    tokenizer = trained(pattern)
    texts = nasty_documents(12)
    (tmp_path / "a.jsonl.zst").write_bytes(zst(jsonl(texts[:30])))
    write_parquet(tmp_path / "b.parquet", texts[30:], row_group_size=13)
    lists = [[*tokenizer.encode_ordinary(text), 257] for text in texts]
    out = tmp_path / "o.bin"
    tokenizer.encode_file(tmp_path, out, eot=257, document_offsets=True, num_threads=num_threads)
    assert ids_in(out) == [i for ids in lists for i in ids]
    index = index_of(out)
    assert index["document_offsets"] == np.cumsum([0, *map(len, lists)]).tolist()
    assert index["sources"][1] == f"{tmp_path / 'b.parquet'}#0"
    tokenizer.encode_file(tmp_path, out, num_threads=num_threads)
    assert ids_in(out) == [i for ids in lists for i in ids[:-1]]


@pytest.mark.parametrize("pattern", PATTERNS[:4], ids=PATTERN_IDS[:4])
@pytest.mark.parametrize("separator", ["<|eot|>", "\n", "\n\n", "aa", "é"])
@pytest.mark.usefixtures("small_parts")
def test_a_separator_makes_documents(tmp_path, pattern, separator):
    tokenizer = trained(pattern)
    rng = random.Random(13)
    for number in range(12):
        words = [separator, separator, "a", " ", "\n", "word\n", "éé", "<|eot", "long enough a line\n" * 3]
        text = "".join(rng.choices(words, k=rng.choice([0, 1, 2, 10, 60])))
        path = tmp_path / f"a.txt{rng.choice(['', '.gz'])}"
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
        expected = text.split(separator)
        if len(expected) > 1 and not expected[-1]:
            expected.pop()
        lists = [[*tokenizer.encode_ordinary(each), 257] for each in expected]
        out = tmp_path / "o.bin"
        how = {"separator": separator, "num_threads": 1 + number % 2}
        tokenizer.encode_file(path, out, eot=257, document_offsets=True, **how)
        assert ids_in(out) == [i for ids in lists for i in ids]
        assert index_of(out)["document_offsets"] == np.cumsum([0, *map(len, lists)]).tolist()


def test_separators_are_checked(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"good|b\xffd|")
    with pytest.raises(ValueError, match="empty"):
        trained(GPT4_SPLIT_PATTERN).encode_file(tmp_path / "a.txt", tmp_path / "o.bin", separator="")
    with pytest.raises(TypeError, match="separator"):
        trained(GPT4_SPLIT_PATTERN).encode_file(tmp_path / "a.txt", tmp_path / "o.bin", separator=5)
    with pytest.raises(CorpusDecodeError, match="offset 6"):
        trained(GPT4_SPLIT_PATTERN).encode_file(tmp_path / "a.txt", tmp_path / "o.bin", separator="|")


@pytest.mark.parametrize("cuttable", [True, False])
@pytest.mark.parametrize("separator", [None, "<|eot|>", "\n\n"])
@pytest.mark.usefixtures("small_parts")
def test_reading_begins_again_at_any_piece(tmp_path, cuttable, separator):
    texts = nasty_documents(14, 30)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + jsonl(texts)))
    (tmp_path / "b.txt").write_bytes("".join(texts).encode())
    (tmp_path / "c.txt").touch()
    (tmp_path / "d.txt.zst").write_bytes(zst(("".join(texts) + (separator or "")).encode()))
    write_parquet(tmp_path / "e.parquet", texts, row_group_size=12)
    found = find_sources(tmp_path)
    read = functools.partial(files.pieces, found, cuttable=cuttable, separator=separator)

    def content(piece):
        block = piece.block
        if isinstance(block, files.TextBlock):
            return piece.place, block.offset, block.documents, block.is_open
        return piece.place, [*block.texts(documents.Faults("strict")).as_list()], getattr(block, "line", None)

    pieces = list(read())
    whole = list(map(content, pieces))
    assert len(pieces) > 20
    for i in range(0, len(pieces), 2):
        assert list(map(content, read(start=pieces[i].place))) == whole[i:]
        if i % 3 == 0:
            assert list(map(content, read(start=pieces[i].next_place))) == whole[i + 1 :]
    assert sum(piece.cost for piece in pieces if piece.place[0] == 1) == (tmp_path / "b.txt").stat().st_size
