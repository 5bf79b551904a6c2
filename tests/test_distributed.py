"""Counting and encoding by the tasks of a cluster: to the byte what one process gives, whatever becomes of the tasks.

Most is tried with a stand-in for Ray that runs tasks in this process, in any order; what only processes and machines
can show (kills, lost nodes, Ctrl-C) on a real cluster of three nodes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import gzip
import http.server
import json
import os
import pickle
import random
import re
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from cbpe import (
    GPT2_SPLIT_PATTERN,
    GPT4_SPLIT_PATTERN,
    BasicTokenizer,
    ChunkStore,
    CorpusDecodeError,
    CorpusFormatError,
    RegexTokenizer,
    ShardError,
    distributed,
)
from cbpe.inputs import sources
from cbpe.training import spill
from cbpe.training.spill import Limit

SPECIALS = ["<|eot|>", "</s>"]
LETTERS = str.maketrans("0123456789", "abcdefghij")
WORDS = [*"ab1 \n\r\t'!sl\n\né\u3000漢😀\"\\", "\nword", "\n\n", " 'll", *SPECIALS, "<|eot", " the", " of\n", "\nA"]


def some_texts(n: int = 60, seed: int = 1) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(WORDS, k=rng.choice([0, 1, 5, 50, 200]))) for _ in range(n)]


def lines_of(texts) -> bytes:
    return "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts)).encode()


@pytest.fixture(scope="module")
def corpus_dir(tmp_path_factory) -> Path:
    """The same kinds of text in everything that is read."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "a.txt").write_text("".join(some_texts(seed=1)), encoding="utf-8", newline="")
    (folder / "b.jsonl").write_bytes(lines_of(some_texts(seed=2)))
    (folder / "c.jsonl.gz").write_bytes(gzip.compress(lines_of(some_texts(seed=3))))
    (folder / "d.txt.zst").write_bytes(zstandard.compress("".join(some_texts(seed=4)).encode()))
    pq.write_table(pa.table({"text": some_texts(seed=5)}), folder / "e.parquet", row_group_size=17)
    (folder / "f.txt").write_bytes(b"")
    for i in range(5):
        (folder / f"g{i}.txt").write_text(f"small file {i}\n\n", encoding="utf-8", newline="")
    (folder / "h.txt").write_bytes(b"x" * 5000)         # nowhere to be cut
    (folder / "i.jsonl").write_bytes(b"\xef\xbb\xbf" + lines_of(some_texts(20, seed=6)).rstrip(b"\n"))
    return folder


def saved(store: ChunkStore, path: Path) -> bytes:
    store.save(path)
    return path.read_bytes()


def joined(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("part-*.bin")))


def trained() -> RegexTokenizer:
    tokenizer = RegexTokenizer()
    tokenizer.train("".join(some_texts(seed=8)), 400, special_tokens=["<|eot|>"])
    return tokenizer


# ------------------------------------------------------------------------------- with a stand-in that runs tasks here


class TaskError(Exception):
    def __init__(self, cause):
        super().__init__(cause)
        self.cause = cause


class StandIn:
    """As much of Ray as is used: tasks run when they are waited for, in any order, some of them twice."""

    exceptions = SimpleNamespace(RayError=TaskError)

    def __init__(self, seed: int = 0, machines: int = 1) -> None:
        self.rng = random.Random(seed)
        self.machines = machines
        self.cancelled: list = []
        self.n_tasks = 0

    def is_initialized(self):
        return True

    def cluster_resources(self):
        return {"CPU": 3.0}

    def nodes(self):
        return [{"Alive": True, "NodeManagerAddress": f"10.0.0.{i}"} for i in range(self.machines)]

    def put(self, value):
        return pickle.dumps(value)

    def remote(self, **options):
        assert options["num_cpus"] == 1

        def of(task):
            def submit(job, *arguments):
                self.n_tasks += 1
                return (self.n_tasks, task, job, pickle.dumps(arguments))

            return SimpleNamespace(remote=submit)

        return of

    def wait(self, refs, num_returns=1, timeout=None):
        return self.rng.sample(refs, num_returns), []

    def get(self, ref):
        _, task, job, arguments = ref
        try:
            result = task(pickle.loads(job), *pickle.loads(arguments))
            if self.rng.random() < 0.3:         # as if it had been taken for lost
                task(pickle.loads(job), *pickle.loads(arguments))
        except Exception as fault:
            raise TaskError(pickle.loads(pickle.dumps(fault))) from None
        return pickle.loads(pickle.dumps(result))

    def cancel(self, ref, force):
        self.cancelled.append(ref)


@pytest.fixture
def stand_in(monkeypatch) -> StandIn:
    ray = StandIn()
    monkeypatch.setattr(distributed, "_ray", lambda: ray)
    return ray


@pytest.mark.parametrize(
    ("pattern", "specials"),
    [
        (GPT4_SPLIT_PATTERN, None),
        (GPT4_SPLIT_PATTERN, SPECIALS),
        (GPT4_SPLIT_PATTERN, ["\nword"]),
        (GPT2_SPLIT_PATTERN, SPECIALS),
        (r"\w+|\s", SPECIALS),
        (None, None),
    ],
    ids=["gpt4", "gpt4 specials", "gpt4 special with a line end", "gpt2 specials", "regex specials", "whole"],
)
@pytest.mark.usefixtures("stand_in")
def test_a_store_is_that_of_one_process(corpus_dir, tmp_path, pattern, specials):
    how = {"pattern": pattern, "special_tokens": specials}
    expected = saved(ChunkStore.from_files(corpus_dir, **how), tmp_path / "one")
    for task_bytes in (500, "1MB"):
        work_dir = tmp_path / "work"
        store = distributed.count(corpus_dir, task_bytes=task_bytes, work_dir=work_dir, out=tmp_path / "out", **how)
        assert saved(store, tmp_path / "many") == expected
        assert (tmp_path / "out").read_bytes() == expected
        assert list(work_dir.iterdir()) == []


@pytest.mark.parametrize("num_parts", [1, 2, 256])
@pytest.mark.usefixtures("stand_in")
def test_parts_change_nothing(corpus_dir, tmp_path, num_parts):
    expected = saved(ChunkStore.from_files(corpus_dir), tmp_path / "one")
    store = distributed.count(corpus_dir, task_bytes=5000, num_parts=num_parts, work_dir=tmp_path)
    assert saved(store, tmp_path / "many") == expected


@pytest.mark.usefixtures("stand_in")
def test_counters_that_are_full_go_to_the_file_several_times(tmp_path, monkeypatch):
    monkeypatch.setattr(Limit, "LEAST", 1)
    path = tmp_path / "a.txt"
    path.write_text("\n".join(f"w{i * 7919 % 30_011}".translate(LETTERS) for i in range(60_000)), encoding="utf-8")
    runs = []
    count_stretches = distributed.count_stretches

    def spied(*arguments):
        counted = count_stretches(*arguments)
        runs.append(len(counted.starts))
        return counted

    monkeypatch.setattr(distributed, "count_stretches", spied)
    store = distributed.count(path, memory_limit=500_000, task_bytes=300_000, work_dir=tmp_path / "work")
    assert max(runs) > 1
    assert saved(store, tmp_path / "many") == saved(ChunkStore.from_files(path), tmp_path / "one")


def test_a_plan_cuts_what_is_large_and_joins_what_is_small():
    a, b, c, d = (sources.Source(f"{i}", f"{i}", size=size) for i, size in enumerate([5, 1, 1, 1]))
    plan = distributed._plan([a, b, c, d], 2, True)
    assert [[(each.number, each.begin, each.end) for each in task] for task in plan] == [
        [(0, 0, 1)], [(0, 1, 3)], [(0, 3, 5)], [(1, 0, None), (2, 0, None)], [(3, 0, None)]
    ]
    assert len(distributed._plan([a, b, c, d], 2, False)) == 3


FAULTS = [
    ("b.jsonl", b'{"text": 5}\n', CorpusFormatError),
    ("b.jsonl", b'\xef\xbb\xbf{"text": "a mark of order within"}\n', CorpusFormatError),
    ("a.txt", b"\nbroken \xff here\n", CorpusDecodeError),
]


@pytest.mark.parametrize(("name", "wrong", "kind"), FAULTS, ids=["line", "mark", "bytes"])
@pytest.mark.parametrize("seed", range(3))
def test_the_first_fault_is_that_of_one_process(corpus_dir, tmp_path, monkeypatch, name, wrong, kind, seed):
    ray = StandIn(seed)
    monkeypatch.setattr(distributed, "_ray", lambda: ray)
    data = (corpus_dir / name).read_bytes()
    for share in (5, 4, 1):             # three of them
        at = data.index(b"\n", len(data) * share // 6) + 1
        data = data[:at] + wrong + data[at:]
    path = tmp_path / name
    path.write_bytes(data)
    tokenizer = trained()
    calls = [
        (lambda: ChunkStore.from_files(path), lambda: distributed.count(path, task_bytes=500, work_dir=tmp_path / "w")),
        (
            lambda: tokenizer.encode_file(path, tmp_path / "ids"),
            lambda: distributed.encode_files(tokenizer, path, tmp_path / "parts", part_bytes=500),
        ),
    ]
    for one, many in calls:
        with pytest.raises(kind) as expected:
            one()
        with pytest.raises(kind) as found:
            many()
        assert type(found.value) is kind
        assert str(found.value) == str(expected.value)
    assert list((tmp_path / "w").iterdir()) == []
    assert not [each for each in os.listdir(tmp_path / "parts") if not each.startswith("part-")]


@pytest.mark.usefixtures("stand_in")
def test_what_is_skipped_is_told_as_by_one_process(corpus_dir, tmp_path):
    data = (corpus_dir / "b.jsonl").read_bytes().splitlines(keepends=True)
    data[40:40] = data[25:25] = [b"nothing\n", b'{"text": 1}\n']
    path = tmp_path / "b.jsonl"
    path.write_bytes(b"".join(data))
    with pytest.warns(UserWarning, match="4 documents") as expected:
        one = ChunkStore.from_files(path, errors="skip")
    with pytest.warns(UserWarning, match="line 26") as found:
        many = distributed.count(path, errors="skip", task_bytes=700, work_dir=tmp_path / "w")
    assert [str(each.message) for each in found] == [str(each.message) for each in expected]
    assert found[0].filename == __file__
    assert many.skipped == one.skipped == 4
    assert saved(many, tmp_path / "many") == saved(one, tmp_path / "one")

    tokenizer = trained()
    with pytest.warns(UserWarning, match="line 26"):
        distributed.encode_files(tokenizer, path, tmp_path / "parts", errors="skip", part_bytes=700)
    with pytest.warns(UserWarning, match="line 26"):
        tokenizer.encode_file(path, tmp_path / "ids", errors="skip")
    assert joined(tmp_path / "parts") == (tmp_path / "ids").read_bytes()
    told = [json.loads(each.read_bytes())["skipped"] for each in (tmp_path / "parts").glob("*.json")]
    assert sum(told) == 4


@pytest.mark.parametrize("separator", [None, "<|eot|>", "</s>", "\nword", "\n\n"])
@pytest.mark.parametrize("eot", [None, "<|eot|>"])
@pytest.mark.usefixtures("stand_in")
def test_parts_are_what_encode_file_writes(corpus_dir, tmp_path, separator, eot):
    tokenizer = trained()
    how = {"separator": separator, "eot": eot}
    n_ids = tokenizer.encode_file(corpus_dir, tmp_path / "ids", **how)
    expected = (tmp_path / "ids").read_bytes()
    for part_bytes in (300, "1MB"):
        out = tmp_path / f"parts {part_bytes}"
        parts = distributed.encode_files(tokenizer, corpus_dir, out, part_bytes=part_bytes, **how)
        assert joined(out) == expected
        assert parts == (n_ids, len(list(out.glob("*.bin"))), len(list(out.glob("*.bin"))))
        assert {path.name for path in out.iterdir()} == {
            f"part-{i:05d}.bin{end}" for i in range(parts.n_parts) for end in ("", ".idx.json")
        }


@pytest.mark.parametrize("tokenizer", [BasicTokenizer(), RegexTokenizer(r"\w+|\s+")], ids=["basic", "regex"])
@pytest.mark.usefixtures("stand_in")
def test_parts_of_tokenizers_whose_texts_stay_whole(corpus_dir, tmp_path, tokenizer):
    tokenizer.train("".join(some_texts(seed=8)), 300)
    tokenizer.encode_file(corpus_dir, tmp_path / "ids", separator="</s>")
    distributed.encode_files(tokenizer, corpus_dir, tmp_path / "parts", separator="</s>", part_bytes=300)
    assert joined(tmp_path / "parts") == (tmp_path / "ids").read_bytes()


@pytest.mark.usefixtures("stand_in")
def test_finished_parts_are_not_made_again(corpus_dir, tmp_path):
    tokenizer = trained()
    out = tmp_path / "parts"
    encode = functools.partial(distributed.encode_files, tokenizer, corpus_dir, out, part_bytes=2000)
    first = encode()
    whole = joined(out)
    index = json.loads((out / "part-00000.bin.idx.json").read_bytes())
    assert index["sources"] == [str(corpus_dir / "a.txt")]
    assert index["count"] == len(np.fromfile(out / "part-00000.bin", index["dtype"]))
    assert encode() == (first.n_ids, first.n_parts, 0)

    (out / "part-00002.bin").unlink()
    (out / "part-00004.bin").unlink()
    (out / "part-00004.bin.idx.json").unlink()
    (out / "part-00005.bin.0123abcd.tmp").write_bytes(b"of a task that was killed")
    (out / "notes.txt").write_bytes(b"somebody's")
    assert encode() == (first.n_ids, first.n_parts, 2)
    assert joined(out) == whole
    assert [each for each in os.listdir(out) if not each.startswith("part-")] == ["notes.txt"]
    assert not list(out.glob("*.tmp"))

    (out / "part-00003.bin").write_bytes(b"short")
    with pytest.raises(ShardError, match=r"part-00003.bin: damaged: 5 bytes"):
        encode()
    (out / "part-00001.bin.idx.json").unlink()
    with pytest.raises(ShardError, match=r"part-00001.bin: no part-00001.bin.idx.json"):
        encode()
    (out / "part-00000.bin.idx.json").write_text("{")
    with pytest.raises(ShardError, match=r"part-00000.bin.idx.json: damaged"):
        encode()
    assert encode(force=True) == (first.n_ids, first.n_parts, 3)
    assert joined(out) == whole


@pytest.mark.usefixtures("stand_in")
def test_parts_of_another_job_are_refused(corpus_dir, tmp_path):
    tokenizer = trained()
    out = tmp_path / "parts"
    encode = functools.partial(distributed.encode_files, tokenizer, corpus_dir, out)
    encode(part_bytes=2000)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    for how, reason in [
        ({"part_bytes": 2000, "eot": "<|eot|>"}, "made with eot None, not 400"),
        ({"part_bytes": 1999}, "made with part_bytes 2000, not 1999"),
        ({"part_bytes": 2000, "separator": "x"}, "separator"),
        ({"part_bytes": "1GB"}, "of another job, for this one has 1 parts"),
    ]:
        with pytest.raises(ShardError, match=reason):
            encode(**how)
    with pytest.raises(ShardError, match=r"of other files|of another job"):
        distributed.encode_files(tokenizer, corpus_dir / "a.txt", out, part_bytes=2000)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert encode(part_bytes="1GB", force=True).n_made == 1
    assert sorted(os.listdir(out)) == ["part-00000.bin", "part-00000.bin.idx.json"]


@pytest.mark.usefixtures("stand_in")
def test_parts_of_files_of_other_names_are_refused(tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("some words\n" * 100)
    distributed.encode_files(trained(), tmp_path / "a.txt", tmp_path / "parts")
    with pytest.raises(ShardError, match=r"part-00000\.bin: made of other files"):
        distributed.encode_files(trained(), tmp_path / "b.txt", tmp_path / "parts")


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("can_jump", [True, False])
def test_lines_elsewhere_are_shared_out_if_they_can_be_read_from_any_byte_on(tmp_path, monkeypatch, can_jump):
    lines = fsspec.filesystem("memory")
    lines.pipe("/lines-of-a-cluster/a.jsonl", lines_of(some_texts()))
    if not can_jump:
        monkeypatch.setattr(distributed, "open_to_jump", lambda source: None)
    try:
        store = distributed.count("memory://lines-of-a-cluster/a.jsonl", task_bytes=500, work_dir=tmp_path)
    finally:
        lines.rm("/lines-of-a-cluster", recursive=True)
    assert list(store) == list(ChunkStore.from_iterator(some_texts()))


def test_merging_is_shared_out_as_far_as_it_goes():
    sizes = np.full((2, distributed.N_PARTS), 10**9)
    assert distributed._merging_bits(sizes, Limit(10**9, None), 1) == spill.PART_BITS
    assert distributed._merging_bits(sizes // 10**9, Limit(10**9, None), 1) == 0


@pytest.mark.usefixtures("stand_in")
def test_a_folder_that_somebody_else_removed_is_no_error(corpus_dir, tmp_path, monkeypatch):
    remove = distributed.Folder.remove_all

    def twice(folder):
        remove(folder)
        raise FileNotFoundError(2, "no such folder", folder.url)

    monkeypatch.setattr(distributed.Folder, "remove_all", twice)
    assert list(distributed.count(corpus_dir, work_dir=tmp_path)) == list(ChunkStore.from_files(corpus_dir))
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("stand_in")
def test_what_cannot_be_shared_is_refused(corpus_dir, tmp_path, monkeypatch):
    count = functools.partial(distributed.count, corpus_dir)
    with pytest.raises(ValueError, match="standard input and pipes"):
        distributed.count("-", work_dir=tmp_path)
    with pytest.raises(ValueError, match="num_parts is a power of two"):
        count(num_parts=3)
    with pytest.raises(ValueError, match="memory_limit must be at least"):
        count(memory_limit="1MB")
    with pytest.raises(TypeError, match="memory_limit is needed"):
        count(memory_limit=None)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        count(out=tmp_path / "missing" / "store")
    monkeypatch.setattr(distributed, "_ray", lambda: StandIn(machines=2))
    with pytest.raises(ValueError, match="the cluster has 2 machines: work_dir="):
        count()


@pytest.mark.usefixtures("stand_in")
def test_one_machine_needs_no_work_dir(corpus_dir, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = distributed.count(corpus_dir / "a.txt")
    assert list(tmp_path.iterdir()) == []
    assert list(store) == list(ChunkStore.from_files(corpus_dir / "a.txt"))


@pytest.mark.usefixtures("stand_in")
def test_another_folder_under_the_same_name_is_noticed(corpus_dir, tmp_path, monkeypatch):
    elsewhere = distributed.Folder(str(tmp_path / "elsewhere"), "probe")
    monkeypatch.setattr(StandIn, "put", lambda _, job: pickle.dumps(dataclasses.replace(job, folder=elsewhere)))
    with pytest.raises(ValueError, match="not the same folder on machine"):
        distributed.count(corpus_dir, work_dir=tmp_path)


@pytest.mark.usefixtures("stand_in")
def test_fsspec_writes_and_reads_what_tasks_hand_over(corpus_dir, tmp_path):
    expected = saved(ChunkStore.from_files(corpus_dir), tmp_path / "one")
    url = "memory://of-a-cluster"
    store = distributed.count(corpus_dir, work_dir=url, task_bytes=2000, out=f"{url}.chunks")
    memory = fsspec.filesystem("memory")
    assert memory.cat_file("/of-a-cluster.chunks") == expected == saved(store, tmp_path / "many")
    assert memory.find("/of-a-cluster") == []
    tokenizer = trained()
    distributed.encode_files(tokenizer, corpus_dir, f"{url}-ids", part_bytes=2000)
    tokenizer.encode_file(corpus_dir, tmp_path / "ids")
    found = sorted(memory.glob("/of-a-cluster-ids/part-*.bin"))
    assert b"".join(map(memory.cat_file, found)) == (tmp_path / "ids").read_bytes()
    memory.rm("/of-a-cluster-ids", recursive=True)
    memory.rm("/of-a-cluster.chunks")


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("what", ["work_dir", "out_dir"])
def test_a_file_that_may_not_grow_is_named_and_gone(what, tmp_path):
    resource = pytest.importorskip("resource")
    (tmp_path / "a.txt").write_text(" ".join(str(number) for number in range(30_000)))
    (tmp_path / "w").mkdir()
    tokenizer = trained()
    before = sorted(path.name for path in tmp_path.iterdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
    calls = {
        "work_dir": lambda: distributed.count(tmp_path / "a.txt", work_dir=tmp_path / "w"),
        "out_dir": lambda: distributed.encode_files(tokenizer, tmp_path / "a.txt", tmp_path / "ids"),
    }
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)) as raised:
            calls[what]()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    named = {"work_dir": tmp_path / "w" / "cbpe-", "out_dir": tmp_path / "ids" / "part-00000.bin"}
    name = str(raised.value.filename)
    assert name.startswith(str(named[what]))
    assert not name.endswith(".tmp")
    shutil.rmtree(tmp_path / "ids", ignore_errors=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert not list((tmp_path / "w").iterdir())


@pytest.mark.usefixtures("stand_in")
def test_a_folder_that_stays_is_told_of(corpus_dir, tmp_path, monkeypatch):
    def refuse(self):
        raise OSError(39, "Directory not empty")

    monkeypatch.setattr(distributed.Folder, "remove_all", refuse)
    with pytest.warns(UserWarning, match="could not be removed"):
        store = distributed.count(corpus_dir / "a.txt", work_dir=tmp_path)
    assert list(store) == list(ChunkStore.from_files(corpus_dir / "a.txt"))


@pytest.mark.parametrize("missing", ["ray", "fsspec"])
def test_a_missing_package_is_named_with_its_extra(corpus_dir, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=rf'package {missing} .*pip install "cbpe\[ray\]"'):
        distributed.count(corpus_dir)


# ------------------------------------------------------------------------------------------ a cluster of three nodes


class Ranged(http.server.SimpleHTTPRequestHandler):
    """A web server that also sends some bytes of a file."""

    def log_message(self, *args):
        pass

    def do_GET(self):
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not wanted or "whole" in self.path:
            super().do_GET()
            return
        data = Path(self.translate_path(self.path)).read_bytes()
        begin, end = int(wanted[1]), min(int(wanted[2]) + 1, len(data))
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")
        self.send_header("Content-Length", str(end - begin))
        self.end_headers()
        self.wfile.write(data[begin:end])


@pytest.fixture
def web(tmp_path):
    folder = tmp_path / "web"
    folder.mkdir()
    handler = functools.partial(Ranged, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class Nodes:
    """A cluster of a head and workers of one processor each."""

    def __init__(self, ray, cluster_utils) -> None:
        self.ray = ray
        self._how = {"num_cpus": 1, "object_store_memory": 80 << 20}
        self._cluster = cluster_utils.Cluster(
            initialize_head=True, head_node_args={**self._how, "include_dashboard": False}
        )
        self.workers = [self.add(), self.add()]

    @property
    def address(self) -> str:
        return self._cluster.address

    def add(self):
        return self._cluster.add_node(**self._how)

    def kill(self, node) -> None:
        self._cluster.remove_node(node, allow_graceful=False)

    def shutdown(self) -> None:
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def nodes(outside_the_checkout):
    ray = pytest.importorskip("ray", reason="the extra ray is not installed")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        nodes = Nodes(ray, cluster_utils)
        ray.init(address=nodes.address, log_to_driver=False)
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])     # nodes do not have this file
        yield nodes
        ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
        ray.shutdown()
        nodes.shutdown()


@pytest.mark.usefixtures("nodes")
def test_a_cluster_gives_what_one_process_gives(corpus_dir, tmp_path, web):
    folder, url = web
    (folder / "ranges.txt").write_bytes("".join(some_texts(seed=11)).encode())
    (folder / "whole.jsonl.gz").write_bytes(gzip.compress(lines_of(some_texts(seed=12))))
    (folder / "ranges.jsonl").write_bytes(lines_of(some_texts(seed=13)))
    (folder / "whole.txt").write_bytes("".join(some_texts(seed=14)).encode())
    pq.write_table(pa.table({"text": some_texts(seed=15)}), folder / "ranges.parquet", row_group_size=30)
    paths = [corpus_dir, *(f"{url}/{path.name}" for path in sorted(folder.iterdir()))]
    tokenizer = trained()

    one = ChunkStore.from_files(paths, special_tokens=SPECIALS)
    many = distributed.count(
        paths, special_tokens=SPECIALS, task_bytes=4000, num_parts=4, work_dir=tmp_path / "work", out=tmp_path / "out"
    )
    assert saved(many, tmp_path / "many") == saved(one, tmp_path / "one") == (tmp_path / "out").read_bytes()
    assert list((tmp_path / "work").iterdir()) == []

    n_ids = tokenizer.encode_file(paths, tmp_path / "ids", eot="<|eot|>", separator="</s>")
    encode = functools.partial(
        distributed.encode_files, tokenizer, paths, tmp_path / "parts", eot="<|eot|>", separator="</s>", part_bytes=4000
    )
    parts = encode()
    assert joined(tmp_path / "parts") == (tmp_path / "ids").read_bytes()
    assert parts == (n_ids, parts.n_parts, parts.n_parts)
    assert parts.n_parts > 10
    assert encode() == (n_ids, parts.n_parts, 0)


def once(path: Path) -> bool:
    """True for the first process that asks."""
    with contextlib.suppress(FileExistsError):
        path.touch(exist_ok=False)
        return True
    return False


def in_the_middle(act) -> None:
    """Has act() called when this process has written a piece of its next file."""
    write_piece = spill.write_piece

    def write(file, *piece):
        write_piece(file, *piece)
        file.flush()
        act()

    distributed.write_piece = spill.write_piece = write


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def with_trouble(monkeypatch, folder: Path, trouble: str) -> None:
    """Has the third task of each kind meet with trouble, once; each that is begun is noted."""
    for name, which in (("count_stretches", 2), ("merge_group", 1), ("encode_stretches", 2)):
        monkeypatch.setattr(distributed, name, troubled(name, which, folder, trouble))


def troubled(name, which, folder, trouble):
    def run(job, number, *more):
        with open(folder / f"{name}.begun", "a") as file:
            file.write(f"{number}\n")
        strikes = number == which and once(folder / name)
        if strikes and trouble == "killed in the middle":
            in_the_middle(kill_this_process)
        result = getattr(distributed, name)(job, number, *more)       # there it is the original
        if strikes and trouble == "killed when done":
            kill_this_process()
        if strikes and trouble == "error when done":
            raise ConnectionError("once")
        return result

    return run


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize("trouble", ["error when done", "killed when done", "killed in the middle"])
def test_a_task_that_is_tried_again_does_not_count_twice(corpus_dir, tmp_path, monkeypatch, trouble):
    with_trouble(monkeypatch, tmp_path, trouble)
    store = distributed.count(corpus_dir, task_bytes=4000, num_parts=4, work_dir=tmp_path / "work")
    assert saved(store, tmp_path / "many") == saved(ChunkStore.from_files(corpus_dir), tmp_path / "one")
    assert list((tmp_path / "work").iterdir()) == []
    assert (tmp_path / "count_stretches.begun").read_text().split().count("2") == 2
    assert (tmp_path / "merge_group.begun").read_text().split().count("1") == 2

    tokenizer = trained()
    n_ids = tokenizer.encode_file(corpus_dir, tmp_path / "ids")
    parts = distributed.encode_files(tokenizer, corpus_dir, tmp_path / "parts", part_bytes=4000)
    assert joined(tmp_path / "parts") == (tmp_path / "ids").read_bytes()
    assert parts.n_ids == n_ids


@pytest.mark.usefixtures("nodes")
def test_a_task_that_fails_too_often_says_why(corpus_dir, tmp_path, monkeypatch):
    def run(job, number, *more):
        if number == 3:
            raise ConnectionError("always")
        return distributed.count_stretches(job, number, *more)      # there it is the original

    monkeypatch.setattr(distributed, "count_stretches", run)
    with pytest.raises(ConnectionError, match="always"):
        distributed.count(corpus_dir, task_bytes=4000, work_dir=tmp_path, max_retries=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("nodes")
def test_the_order_of_arrival_changes_nothing(corpus_dir, tmp_path, monkeypatch):
    def run(job, number, *more):
        time.sleep(0.3 / (1 + number))
        return distributed.count_stretches(job, number, *more)

    monkeypatch.setattr(distributed, "count_stretches", run)
    store = distributed.count(corpus_dir, task_bytes=4000, work_dir=tmp_path / "work")
    assert saved(store, tmp_path / "many") == saved(ChunkStore.from_files(corpus_dir), tmp_path / "one")


@pytest.mark.usefixtures("nodes")
def test_faults_come_through_as_they_are(corpus_dir, tmp_path):
    lines = (corpus_dir / "b.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "lines.jsonl").write_bytes(b"".join([*lines[:44], b'{"text": null}\n', *lines[44:]]))
    (tmp_path / "bytes.txt").write_bytes((corpus_dir / "a.txt").read_bytes() + b"\n\xff\n")
    pq.write_table(pa.table({"text": ["a", None]}), tmp_path / "rows.parquet")
    (tmp_path / "cut.jsonl.gz").write_bytes((corpus_dir / "c.jsonl.gz").read_bytes()[:-9])
    for name in ("lines.jsonl", "bytes.txt", "rows.parquet", "cut.jsonl.gz"):
        with pytest.raises((CorpusFormatError, CorpusDecodeError)) as expected:
            ChunkStore.from_files(tmp_path / name)
        with pytest.raises((CorpusFormatError, CorpusDecodeError)) as found:
            distributed.count([corpus_dir, tmp_path / name], task_bytes=4000, work_dir=tmp_path / "work")
        assert type(found.value) is type(expected.value)
        assert str(found.value) == str(expected.value)
    assert list((tmp_path / "work").iterdir()) == []
    with pytest.raises(ValueError, match=r"not the same folder on machine .*\(memory:// is none"):
        distributed.count(corpus_dir, work_dir="memory://here-only")


@pytest.mark.usefixtures("nodes")
def test_ctrl_c_cancels_tasks(corpus_dir, tmp_path, monkeypatch):
    def run(job, number, *more):
        if number < 2:
            return distributed.count_stretches(job, number, *more)
        (tmp_path / f"{os.getpid()}.pid").touch()
        time.sleep(600)

    def press():
        wait_for(lambda: any(tmp_path.glob("*.pid")))
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(distributed, "count_stretches", run)
    presser = threading.Thread(target=press)
    presser.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        distributed.count(corpus_dir, task_bytes=4000, work_dir=tmp_path / "work")
    presser.join()
    assert time.monotonic() - start < 60
    assert list((tmp_path / "work").iterdir()) == []
    began = [int(path.stem) for path in tmp_path.glob("*.pid")]
    wait_for(lambda: not any(map(is_running, began)))


@pytest.mark.usefixtures("nodes")
@pytest.mark.filterwarnings("ignore")       # Ray warns of its own ways
def test_a_tokenizer_in_a_dataset_of_ray():
    pytest.importorskip("ray.data", reason="Ray's datasets are not installed")
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    (example,) = (each for each in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "import ray" in each)
    exec(compile(example, "README example", "exec"), {})


def wait_for(what, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{number}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_node_that_is_lost_in_the_middle_changes_nothing(corpus_dir, tmp_path, monkeypatch, nodes):
    victim = nodes.workers.pop()

    def run(job, number, *more):
        if node_id() == victim_id:

            def hang():
                (tmp_path / f"hangs.{number}").touch()
                time.sleep(600)

            in_the_middle(hang)
        elif number:
            wait_for(lambda: any(tmp_path.glob("hangs.*")))     # so that the victim gets a task, whoever is faster
        return distributed.count_stretches(job, number, *more)

    def kill():
        # one task has ended, and one is in the middle of its file where the machine will be lost
        wait_for(lambda: any(tmp_path.glob("hangs.*")))
        wait_for(lambda: any(not path.suffix for path in tmp_path.glob("work/cbpe-*/counted-*")))
        seen.update(path.name for path in tmp_path.glob("work/cbpe-*/*"))
        nodes.kill(victim)

    seen: set[str] = set()
    victim_id = victim.node_id
    monkeypatch.setattr(distributed, "count_stretches", run)
    killer = threading.Thread(target=kill)
    killer.start()
    store = distributed.count(corpus_dir, task_bytes=1000, work_dir=tmp_path / "work")
    killer.join()
    assert saved(store, tmp_path / "many") == saved(ChunkStore.from_files(corpus_dir), tmp_path / "one")
    (hangs,) = tmp_path.glob("hangs.*")
    number = int(hangs.suffix[1:])
    assert f"counted-{number:06d}" not in seen
    assert any(name.startswith(f"counted-{number:06d}.") for name in seen)
    assert list((tmp_path / "work").iterdir()) == []


def node_id() -> str:
    import ray

    return ray.get_runtime_context().get_node_id()
